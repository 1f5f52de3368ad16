-- What becomes of a key: it is added, now or later, and it is released when its holder has finished, or puts
-- it back. At the end: the keys of a session, and what wakes it.

local function queue(key, since)
	setState(key, since)
	newlyQueued[#newlyQueued + 1] = key
end

-- setMark sets the state of a held key: a letter, and what follows it. An answered key stays so.
local function setMark(key, letter, rest)
	setState(key, (isAnswered(states[key]) and string.upper(letter) or letter) .. rest)
end

-- A retry is the end of the last failure's delay, which RETRIES has. If the key fails again or is given up, its
-- retry is taken back, but what others have added stays. So it must be known whether the retry alone has added
-- the key. It has, if the time in RETRIES is also
--
--   in DELAYS, while the key waits for its retry
--   <added>, when the retry has come due while the key was held
--
-- Any other add makes the times differ, if need be by a microsecond.

local function retryOf(key)
	local retry = call('ZSCORE', RETRIES, key)
	return retry and digits(retry)
end

local function waitsOnlyForRetry(key, retry)
	local due = retry and call('ZSCORE', DELAYS, key)
	return due and digits(due) == retry
end

local function isAddedByRetryAlone(state, retry)
	return isDirty(state) and not isLoud(state) and addedOf(state) == retry
end

-- add queues a key or, if it is held, notes that it was added again. priority nil means 0. addedAt is the
-- <added> of a held key, now if nil.
local function add(key, isQuiet, priority, addedAt)
	local state = states[key]
	local hasEarlierAdd = false -- for the same hand-out
	if not state then
		queue(key, nowDigits)
		changed = changed + 1
	elseif isClean(state) then
		setMark(key, isQuiet and 'e' or 'd', sub(state, 2) .. (addedAt or nowDigits))
		dirty = dirty + 1
		changed = changed + 1
	else
		hasEarlierAdd = true
		local isQuietSoFar = isDirty(state) and not isLoud(state)
		if isQuietSoFar and not isQuiet then
			setMark(key, 'd', sub(state, 2))
		elseif isQuietSoFar and isAddedByRetryAlone(state, retryOf(key)) then -- Now something else has, too.
			setMark(key, 'e', sub(state, 2, 28) .. digits(addedOf(state) + 1))
		end
	end
	if priority or hasNotes then
		setNextPriority(key, priority or 0, hasEarlierAdd)
	end
end

-- addAfter adds a key after a delay in microseconds. Of several delays the earliest end counts, and the
-- highest priority.
local function addAfter(key, delay, priority)
	delay, priority = tonumber(delay), priority or 0
	if delay <= 0 then return add(key, false, priority) end
	soonest = math.min(soonest, now + delay - 1) -- 1: what may be subtracted below
	local waitsAlready = not due[key] and call('ZSCORE', DELAYS, key) -- A delay that has passed is replaced.
	if waitsAlready then
		priority = math.max(priority, priorityOf(WAITING_PRIORITY, key))
	end
	setPriority(WAITING_PRIORITY, key, priority)
	call('ZADD', DELAYS, waitsAlready and 'LT' or 'GT', digits(now + delay), key)
	due[key] = nil
	local retry = waitsAlready and retryOf(key)
	if waitsOnlyForRetry(key, retry) then -- Now it waits for both.
		call('ZADD', DELAYS, digits(retry - 1), key)
	end
end

-- addDue adds a key whose delay has passed.
local function addDue(key)
	local retry = isHeld(states[key]) and retryOf(key)
	local isRetry = waitsOnlyForRetry(key, retry)
	add(key, isRetry, priorityOf(WAITING_PRIORITY, key), isRetry and retry)
	due[key] = true
end

-- takeBackRetry takes back the retry of a key, whether it is still waiting or came due while the key was held.
-- Adds by others stay. It returns the priority of what it took back, or nil.
local function takeBackRetry(key)
	local priority
	local state, retry = states[key], retryOf(key)
	if waitsOnlyForRetry(key, retry) then
		priority = priorityOf(WAITING_PRIORITY, key)
		call('ZREM', DELAYS, key)
		setPriority(WAITING_PRIORITY, key, 0)
	end
	if isAddedByRetryAlone(state, retry) then
		setMark(key, 'p', sub(state, 2, 28))
		priority = math.max(priority or -FOREVER, priorityOf(NEXT_PRIORITY, key))
		setPriority(NEXT_PRIORITY, key, 0)
		dirty = dirty - 1
	end
	return priority
end

-- release ends the hand-out of a key. A key that was added meanwhile is queued again if isFinished.
-- hasNoNotes: the hand-out has none to be deleted.
local function release(holder, key, state, isFinished, hasNoNotes)
	released[#released + 1] = holder .. key
	if hasNotes and not hasNoNotes then
		releasedNotes[#releasedNotes + 1], releasedNotes[#releasedNotes + 2] = HELD_CAUSES .. key, HELD_PRIORITY .. key
	end
	setState(key, false)
	if isDirty(state) then
		dirty = dirty - 1
		if isFinished then queue(key, addedOf(state)) end
	end
end

-- takeBack queues a key that was not finished, before all others. It counts as queued since it was handed
-- out.
local function takeBack(holder, key, state)
	keepNotes(key, state)
	release(holder, key, state)
	queue(key, fenceOf(state))
	putBack[key] = true
end

-- putOff is takeBack for a key that first waits. It keeps its priority while it does.
local function putOff(holder, key, state, delay)
	keepNotes(key, state)
	release(holder, key, state)
	addAfter(key, delay, priorityOf(NEXT_PRIORITY, key))
	setPriority(NEXT_PRIORITY, key, 0)
end

-- behind returns what is in HELD behind all keys of a session.
local function behind(holder) return sub(holder, 1, -2) .. string.char(byte(holder, -1) + 1) end

-- keysHeldBy returns a function that reads the keys of a session from HELD, for readSome.
local function keysHeldBy(holder)
	return function(from, n)
		local members = call('ZRANGEBYLEX', HELD, '[' .. holder, '(' .. behind(holder), 'LIMIT', from, n)
		for i, member in ipairs(members) do
			members[i] = sub(member, #holder + 1)
		end
		return members
	end
end

-- wake ends a session's blocking read. That session's list is not in KEYS, so a cluster that moves it may
-- refuse LLEN; then the session comes within its poll interval.
local function wake(sleeper)
	local list = sub(WAKE, 1, -1 - #session) .. sleeper
	if redis.pcall('LLEN', list) == 0 then
		call('RPUSH', list, 1)
		call('PEXPIRE', list, 60000)
	end
end
