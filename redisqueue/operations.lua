-- The third part of batch.lua: the operations of the batch.

-- An operation is a letter and a key. A capital letter has an argument of 16 characters in front of the key: the delay of ADD_AFTER in
-- microseconds; the fence of a held key; for ADD_WHY, ADD_PRIORITY and FAIL the key's length, because more follows the key.
-- protocol.go has the same list.
local ADD, ADD_WHY, ADD_AFTER, ADD_PRIORITY, FAIL = 'a', 'C', 'L', 'P', 'F'
local FORGET, NUM_REQUEUES = 'f', 'n'
local DONE, HAND_BACK, SET_ASIDE, ADDED_AGAIN = 'D', 'B', 'U', 'W'
local DISCARD, RETRY_GIVEN_UP, FORGET_GIVEN_UP, REQUEUE_SET_ASIDE, DROP_SET_ASIDE = 'x', 't', 'y', 's', 'v'
local PAUSE, IDENTIFY, QUIT = 'p', 'i', 'q'
local ADDS = 'aCLPF' -- A full server executes none of these; the replica sends them again.

local codes, keys, arguments, rests, opCount = {}, {}, {}, {}, #ARGV + 1 - FIRST_OP
for i = 1, opCount do
	local op = ARGV[FIRST_OP - 1 + i]
	local code, key = sub(op, 1, 1), sub(op, 2)
	if byte(code) < 97 then
		arguments[i], key = sub(key, 1, 16), sub(key, 17)
	end
	if code == ADD_WHY or code == ADD_PRIORITY or code == FAIL then
		rests[i], key = sub(key, arguments[i] + 1), sub(key, 1, arguments[i])
	end
	codes[i], keys[i] = code, key
end

-- Keys whose delays have passed are added before what the batch adds.
local chores = CHORES
if call('ZCARD', DELAYS) > 1 then
	local keys = readSome(DUE, function(from, n) return call('ZRANGEBYSCORE', DELAYS, '-inf', since, 'LIMIT', from, n) end)
	chores = chores - #keys
	loadStates(keys)
	for _, key in ipairs(keys) do
		add(key, false, priority('w', key))
		setPriority('w', key, 0)
		due[key] = true
	end
end

-- heldBy returns a function that reads a session's keys from HELD.
local function heldBy(holder)
	local past = sub(holder, 1, -2) .. string.char(byte(holder, -1) + 1)
	return function(from, n)
		local keys = call('ZRANGEBYLEX', HELD, '[' .. holder, '(' .. past, 'LIMIT', from, n)
		for i, member in ipairs(keys) do
			keys[i] = sub(member, #holder + 1)
		end
		return keys
	end
end

-- An interrupted attempt may have handed out keys that the replica does not know of: put them back.
if knownFence then
	local all = heldBy(session)(0, -1) -- A session holds as many keys as it has workers, and parts of batches.
	loadStates(all)
	for _, key in ipairs(all) do
		local state = states[key]
		if not isHeldBy(session, state) then
			released[#released + 1] = session .. key
			repaired = repaired + 1
		elseif fenceOf(state) > knownFence then
			putBack(session, key, state)
			repaired = repaired + 1
		end
	end
end

-- answer adds an answer to the reply: a number, which is 1 if the key was there; what is left of a delay; and what FAIL has found out: s
-- if it was the same failure, g if the key was given up.
local function answer(n, left, what) results[#results + 1] = 'n' .. whole(n) .. ' ' .. whole(left or 0) .. ' ' .. (what or '') .. ' ' end

-- fail counts a failure of a key, and lets the key come again or gives it up. A failure before the end of the last one's delay, or which
-- the replica knows to be the same, is not counted. rest has a random number, see backoff; how long the key waits at least; after how many
-- retries it is given up, 0 for never; t if that is now; s if it is the same; the delay that the replica's limiter has given or -; and the
-- error.
local function fail(key, rest)
	local random, atLeast, maxRetries, flags, delay, reason = string.match(rest, '^(%S+) (%d+) (%-?%d+) (%S+) (%S+) (.*)$')
	local failures, left = failuresOf(key)
	if knownFence and call('ZSCORE', GIVEN, key) then -- An interrupted attempt has given it up.
		answer(math.max(failures, 1), 0, 'g')
		return
	end
	local same = left > 0 or find(flags, 's', 1, true)
	local attempt = same and math.max(failures, 1) or failures + 1
	maxRetries = tonumber(maxRetries)
	if find(flags, 't', 1, true) or maxRetries ~= 0 and attempt > maxRetries then
		giveUp(key, whole(attempt) .. ' ' .. reason)
		forgetFailures(key)
		answer(attempt, 0, same and 'sg' or 'g')
		return
	end
	if not same then
		left = tonumber(delay) or backoff(failures, random)
	end
	left = math.max(left, atLeast)
	call('ZADD', FAILURES, attempt, key)
	call('ZADD', RETRIES, digits(now + left), key)
	addLater(key, left, isHeld(states[key]) and priority('q', key) or nil)
	answer(attempt, left, same and 's')
end

-- Branches, not a table of functions: each batch runs the whole script, and defining sixteen functions is 11 % of a batch of one key.
loadStates(keys)
for i, code in ipairs(codes) do
	local key = keys[i]
	if full and find(ADDS, code, 1, true) then
		-- nothing
	elseif code == ADD then
		add(key)
	elseif code == DONE or code == HAND_BACK or code == SET_ASIDE or code == ADDED_AGAIN then
		local state = states[key]
		local holds = state and fenceOf(state) == arguments[i] -- under that fence; no two hand-outs have the same
		if code == DONE then
			if troubled then -- A process that has called Done has survived the key.
				call('HDEL', TROUBLES, 'l' .. key)
			end
			if holds then
				release(session, key, state, true)
			else
				unmatched = unmatched + 1
				released[#released + 1] = session .. key -- The server may have lost the state alone.
			end
		elseif code == ADDED_AGAIN then
			answer(holds and isDirty(state) and isLoud(state) and 1 or 0)
		elseif holds and code == HAND_BACK then
			putBack(session, key, state)
		elseif holds then -- SET_ASIDE: the replica cannot decode the key.
			forgetNotes(key)
			release(session, key, state)
			call('SADD', ASIDE, key)
		end
	elseif code == ADD_WHY then -- The rest is q, for a quiet add, or l, and the causes.
		add(key, byte(rests[i]) == 113)
		if #rests[i] > 1 then
			addCauses(key, sub(rests[i], 2))
		end
	elseif code == ADD_AFTER then
		addLater(key, arguments[i])
	elseif code == ADD_PRIORITY then -- The rest is the priority and the delay.
		local to, delay = string.match(rests[i], '^(%-?%d+) (%d+)$')
		addLater(key, delay, tonumber(to))
	elseif code == FAIL then
		fail(key, rests[i])
	elseif code == FORGET then
		forget(key)
	elseif code == NUM_REQUEUES then
		answer(failuresOf(key))
	elseif code == DISCARD then -- The worker that holds the key keeps it.
		local state, isWaiting = states[key], call('ZREM', DELAYS, key) > 0
		due[key] = nil
		if isQueued(state) then
			set(key, false)
			call('ZREM', LINE, key)
		elseif isDirty(state) then
			set(key, 'p' .. sub(state, 2, 28))
			dirty = dirty - 1
		end
		forgetNotes(key)
		local hasLosses, hasFailures = call('HDEL', TROUBLES, 'l' .. key) > 0, call('ZSCORE', FAILURES, key)
		forget(key)
		answer((state or isWaiting or hasLosses or hasFailures) and 1 or 0)
	elseif code == RETRY_GIVEN_UP or code == FORGET_GIVEN_UP then
		local found = dropGivenUp(key)
		if found and code == RETRY_GIVEN_UP then
			forget(key)
			add(key)
		end
		answer(found and 1 or 0)
	elseif code == REQUEUE_SET_ASIDE or code == DROP_SET_ASIDE then
		local found = call('SREM', ASIDE, key)
		if found > 0 and code == REQUEUE_SET_ASIDE then
			add(key)
		end
		answer(found)
	elseif code == PAUSE then -- In place of a key these have: for how long, inf or 0 to resume, and the name of the replica;
		local length, by = string.match(key, '^(%S+) (.*)$')
		local ends = length == '0' and 0 or length == 'inf' and FOREVER or math.max(meta.pausedUntil, now + length)
		if ends ~= meta.pausedUntil then
			meta.pausedUntil = ends
			call('HSET', META, 'pausedUntil', whole(ends), 'pausedBy', since .. by)
		end
	elseif code == IDENTIFY then -- the name of the replica;
		call('HSET', META, 'name:' .. session, key)
	elseif code == QUIT then -- nothing. The session's keys are reclaimed by handout.lua, and its blocking read is woken to end.
		leaseEnds = -1
		call('ZADD', LEASES, leaseEnds, session)
		wake(session)
	end
end
