-- The second part of batch.lua: the operations of the batch. What they decide is in local variables until handout.lua writes
-- it; what is about one key alone, and harmless if it is done twice, they write themselves.

-- An operation is a letter and a key. Before the key a capital letter has an argument of 16 characters; in C, G and R this is the
-- length of the key, and the rest is behind the key. protocol.go has the same list.
local codes, keys, arguments, rests, opCount = {}, {}, {}, {}, 0
local has = {} -- the letters that the batch has
for i = FIRST_OP, #ARGV do
	local op = ARGV[i]
	local code = sub(op, 1, 1)
	opCount = opCount + 1
	codes[opCount], has[code] = code, true
	if byte(code) < 97 then
		local argument, key = sub(op, 2, 17), sub(op, 18)
		if code == 'C' or code == 'G' or code == 'R' then
			local length = tonumber(argument, 10)
			rests[opCount] = sub(key, length + 1) -- In a statement of its own: in one, miniredis' Lua would cut key first.
			key = sub(key, 1, length)
		end
		keys[opCount], arguments[opCount] = key, argument
	else
		keys[opCount] = sub(op, 2)
	end
end

-- Long lists are built with a counter, because #list searches for the end.
local states = {} -- key -> the state that was read or set, false if the key is absent
local touched = {} -- the keys whose states are written back
local held, holds = {}, {} -- what is added to HELD, as arguments of ZADD and as a set
local released = {} -- what is removed from HELD
local front, tail = {}, {} -- keys to be queued before all others, the last one first; and after all others
local due = {} -- the keys whose delays have passed, as a set
local uncaused = {} -- fields of CAUSES to be deleted
local finished = {} -- keys for which a worker has called Done
local changed, unmatched, bucketChanged = 0, 0, false
local results = {}

-- each calls a command with all of a list. Lua cannot unpack more than about 8000 values.
local function each(command, key, list)
	for first = 1, #list, 1000 do
		call(command, key, unpack(list, first, math.min(first + 999, #list)))
	end
end

-- readSome returns up to limit keys from page(offset, count), fewer if they are long, and whether that is all there is.
local function readSome(limit, page)
	local list, bytes, count = {}, 0, math.min(2, limit)
	while count > 0 do
		local more = page(#list, count)
		for _, key in ipairs(more) do
			list[#list + 1] = key
			bytes = bytes + #key
		end
		if #more < count then
			return list, true
		end
		-- As many as are likely to fit, and not too many if the first were short by chance.
		count = math.min(limit - #list, 3 * #list, math.floor((BYTES - bytes) * #list / (bytes + 1)))
	end
	return list, false
end

local function set(key, state)
	states[key] = state
	touched[key] = true
end

-- loadStates reads the states of keys. If a state makes no sense, another program has written it, and the key is queued.
local function loadStates(keys)
	local missing, n = {}, 0
	for _, key in ipairs(keys) do
		if states[key] == nil then
			states[key] = false
			n = n + 1
			missing[n] = key
		end
	end
	for first = 1, n, 1000 do
		local values = call('HMGET', STATES, unpack(missing, first, math.min(first + 999, n)))
		for i, state in ipairs(values) do
			local key = missing[first + i - 1]
			states[key] = state
			local kind, length = state and byte(state), state and #state
			if state and (find(state, '%D', length == 16 and 1 or 13) or
				not (length == 16 or length == 28 and kind == 112 or length == 44 and (kind == 100 or kind == 101))) then
				set(key, since)
				tail[#tail + 1] = key
				repaired = repaired + 1
			end
		end
	end
end

local function isQueued(key)
	local state = states[key]
	return state and #state == 16
end

local function add(key, quiet)
	local state = states[key]
	if not state then
		set(key, since)
		tail[#tail + 1] = key
		changed = changed + 1
	elseif #state == 28 then
		set(key, (quiet and 'e' or 'd') .. sub(state, 2) .. since)
		again = again + 1
		changed = changed + 1
	elseif not quiet and byte(state) == 101 then -- e
		set(key, 'd' .. sub(state, 2))
	end
end

local waiting
local function addLater(key, delay)
	delay = delay + 0
	if delay <= 0 then
		loadStates({ key })
		add(key)
		return
	end
	if due[key] then
		due[key] = nil
		call('ZREM', DELAYS, key)
	end
	if not delayed then
		call('HSET', META, 'delayed', 1)
		delayed = true
	end
	call('ZADD', DELAYS, 'LT', digits(now + delay), key)
	waiting = nil
end

-- heldUnder returns the key's state if it is held under that fence. No two hand-outs have the same.
local function heldUnder(itsFence, key)
	local state = states[key]
	return state and find(state, itsFence, 13, true) == 13 and state
end

-- release ends the processing of a key, and returns whether the key was added meanwhile. If so, and isFinished, it is queued again.
local function release(holder, key, state, isFinished)
	released[#released + 1] = holder .. key
	if caused then
		uncaused[#uncaused + 1] = 'h' .. key
	end
	local isDirty = #state == 44
	again = again - (isDirty and 1 or 0)
	set(key, isDirty and isFinished and sub(state, 29))
	if isDirty and isFinished then
		tail[#tail + 1] = key
	end
	return isDirty
end

local givenUp, gaveUp = nil, false -- how many keys were given up, when that was read
local function dropGivenUp(key)
	givenUp = givenUp or call('ZCARD', GIVEN)
	if givenUp == 0 or call('ZREM', GIVEN, key) == 0 then
		return false
	end
	givenUp = givenUp - 1
	call('HDEL', REASONS, key)
	call('HDEL', LOSSES, key)
	return true
end
local function giveUp(key, attemptsAndReason)
	givenUp, gaveUp = (givenUp or call('ZCARD', GIVEN)) + call('ZADD', GIVEN, since, key), true
	call('HSET', REASONS, key, attemptsAndReason)
end

local function forget(key)
	if call('ZREM', FAILURES, key) > 0 then
		call('ZREM', RETRIES, key)
		call('HDEL', LASTS, key)
	end
	dropGivenUp(key)
end

local settings
local function setting(name)
	if not settings then
		settings = {}
		for field, value in string.gmatch(SETTINGS, '(%a+)=(%S+)') do
			settings[field] = tonumber(value)
		end
	end
	return settings[name]
end

-- failuresOf returns how many failures of a key are counted, and how much of the delay of the last one is left. While some is
-- left, a call that fails is the same failure: it is not counted, and the key comes at the end of that delay.
local function failuresOf(key)
	local retry = call('ZSCORE', RETRIES, key)
	if not retry or retry + setting('forget') <= now then
		return 0, 0
	end
	-- Another program may have written numbers that no reply can have.
	return math.min(math.max(0, (call('ZSCORE', FAILURES, key) or 0) + 0), 2 ^ 31), math.min(math.max(0, retry - now), 1e15)
end

-- setFailures sets how many failures of a key are counted. The delay of the last one begins now.
local function setFailures(key, failures, delay)
	call('ZADD', FAILURES, failures, key)
	call('ZADD', RETRIES, digits(now + delay), key)
end

-- wake makes a session call that waits in a blocking read. Its list need not have more than one element. The list is not in
-- KEYS: while a cluster moves it to another node it cannot be read, and the session comes within its poll interval.
local function wake(sleeper)
	local list = sub(WAKE, 1, -1 - #session) .. sleeper
	if redis.pcall('LLEN', list) == 0 then
		call('RPUSH', list, 1)
		call('PEXPIRE', list, 60000)
	end
end

-- addCauses merges causes into those that a key has, as workqueue.Causes.Plus does. They are
-- <number of others> <time of the first> and, for each of the last eight, <length> <time><q or l><what it is>.
local function addCauses(key, later)
	local others, first, last = 0, nil, {}
	local function plus(text)
		local more, began, at = string.match(text, '^(%d+) (%d+) ()')
		if not at then
			return -- Another program has written it.
		end
		others, first = others + more, first or began
		while at <= #text do
			local length, from = string.match(text, '^(%d+) ()', at)
			if not from then
				break
			end
			local cause = sub(text, from, from + length - 1)
			at = from + length
			for i = #last, 1, -1 do
				if sub(last[i], 18) == sub(cause, 18) then
					table.remove(last, i)
				end
			end
			last[#last + 1] = cause
			if #last > 8 then
				table.remove(last, 1)
				others = others + 1
			end
		end
	end
	if not caused then
		call('HSET', META, 'caused', 1)
		caused = true
	end
	local earlier = call('HGET', CAUSES, 'n' .. key)
	if earlier then
		plus(earlier)
		plus(later)
		for i, cause in ipairs(last) do
			last[i] = #cause .. ' ' .. cause
		end
		later = whole(others) .. ' ' .. (first or since) .. ' ' .. table.concat(last)
	end
	call('HSET', CAUSES, 'n' .. key, later)
end

-- keepCauses keeps the causes of a hand-out that was not finished for the next one.
local function keepCauses(key)
	local held = caused and call('HGET', CAUSES, 'h' .. key)
	if held then
		local later = call('HGET', CAUSES, 'n' .. key)
		call('HSET', CAUSES, 'n' .. key, held)
		if later then
			addCauses(key, later)
		end
	end
end

-- forgetCauses forgets why a key was added that will not come again.
local function forgetCauses(key)
	if caused then
		call('HDEL', CAUSES, 'n' .. key)
	end
end

-- putBack queues a key that was not finished, before all others. It is dirty since it was handed out.
local function putBack(holder, key, state)
	keepCauses(key)
	release(holder, key, state)
	set(key, sub(state, 13, 28))
	front[#front + 1] = key
end

-- What nearly every batch has:
local ops = {
	-- Add
	a = add,
	-- Add with its causes, in the rest behind q if all of them are quiet, and l.
	C = function(key, _, rest)
		add(key, byte(rest) == 113)
		if #rest > 1 then
			addCauses(key, sub(rest, 2))
		end
	end,
	-- AddAfter: the delay in microseconds
	L = addLater,
	-- Forget
	f = forget,
	-- Done. As B, U and W it is about a key that the session holds, and its argument is the fence.
	D = function(key, itsFence)
		finished[#finished + 1] = key
		local state = heldUnder(itsFence, key)
		if state then
			release(session, key, state, true)
		else
			unmatched = unmatched + 1
		end
	end,
}

-- The others are defined only for a batch that has one of them, because that takes some microseconds.
local hasOthers = false
for code in pairs(has) do
	hasOthers = hasOthers or not ops[code]
end
if hasOthers then
	-- backoff returns how long a key waits after a further failure: the longer one of the delay that workqueue.BackoffConfig defines and
	-- what the token bucket demands. random is from [0, 1): the server's own random numbers are the same in each script.
	local function backoff(key, failures, random)
		local base, longest, jitter, limit = setting('base'), setting('max'), setting('jitter'), setting('limit')
		local delay = math.min(base * setting('factor') ^ failures, longest)
		if jitter == 1 then
			delay = delay * random
		elseif jitter == 2 then
			delay = delay / 2 + delay / 2 * random
		elseif jitter == 3 then
			local before = failures > 0 and tonumber(call('HGET', LASTS, key) or base) or base
			delay = base + (math.min(3 * before, longest) - base) * random
			call('HSET', LASTS, key, whole(delay))
		end
		if limit > 0 then
			local burst = setting('burst')
			tokens = math.min(burst, (tokens or burst) + math.max(0, now - (filled or now)) * limit / 1000000) - 1
			filled, bucketChanged = now, true
			delay = math.max(delay, -tokens / limit * 1000000)
		end
		return math.ceil(delay)
	end

	local function answerNumbers(n, left) results[#results + 1] = 'n' .. whole(n) .. ' ' .. whole(left) .. ' ' end
	local function answer(found) answerNumbers(found and 1 or 0, 0) end

	-- AddRateLimited counts a failure, unless it is the same as the one before. The rest: a random number, see backoff, and how long
	-- the key waits at least.
	ops.R = function(key, _, rest)
		local random, atLeast = string.match(rest, '^(%S+) (%d+)$')
		local failures, delay = failuresOf(key)
		if delay == 0 then
			delay = backoff(key, failures, random) -- In two assignments: miniredis would set failures first.
			failures = failures + 1
		end
		delay = math.max(delay, atLeast)
		setFailures(key, failures, delay)
		addLater(key, delay)
	end
	-- NumRequeues, and what is left of the delay of the last failure
	ops.n = function(key) answerNumbers(failuresOf(key)) end
	-- GiveUp: the number of attempts and the error
	ops.G = function(key, _, rest) giveUp(key, rest) end
	-- Hands the key back.
	ops.B = function(key, itsFence)
		local state = heldUnder(itsFence, key)
		if state then
			putBack(session, key, state)
		end
	end
	-- Sets the key aside, because the replica cannot decode it.
	ops.U = function(key, itsFence)
		local state = heldUnder(itsFence, key)
		if state then
			forgetCauses(key)
			release(session, key, state)
			call('SADD', ASIDE, key)
		end
	end
	-- Was the key added again?
	ops.W = function(key, itsFence)
		local state = heldUnder(itsFence, key)
		answer(state and byte(state) == 100) -- d
	end
	-- Discard takes a key out, but for the worker that holds it. In a long line its place stays, and is skipped.
	ops.x = function(key)
		local found, state = call('ZREM', DELAYS, key) > 0, states[key]
		waiting, due[key] = nil, nil
		if isQueued(key) then
			set(key, false)
			if call('LLEN', LINE) <= 10000 then
				call('LREM', LINE, 1, key)
			end
		elseif state and #state == 44 then
			set(key, 'p' .. sub(state, 2, 28))
			again = again - 1
		end
		forgetCauses(key)
		found = call('HDEL', LOSSES, key) + (call('ZSCORE', FAILURES, key) and 1 or 0) > 0 or found
		forget(key)
		answer(found or state)
	end
	-- RetryGivenUp
	ops.t = function(key)
		local found = dropGivenUp(key)
		if found then
			forget(key)
			add(key)
		end
		answer(found)
	end
	-- ForgetGivenUp
	ops.y = function(key) answer(dropGivenUp(key)) end
	-- RequeueSetAside
	ops.s = function(key)
		local found = call('SREM', ASIDE, key) > 0
		if found then
			add(key)
		end
		answer(found)
	end
	-- DropSetAside
	ops.v = function(key) answer(call('SREM', ASIDE, key) > 0) end
	-- These three have no key, but: Pause, if it is 1, and Resume
	ops.p = function(one) paused = one == '1' end
	-- Identifies the session by its replica's name.
	ops.i = function(name) call('HSET', NAMES, session, name) end
	-- Quit ends the session. What it holds is reclaimed by handout.lua, and its blocking read is woken to end.
	ops.q = function()
		leaseEnds = -1
		call('ZADD', LEASES, leaseEnds, session)
		wake(session)
	end
end

-- A full server executes no adds. The replica sends them again.
local ADDS = 'aCLR'

-- Keys whose time has come are added before what the batch adds.
local chores = CHORES
waiting = delayed and call('ZCARD', DELAYS) - 1 or 0 -- nil when it must be read again
if waiting > 0 then
	local keys = readSome(DUE, function(from, n) return call('ZRANGEBYSCORE', DELAYS, '-inf', since, 'LIMIT', from, n) end)
	chores = chores - #keys
	loadStates(keys)
	for _, key in ipairs(keys) do
		add(key)
		due[key] = true
		waiting = nil
	end
end

-- membersOf returns a function that reads the entries of a session's keys in HELD.
local function membersOf(holder)
	local past = sub(holder, 1, -2) .. string.char(byte(holder, -1) + 1)
	return function(from, n) return call('ZRANGEBYLEX', HELD, '[' .. holder, '(' .. past, 'LIMIT', from, n) end
end

-- The attempt may have handed out keys and not have come to its end: the replica does not know that it has them.
if knownFence then
	local page, from = membersOf(session), 0
	local members = page(0, 256)
	while #members > 0 do -- A session holds as many keys as it has workers, and parts of batches.
		local some = {}
		for i, member in ipairs(members) do
			some[i] = sub(member, #session + 1)
		end
		loadStates(some)
		for _, key in ipairs(some) do
			local state = states[key]
			local isHolder = state and #state >= 28 and sub(state, 2, 12) == session
			if isHolder and sub(state, 13, 28) > knownFence then
				putBack(session, key, state)
				repaired = repaired + 1
			elseif not isHolder then
				released[#released + 1] = session .. key
				repaired = repaired + 1
			end
		end
		from = from + #members
		members = page(from, 256)
	end
end

-- The states of all keys are read at once.
loadStates(keys)
for i, code in ipairs(codes) do
	if not (full and find(ADDS, code, 1, true)) then
		ops[code](keys[i], arguments[i], rests[i])
	end
end
-- A process that has called Done has survived the key.
if #finished > 0 and lossy then
	call('HDEL', LOSSES, unpack(finished))
end
