-- Failures of keys, leases that keys have lost, and keys that were given up for one of these.

local hasTroubles = call('HLEN', TROUBLES) > 0 -- false: no key has any
local function setTrouble(field, key, value)
	hasTroubles = true
	call('HSET', TROUBLES, field .. key, value)
end

-- forgetGivenUp forgets that a key was given up, and returns whether it was.
local function forgetGivenUp(key)
	local found = call('ZREM', GIVEN_UP, key) > 0
	if found then
		call('HDEL', TROUBLES, REASON .. key, LOSSES .. key)
	end
	return found
end

-- forgetOldGivenUp forgets the oldest of too many keys that were given up, or those that were given up too
-- long ago.
local function forgetOldGivenUp()
	local excess = math.min(call('ZCARD', GIVEN_UP) - setting('keep'), 64)
	local tooMany = excess > 0 and call('ZRANGE', GIVEN_UP, 0, excess - 1)
	local tooOld = whole(now - setting('keepfor'))
	for _, key in ipairs(tooMany or call('ZRANGEBYSCORE', GIVEN_UP, '-inf', tooOld, 'LIMIT', 0, 64)) do
		forgetGivenUp(key)
	end
end

local function giveUp(key, attempts, reason)
	takeBackRetry(key)
	call('ZADD', GIVEN_UP, nowDigits, key)
	call('HDEL', TROUBLES, AT_ONCE .. key)
	setTrouble(REASON, key, whole(attempts) .. ' ' .. reason)
	forgetOldGivenUp()
end

local function forgetFailures(key)
	call('ZREM', RETRIES, key)
	if call('ZREM', FAILURES, key) > 0 then
		call('HDEL', TROUBLES, FAILING .. key)
	end
end

-- forget forgets the failures of a key, and that it was given up.
local function forget(key)
	forgetFailures(key)
	forgetGivenUp(key)
end

-- failuresOf returns how many failures of a key are counted, and what is left of the last one's delay.
-- The count expires, but not while the key is held.
local function failuresOf(key)
	local retry = call('ZSCORE', RETRIES, key)
	if not retry then return 0, 0 end
	if retry + setting('forget') <= now and not isHeld(states[key]) then
		forgetFailures(key)
		return 0, 0
	end
	return tonumber(call('ZSCORE', FAILURES, key) or 0), math.max(0, retry - now)
end

-- sinceOf returns since when a key fails, nil if that is not known.
local function sinceOf(key)
	local failing = call('HGET', TROUBLES, FAILING .. key)
	return failing and tonumber(string.match(failing, '^%d+'))
end

-- backoff returns how long a key waits after a further failure: the delay of workqueue.BackoffConfig.
local function backoff(failures)
	local delay, jitter = setting('base') * setting('factor') ^ failures, setting('jitter')
	delay = math.min(delay, setting('max'))
	if jitter == 1 then -- workqueue.FullJitter
		delay = delay * math.random()
	elseif jitter == 2 then -- workqueue.EqualJitter
		delay = delay / 2 * (1 + math.random())
	end
	return math.ceil(delay)
end

-- fail counts a failure of a key, and makes it wait or gives it up. It returns how many failures
-- are counted, what is left of the delay, and letters: s for the same failure, g if the key was given up. A
-- failure before the end of the last one's delay is the same: it is not counted, and the key comes at the end
-- of that delay. The details are
--
--   atLeast     how long the key waits at least
--   maxRetries  after how many it is given up, or 0
--   retryFor    for how long it may fail before a further failure gives it up, or 0
--   terminal    true: it is given up at once
--   reason      the error
local function fail(key, details)
	local atLeast, maxRetries, retryFor, terminal, reason =
		string.match(details, '^(%d+) (%-?%d+) (%d+) (%l+) (.*)$')
	local failures, left = failuresOf(key)
	local same = left > 0
	local attempt = same and math.max(failures, 1) or failures + 1
	maxRetries, retryFor = tonumber(maxRetries), tonumber(retryFor)
	local since = failures > 0 and sinceOf(key) or now
	local isOld = retryFor > 0 and now - since > retryFor
	if terminal == 'true' or maxRetries ~= 0 and attempt > maxRetries or isOld then
		giveUp(key, attempt, reason)
		forgetFailures(key)
		return attempt, 0, same and 'sg' or 'g'
	end
	if not same then
		left = backoff(failures)
	end
	left = math.max(left, atLeast)
	call('ZADD', FAILURES, attempt, key)
	setTrouble(FAILING, key, whole(since) .. ' ' .. sub(reason, 1, 512))
	local priority, taken = isHeld(states[key]) and priorityOf(HELD_PRIORITY, key) or 0, takeBackRetry(key)
	call('ZADD', RETRIES, digits(now + left), key)
	addAfter(key, left, math.max(priority, taken or priority))
	return attempt, left, same and 's'
end

-- lose takes a key from a session whose lease has ended: its handler may have ended the process. From its
-- second loss on, the key waits before its next hand-out. The wait is random and grows, so that keys that were
-- lost together come apart. In the end the key is given up. A lost lease is no failure of the key: MaxRetries
-- does not count it.
local function lose(holder, key, state)
	local losses = (call('HGET', TROUBLES, LOSSES .. key) or 0) + 1
	local maxLosses = setting('losses')
	setTrouble(LOSSES, key, losses)
	if maxLosses > 0 and losses >= maxLosses then
		-- An add while the key was held may be confirmed, so it gets an attempt of its own.
		takeBackRetry(key)
		release(holder, key, states[key], true)
		giveUp(key, losses,
			'the lease was lost ' .. whole(losses) .. ' times in a row: the handler may end its process')
	elseif losses > 1 then
		local longest = math.min(lease * 2 ^ (losses - 2), math.max(setting('max'), lease))
		putOff(holder, key, state, math.ceil(longest / 2 * (1 + math.random())))
	else
		takeBack(holder, key, state)
	end
end
