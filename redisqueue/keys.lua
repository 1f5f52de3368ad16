-- The second part of batch.lua: what becomes of a key. It keeps new states in local variables, which handout.lua writes back, and
-- writes by itself what concerns one key alone and does no harm if it is done twice.

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
