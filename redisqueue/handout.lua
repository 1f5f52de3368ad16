-- Hands out keys, and writes the clocks and what the batch has changed.

-- 1. How many keys the batch may hand out.
--
-- The start limit is a token bucket. fullAt is when the bucket is full again: of the startBurst tokens, those
-- that come until then are missing now. Each limit that replicas have, as during a rollout, has a bucket of
-- its own, which is full at first: the old limit says nothing of the tokens of the new one.
local startRate, startBurst = setting('startrate'), setting('startburst')
local bucketField = startRate > 0 and 'startFullAt' .. string.match(SETTINGS, '^ startrate=%S+ startburst=%S+')
local fullAt = now
local tokenTime, tokensLeft = 0, math.huge -- how long a token takes; how many hand-outs the limit allows now
if bucketField then
	tokenTime = math.min(1000000 / startRate, (FOREVER - now) / startBurst) -- fullAt is at most FOREVER
	fullAt = math.max(now, tonumber(call('HGET', META, bucketField) or now))
	tokensLeft = math.max(0, math.floor(startBurst - (fullAt - now) / tokenTime + 1e-6))
end

local isPaused = meta.pausedUntil > now
local maxHandOuts = isPaused and 0 or math.min(want, tokensLeft)
local handedOut, bytes = 0, 0
local function wantsMore() return handedOut < maxHandOuts and bytes < MAX_BYTES end

-- 2. What comes with a key: its failures, interruptions and notes.

local hasFailures = call('ZCARD', FAILURES) > 1

-- readAbout reads what the first n keys of a list have beside their states, at most 256 keys at once. What no
-- key of the shard has stays nil.
local retries, atOnces -- of each key in turn: its value in RETRIES; its field AT_ONCE
local nextNotes -- of each key in turn: its NEXT_CAUSES and its NEXT_PRIORITY
local function readAbout(keys, n)
	if n == 0 then return end
	retries = hasFailures and call('ZMSCORE', RETRIES, unpack(keys, 1, n))
	if hasTroubles then
		local fields = {}
		for i = 1, n do
			fields[i] = AT_ONCE .. keys[i]
		end
		atOnces = call('HMGET', TROUBLES, unpack(fields))
	end
	if hasNotes then
		local fields = {}
		for i = 1, n do
			fields[2 * i - 1], fields[2 * i] = NEXT_CAUSES .. keys[i], NEXT_PRIORITY .. keys[i]
		end
		nextNotes = call('HMGET', NOTES, unpack(fields))
	end
end

-- takeNotes returns the causes and the priority of the key at i. They move from the NEXT_ to the HELD_ fields:
-- heldNotes are set, and usedNotes go when the states are written, so that an interrupted batch does not lose
-- them.
local heldNotes, usedNotes = {}, {}
local function takeNotes(key, i)
	local causes, text = nextNotes[2 * i - 1], nextNotes[2 * i]
	local priority = tonumber(text or 0)
	if causes then
		heldNotes[#heldNotes + 1], heldNotes[#heldNotes + 2] = HELD_CAUSES .. key, causes
		usedNotes[#usedNotes + 1] = NEXT_CAUSES .. key
	end
	if priority ~= 0 then
		heldNotes[#heldNotes + 1], heldNotes[#heldNotes + 2] = HELD_PRIORITY .. key, whole(priority)
	end
	if text then
		usedNotes[#usedNotes + 1] = NEXT_PRIORITY .. key
	end
	return causes or '', priority
end

-- whatComesWith returns what the reply has of the key at i, behind when it was queued.
local function whatComesWith(key, i)
	-- To format the numbers takes long, and most keys have none.
	if not (retries or atOnces or nextNotes) then return ' 0 0 0 0 0 0 ' .. key end
	local failures, left, failing, atOnce, causes, priority = 0, 0, '', 0, '', 0
	if retries and retries[i] then
		failures, left = failuresOf(key)
		failing = failures > 0 and call('HGET', TROUBLES, FAILING .. key) or ''
	end
	if atOnces then
		atOnce = tonumber(atOnces[i]) or 0
	end
	if nextNotes then
		causes, priority = takeNotes(key, i)
	end
	return format(' %.0f %.0f %.0f %d %d %d ', failures, left, atOnce, priority, #causes, #failing) ..
		key .. causes .. failing
end

-- 3. The hand-outs.

-- handOut hands out the key at i of the list that readAbout was given.
local newlyHeld = {} -- what enters HELD, as arguments of ZADD
local function handOut(key, i)
	fence = fence + 1
	local itsFence, addedAt = digits(fence), states[key] -- The state of a queued key is when it was added.
	local result = 'k' .. #key .. ' ' .. itsFence .. ' ' .. addedAt .. whatComesWith(key, i)
	results[#results + 1] = result
	bytes = bytes + #result
	handedOut = handedOut + 1
	setState(key, 'p' .. session .. itsFence)
	newlyHeld[#newlyHeld + 1], newlyHeld[#newlyHeld + 2] = '0', session .. key
end

-- canPassLine reports whether the keys that this batch queues are the next ones in their order, and need not
-- enter the line: it is empty, none was put back, and all are known to have no priority. (That saves up to a
-- fifth of a batch of 64 keys.)
local function canPassLine()
	if call('ZCARD', LINE) > 0 or next(putBack) then return false end
	for i = 1, hasNotes and #newlyQueued or 0 do
		if nextPriorities[newlyQueued[i]] ~= 0 then return false end
	end
	return true
end

-- handOutNew hands out keys that this batch has queued, and returns how many it has looked at.
local function handOutNew()
	local n, looked = math.min(#newlyQueued, maxHandOuts), 0
	readAbout(newlyQueued, n)
	while looked < n and wantsMore() do
		looked = looked + 1
		local key = newlyQueued[looked]
		if isQueued(states[key]) then handOut(key, looked) end
	end
	return looked
end

-- enterLine puts the keys that this batch has queued into the line, from one on.
local function enterLine(first)
	local places = {} -- as arguments of ZADD
	for i = first, #newlyQueued do
		local key = newlyQueued[i]
		if isQueued(states[key]) then
			places[#places + 1], places[#places + 2] = placeOf(key), key
		end
	end
	callAll('ZADD', LINE, places)
end

-- handOutHead hands out the first keys of the line, and returns how many of them leave it.
local function handOutHead()
	local head = readSome(maxHandOuts - handedOut, function(from, n)
		return call('ZRANGE', LINE, from, from + n - 1)
	end)
	loadStates(head)
	readAbout(head, #head)
	for i, key in ipairs(head) do
		if not wantsMore() then return i - 1 end
		-- The state was lost, or an interrupted batch has not written it.
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
	return #head
end

writePriorities() -- before readAbout reads them
local looked = canPassLine() and handOutNew() or 0
enterLine(looked + 1)
local leaving = handOutHead()

-- 4. Write back. A key has entered the line before it gets the state of a queued key, and leaves the line after
-- it has lost that state. (DISCARD alone removes it before, when no error can come later.)

callAll('HDEL', NOTES, releasedNotes)
callAll('HSET', NOTES, heldNotes) -- after HDEL: a key that this batch has released may be handed out again
callAll('ZREM', HELD, released)
callAll('ZADD', HELD, newlyHeld) -- after ZREM, for the same reason
local heldCount = cardOf(HELD)
dirty = heldCount > 0 and math.max(0, dirty) or 0
-- A tool's lease is short, and the lease clock moves at most half a lease a batch.
local clocks = isTool and {} or { 'time', nowDigits, 'leaseTime', whole(leaseClock) }
call('HSET', META, 'fence', whole(fence), 'dirty', dirty, unpack(clocks))
do
	local present, absent = {}, {}
	for key in pairs(touched) do
		local state = states[key]
		if state then
			present[#present + 1], present[#present + 2] = key, state
		else
			absent[#absent + 1] = key
		end
	end
	callAll('HSET', STATES, present)
	callAll('HDEL', STATES, absent)
end
if leaving > 0 then
	call('ZREMRANGEBYRANK', LINE, 0, leaving - 1)
end
callAll('HDEL', NOTES, usedNotes)
for key in pairs(due) do
	call('ZREM', DELAYS, key)
	setPriority(WAITING_PRIORITY, key, 0)
end
fullAt = fullAt + handedOut * tokenTime
if bucketField and handedOut > 0 then
	call('HSET', META, bucketField, whole(math.min(math.ceil(fullAt), FOREVER)))
end
