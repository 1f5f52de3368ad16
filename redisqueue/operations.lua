-- The second part of batch.lua: the operations of the batch. They keep new states in local variables, which handout.lua writes.
-- They write by themselves what concerns one key alone and does no harm if it is done twice.

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

local states = {} -- key -> its state, as it was read or set; false if the key is absent
local touched = {} -- set of the keys whose states are written back
local held = {} -- what enters HELD, as arguments of ZADD
local released = {} -- what leaves HELD, unless it is held again
local front, tail = {}, {} -- keys that this batch queues: before all others (in reverse order), and after all others
local due = {} -- set of the keys whose delays have passed
local changed, unmatched, gaveUp, bucketChanged, results = 0, 0, false, false, {}
local noted = call('HLEN', NOTES) > 0 -- false: no key has causes or a priority
local troubled = call('HLEN', TROUBLES) > 0

-- each calls a command with all values of a list, a thousand at a time: Lua cannot unpack more than about 8000.
local function each(command, key, list)
	for first = 1, #list, 1000 do
		call(command, key, unpack(list, first, math.min(first + 999, #list)))
	end
end

-- readSome returns up to limit keys from page(offset, count), fewer if they are long, and whether these are all.
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
		-- As many as are likely to fit, but no jump: the first ones may be short by chance.
		count = math.min(limit - #list, 3 * #list, math.floor((BYTES - bytes) * #list / (bytes + 1)))
	end
	return list, false
end

local function set(key, state)
	states[key] = state
	touched[key] = true
end

local function isQueued(state) return state and #state == 16 end
local function isProcessing(state) return state and #state == 28 end -- and not dirty
local function isDirty(state) return state and #state == 44 end
local function isHeld(state) return isProcessing(state) or isDirty(state) end
local function isLoud(state) return byte(state) == 100 end -- d: not all adds since the hand-out were quiet.
local function holderOf(state) return sub(state, 2, 12) end
local function fenceOf(state) return sub(state, 13, 28) end
local function isHeldBy(holder, state) return isHeld(state) and holderOf(state) == holder end
local function isState(text)
	return (isQueued(text) or isProcessing(text) and byte(text) == 112 or isDirty(text) and find(text, '^[de]')) and
		not find(text, '%D', isQueued(text) and 1 or 13)
end

-- loadStates reads the states of keys. It queues a key whose state makes no sense: another program has written that.
local function loadStates(keys)
	local missing = {}
	for _, key in ipairs(keys) do
		if states[key] == nil then
			states[key], missing[#missing + 1] = false, key
		end
	end
	for first = 1, #missing, 1000 do
		for i, state in ipairs(call('HMGET', STATES, unpack(missing, first, math.min(first + 999, #missing)))) do
			local key = missing[first + i - 1]
			states[key] = state
			if state and not isState(state) then
				set(key, since)
				tail[#tail + 1] = key
				repaired = repaired + 1
			end
		end
	end
end

-- setting returns one of the replica's settings, see Config.settings.
local function setting(name) return tonumber(string.match(SETTINGS, ' ' .. name .. '=(%S+)')) end

-- priority returns a priority of a key: p, q or w, see NOTES.
local function priority(which, key) return noted and tonumber(call('HGET', NOTES, which .. key) or 0) or 0 end
local function setPriority(which, key, to)
	if to ~= 0 then
		call('HSET', NOTES, which .. key, whole(to))
		noted = true
	elseif noted then
		call('HDEL', NOTES, which .. key)
	end
end

-- placeOf returns the place of a key that becomes queued now: in the order of time, but a key of priority 1 is before all that were
-- queued up to a step before it, so that no key starves. Places are unique and below 2^53, so that a sorted set keeps them exactly.
local function placeOf(key)
	fence = fence + 1
	local rank = priority('p', key)
	return rank == 0 and fence or math.max(-2 ^ 53, math.min(fence - rank * setting('step'), 2 ^ 53))
end

-- raise gives the next hand-out of a key a priority. If other adds ask for that hand-out, the highest priority of all counts.
local function raise(key, to, isFirst)
	local before = not isFirst and priority('p', key)
	if before and to <= before or not before and to == 0 then
		return
	end
	setPriority('p', key, to)
	local place = before and call('ZSCORE', LINE, key)
	if place then -- Otherwise its place is found when it enters the line.
		call('ZADD', LINE, whole(place - (to - before) * setting('step')), key)
	end
end

local function add(key, quiet, to)
	local state, isFirst = states[key], true
	if not state then
		set(key, since)
		tail[#tail + 1] = key
		changed = changed + 1
	elseif isProcessing(state) then
		set(key, (quiet and 'e' or 'd') .. sub(state, 2) .. since)
		dirty = dirty + 1
		changed = changed + 1
	else
		isFirst = false
		if not quiet and isDirty(state) and not isLoud(state) then
			set(key, 'd' .. sub(state, 2))
		end
	end
	if to or noted then
		raise(key, to or 0, isFirst)
	end
end

local function addLater(key, delay, to)
	delay = delay + 0
	if delay <= 0 then
		add(key, false, to)
		return
	end
	local waits = noted and call('HGET', NOTES, 'w' .. key)
	if to and to ~= 0 and not (waits and waits + 0 >= to) then
		setPriority('w', key, to)
	end
	if due[key] then
		due[key] = nil
		call('ZREM', DELAYS, key)
	end
	call('ZADD', DELAYS, 'LT', digits(now + delay), key)
end

-- release ends the processing of a key, and returns whether the key was added meanwhile. Such a key is queued again if isFinished.
local function release(holder, key, state, isFinished)
	released[#released + 1] = holder .. key
	if noted then
		call('HDEL', NOTES, 'h' .. key, 'q' .. key)
	end
	local wasDirty = isDirty(state)
	dirty = dirty - (wasDirty and 1 or 0)
	set(key, wasDirty and isFinished and sub(state, 29) or false) -- Not nil: that would mean that it was not read.
	if wasDirty and isFinished then
		tail[#tail + 1] = key
	end
	return wasDirty
end

local function dropGivenUp(key)
	local found = call('ZREM', GIVEN, key) > 0
	if found then
		call('HDEL', TROUBLES, 'r' .. key, 'l' .. key)
	end
	return found
end
local function giveUp(key, attemptsAndReason)
	call('ZADD', GIVEN, since, key)
	call('HSET', TROUBLES, 'r' .. key, attemptsAndReason)
	gaveUp, troubled = true, true
end

local function forgetFailures(key)
	if call('ZREM', FAILURES, key) > 0 then
		call('ZREM', RETRIES, key)
	end
end
local function forget(key)
	forgetFailures(key)
	dropGivenUp(key)
end

-- failuresOf returns how many failures of a key are counted, and what is left of the last one's delay. A failure before the end of
-- that delay is the same one: it is not counted, and the key comes at the end of the delay.
-- The count expires, but not while the key is held.
local function failuresOf(key)
	local retry = call('ZSCORE', RETRIES, key)
	if not retry then
		return 0, 0
	end
	if retry + setting('forget') <= now and not isHeld(states[key]) then
		forgetFailures(key)
		return 0, 0
	end
	-- Another program may have written numbers that no reply can have.
	return math.min(math.max(0, (call('ZSCORE', FAILURES, key) or 0) + 0), 2 ^ 31), math.min(math.max(0, retry - now), 1e15)
end

-- wake ends a session's blocking read. That session's list is not in KEYS, so a cluster that moves it may refuse the read; then the
-- session comes within its poll interval.
local function wake(sleeper)
	local list = sub(WAKE, 1, -1 - #session) .. sleeper
	if redis.pcall('LLEN', list) == 0 then
		call('RPUSH', list, 1)
		call('PEXPIRE', list, 60000)
	end
end

-- addCauses merges causes into those that a key has, as workqueue.Causes.Plus does. Causes are a string: the number of others and the
-- time of the first and, for each of the last eight, its length, time, q (quiet) or l (loud), and what it is.
local function addCauses(key, later)
	local others, first, last = 0, nil, {}
	for _, text in ipairs({ call('HGET', NOTES, 'n' .. key) or '', later }) do
		local more, began, at = string.match(text, '^(%d+) (%d+) ()') -- nil if another program has written it
		others, first = others + (more or 0), first or began
		while at do
			local length, from = string.match(text, '^(%d+) ()', at)
			at = length and from + length
			local cause = length and sub(text, from, at - 1)
			for i = #last, 1, -1 do
				if cause and sub(last[i], 18) == sub(cause, 18) then
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
	for i, cause in ipairs(last) do
		last[i] = #cause .. ' ' .. cause
	end
	call('HSET', NOTES, 'n' .. key, whole(others) .. ' ' .. (first or since) .. ' ' .. table.concat(last))
	noted = true
end

-- keepNotes keeps the causes and the priority of a hand-out that was not finished for the next one.
local function keepNotes(key, state)
	local held = noted and call('HGET', NOTES, 'h' .. key)
	if held then
		local later = call('HGET', NOTES, 'n' .. key)
		call('HSET', NOTES, 'n' .. key, held)
		if later then
			addCauses(key, later)
		end
	end
	local before = priority('q', key)
	if before ~= 0 then
		raise(key, before, not isDirty(state))
	end
end

-- forgetNotes forgets why a key was added that will not come again, and with which priority.
local function forgetNotes(key)
	if noted then
		call('HDEL', NOTES, 'n' .. key, 'p' .. key, 'w' .. key)
	end
end

-- putBack queues a key that was not finished, before all others. It counts as queued since it was handed out.
local function putBack(holder, key, state)
	keepNotes(key, state)
	release(holder, key, state)
	set(key, fenceOf(state))
	front[#front + 1] = key
end

-- backoff returns how long a key waits after a further failure: the delay of workqueue.BackoffConfig or, if that is longer, the wait
-- for a token. The replica sends random, from [0, 1): the server's own random numbers are the same in each script.
local function backoff(failures, random)
	local base, longest, jitter, limit = setting('base'), setting('max'), setting('jitter'), setting('limit')
	local delay = math.min(base * setting('factor') ^ failures, longest)
	if jitter == 1 then
		delay = delay * random
	elseif jitter == 2 then
		delay = delay / 2 + delay / 2 * random
	end
	if limit > 0 then
		local burst = setting('burst')
		meta.tokens = math.min(burst, meta.tokens + math.max(0, now - meta.filled) * limit / 1000000) - 1
		meta.filled, bucketChanged = now, true
		delay = math.max(delay, -meta.tokens / limit * 1000000)
	end
	return math.ceil(delay)
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
	local page, from = heldBy(session), 0
	repeat -- A session holds as many keys as it has workers, and parts of batches.
		local some = page(from, 256)
		loadStates(some)
		for _, key in ipairs(some) do
			local state = states[key]
			if not isHeldBy(session, state) then
				released[#released + 1] = session .. key
				repaired = repaired + 1
			elseif fenceOf(state) > knownFence then
				putBack(session, key, state)
				repaired = repaired + 1
			end
		end
		from = from + #some
	until #some == 0
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
	if find(flags, 't', 1, true) or not same and maxRetries ~= 0 and attempt > maxRetries then
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
