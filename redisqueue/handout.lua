-- Hands out keys, and writes the clocks and what the batch has changed.

-- The start limit is a token bucket. fullAt is when the bucket is full again: of the startBurst tokens, those
-- that come until then are missing now. Each limit that replicas have, as during a rollout, has a bucket of
-- its own, which is full at first: the old limit says nothing of the tokens of the new one.
local startRate, startBurst = setting('startrate'), setting('startburst')
local bucket = startRate > 0 and 'startFullAt' .. string.match(SETTINGS, '^ startrate=%S+ startburst=%S+')
local fullAt = now
local tokenTime, allowed = 0, math.huge -- how long a token takes; how many hand-outs the limit allows now
if bucket then
	tokenTime = math.min(1000000 / startRate, (FOREVER - now) / startBurst) -- fullAt is at most FOREVER
	fullAt = math.max(now, tonumber(call('HGET', META, bucket) or now) or now)
	if not (fullAt <= now + startBurst * tokenTime + 1) then -- Another program has written it.
		fullAt = now
	end
	allowed = math.max(0, math.floor(startBurst - (fullAt - now) / tokenTime + 1e-6))
end

local isPaused = meta.pausedUntil > now
local most = isPaused and 0 or math.min(want, allowed) -- how many keys the batch may hand out
local handedOut, bytes = 0, 0
local function wantsMore() return handedOut < most and bytes < MAX_BYTES end
local newlyHeld = {} -- what enters HELD, as arguments of ZADD
-- Fields of NOTES that go when the states are written, so that an interrupted batch does not lose them.
local usedNotes = {}
local hasFailures = call('ZCARD', FAILURES) > 1

-- readAbout reads what the first n keys of a list have beside their states, all at once. What no key has stays
-- nil.
local nextNotes -- causes and priority of the next hand-out of each key in turn
local retries, atOnces -- of each key, its value in RETRIES and the field AT_ONCE
local heldNotes = {} -- as arguments of HSET
local function readAbout(keys, n)
	if n == 0 then return end
	local notes, fields = {}, {}
	for i = 1, hasNotes and n or 0 do
		notes[2 * i - 1], notes[2 * i] = NEXT_CAUSES .. keys[i], NEXT_PRIORITY .. keys[i]
	end
	for i = 1, hasTroubles and n or 0 do
		fields[i] = AT_ONCE .. keys[i]
	end
	nextNotes = hasNotes and call('HMGET', NOTES, unpack(notes)) -- at most 512
	atOnces = hasTroubles and call('HMGET', TROUBLES, unpack(fields))
	retries = hasFailures and call('ZMSCORE', RETRIES, unpack(keys, 1, n))
end

-- handOut hands out the key at i of the list that readAbout was given.
local function handOut(key, i)
	local failures, left, causes, priority, failing, atOnce = 0, 0, '', 0, '', '0'
	if retries and retries[i] then
		failures, left = failuresOf(key)
		failing = failures > 0 and call('HGET', TROUBLES, FAILING .. key) or ''
	end
	if atOnces and atOnces[i] then
		atOnce = string.match(atOnces[i], '^%d+$') or '0'
	end
	if nextNotes then
		causes, priority = nextNotes[2 * i - 1], toPriority(nextNotes[2 * i])
		if causes then
			heldNotes[#heldNotes + 1], heldNotes[#heldNotes + 2] = HELD_CAUSES .. key, causes
			usedNotes[#usedNotes + 1] = NEXT_CAUSES .. key
		end
		if priority ~= 0 then
			heldNotes[#heldNotes + 1], heldNotes[#heldNotes + 2] = HELD_PRIORITY .. key, whole(priority)
		end
		if nextNotes[2 * i] then usedNotes[#usedNotes + 1] = NEXT_PRIORITY .. key end
		causes = causes or ''
	end
	fence = fence + 1
	local itsFence = digits(fence)
	local queuedSince = states[key] -- The state of a queued key is when it was added.
	local numbers = ' 0 0 0 0 0 0 ' -- To format them takes long, and most keys have none.
	if retries or atOnces or nextNotes then
		numbers = format(' %.0f %.0f %s %d %d %d ', failures, left, atOnce, priority, #causes, #failing)
	end
	local result = 'k' .. #key .. ' ' .. itsFence .. ' ' .. queuedSince .. numbers .. key .. causes .. failing
	results[#results + 1] = result
	setState(key, 'p' .. session .. itsFence)
	handedOut = handedOut + 1
	bytes = bytes + #result
	newlyHeld[#newlyHeld + 1], newlyHeld[#newlyHeld + 2] = '0', session .. key
end

-- While the line is empty and none was put back, the keys that this batch queues need not enter the line to
-- be handed out, if all are known to have no priority. (That saves up to a fifth of a batch of 64 keys.)
local nextNew = 1 -- of newlyQueued
do
	local isPlain = call('ZCARD', LINE) == 0 and not next(putBack)
	for i = 1, hasNotes and isPlain and #newlyQueued or 0 do
		isPlain = isPlain and nextPriorities[newlyQueued[i]] == 0
	end
	if isPlain then
		local n = math.min(#newlyQueued, most)
		readAbout(newlyQueued, n)
		while wantsMore() and nextNew <= n do
			if isQueued(states[newlyQueued[nextNew]]) then
				handOut(newlyQueued[nextNew], nextNew)
			end
			nextNew = nextNew + 1
		end
	end
end

-- What this batch queues enters the line, after its notes are written.
writePriorities()
do
	local places = {} -- as arguments of ZADD
	for i = nextNew, #newlyQueued do
		local key = newlyQueued[i]
		if isQueued(states[key]) then
			places[#places + 1], places[#places + 2] = placeOf(key), key
		end
	end
	callAll('ZADD', LINE, places)
end

-- The first keys of the line are handed out.
local passed = 0
do
	local head = readSome(most - handedOut, function(from, n)
		return call('ZRANGE', LINE, from, from + n - 1)
	end)
	loadStates(head)
	readAbout(head, #head)
	for i, key in ipairs(head) do
		if not wantsMore() then break end
		passed = passed + 1 -- It leaves the line.
		-- Another program has written the state, or it was lost, or an interrupted batch has not written it.
		if not states[key] then
			setState(key, nowDigits)
			repaired = repaired + 1
		end
		if isQueued(states[key]) then
			handOut(key, i)
		else
			repaired = repaired + 1 -- An interrupted batch has handed it out.
		end
	end
end

callAll('HDEL', NOTES, releasedNotes)
callAll('HSET', NOTES, heldNotes) -- after HDEL: a key that this batch has released may be handed out again

-- Write back. A key has entered the line before it gets the state of a queued key, and leaves the line after
-- it has lost that state. (DISCARD alone removes it before, when no error can come later.)
local present, absent = {}, {}
for key in pairs(touched) do
	local state = states[key]
	if state then
		present[#present + 1], present[#present + 2] = key, state
	else
		absent[#absent + 1] = key
	end
end
callAll('ZREM', HELD, released)
callAll('ZADD', HELD, newlyHeld) -- after ZREM: the session may get a key again that this batch has released
local heldCount = cardOf(HELD)
dirty = heldCount > 0 and math.max(0, dirty) or 0
-- A tool's lease is short, and the lease clock moves at most half a lease a batch.
local clocks = isTool and {} or { 'time', nowDigits, 'leaseTime', whole(leaseClock) }
call('HSET', META, 'fence', whole(fence), 'dirty', dirty, unpack(clocks))
callAll('HSET', STATES, present)
callAll('HDEL', STATES, absent)
if passed > 0 then
	call('ZREMRANGEBYRANK', LINE, 0, passed - 1)
end
callAll('HDEL', NOTES, usedNotes)
for key in pairs(due) do
	call('ZREM', DELAYS, key)
	setPriority(WAITING_PRIORITY, key, 0)
end
fullAt = fullAt + handedOut * tokenTime
if bucket and handedOut > 0 then
	call('HSET', META, bucket, whole(math.min(math.ceil(fullAt), FOREVER)))
end
