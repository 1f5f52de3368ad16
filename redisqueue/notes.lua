-- Why and with which priority keys are added.

local hasNotes = call('HLEN', NOTES) > 0 -- false: no key has any

-- nextPriorities has the priorities of next hand-outs that this batch has set, or knows to be 0.
-- writePriorities must write those in touchedPriorities before another function reads their fields.
local nextPriorities, touchedPriorities = {}, {} -- key -> priority; set of keys

-- The field of a priority is NEXT_PRIORITY, HELD_PRIORITY or WAITING_PRIORITY.
local function priorityOf(field, key)
	local known = field == NEXT_PRIORITY and nextPriorities[key]
	return known or hasNotes and tonumber(call('HGET', NOTES, field .. key) or 0) or 0
end
local function setPriority(field, key, priority)
	hasNotes = hasNotes or priority ~= 0
	if field == NEXT_PRIORITY then
		nextPriorities[key], touchedPriorities[key] = priority, hasNotes or nil
	elseif priority ~= 0 then
		call('HSET', NOTES, field .. key, whole(priority))
	elseif hasNotes then
		call('HDEL', NOTES, field .. key)
	end
end

-- writePriorities writes the next priorities that setPriority has kept.
local function writePriorities()
	local present, absent = {}, {}
	for key in pairs(touchedPriorities) do
		local priority = nextPriorities[key]
		if priority ~= 0 then
			present[#present + 1], present[#present + 2] = NEXT_PRIORITY .. key, whole(priority)
		else
			absent[#absent + 1] = NEXT_PRIORITY .. key
		end
	end
	callAll('HSET', NOTES, present)
	callAll('HDEL', NOTES, absent)
	touchedPriorities = {}
end

-- A place in the line is a time of the queue's clock, less what the priority puts the key ahead. So no key
-- starves. Keys that were put back are before all others, in the order of their hand-outs: 2^53 earlier.
-- Scores keep whole numbers exactly up to 2^53 on both sides of 0.
local function isPutBack(place) return place < -2 ^ 52 end

-- ahead returns how much earlier than a key without a priority one is queued: PriorityStep for each step, but
-- at most 160 years for a million. From 80 years on, where steps would not fit between the places of other
-- keys, a step is shorter, so that a higher priority stays ahead of a lower one.
local function ahead(priority)
	local steps, longest = math.abs(priority), 80 * 31536e9
	local time = math.floor(math.min(steps * setting('step'), longest + steps * longest / 1e6))
	return priority < 0 and -time or time
end

-- placeOf returns the place of a key that becomes queued now, as text.
local function placeOf(key)
	if putBack[key] then return whole(states[key] - 2 ^ 53) end -- Its state is the fence of its hand-out.
	fence = fence + 1
	local priority = priorityOf(NEXT_PRIORITY, key)
	return priority == 0 and digits(fence) or whole(fence - ahead(priority))
end

-- setNextPriority sets the priority of a key's next hand-out. If an earlier add has asked for that hand-out,
-- the higher priority counts.
local function setNextPriority(key, priority, hasEarlierAdd)
	if not hasEarlierAdd then
		if priority == 0 and nextPriorities[key] == nil then
			nextPriorities[key] = 0 -- It has no field: a hand-out or forgetNextNotes has deleted it.
		else
			setPriority(NEXT_PRIORITY, key, priority)
		end
		return
	end
	local earlier = priorityOf(NEXT_PRIORITY, key)
	if priority <= earlier then return end
	setPriority(NEXT_PRIORITY, key, priority)
	local place = tonumber(call('ZSCORE', LINE, key) or -FOREVER)
	if not isPutBack(place) then -- Otherwise it was put back, or gets its place when it enters the line.
		writePriorities() -- before the place, which an interrupted batch would otherwise change twice
		call('ZADD', LINE, whole(place + ahead(earlier) - ahead(priority)), key)
	end
end

-- addCauses merges causes into those of a key's next hand-out, as workqueue.Causes.Plus does: the last eight,
-- and the number of others.
--
--   causes   <others> ' ' <time of the first> ' ' and, for each of the last eight, <its length> ' ' <cause>
--   cause    <time, 16 digits> <q (quiet) or l (loud)> <what it is>
local addCauses
do
	-- causesOf is an iterator over the causes of a list.
	local function causesOf(list)
		return function()
			local length, rest = string.match(list, '^(%d+) (.*)$')
			if not length then return end
			list = sub(rest, length + 1)
			return sub(rest, 1, length)
		end
	end

	local WHAT = 18 -- where <what it is> begins in a cause
	function addCauses(key, added)
		local others, first, last = 0, nil, {}
		for _, text in ipairs({ call('HGET', NOTES, NEXT_CAUSES .. key) or '', added }) do
			-- They are nil if another program has written the text.
			local itsOthers, itsFirst, list = string.match(text, '^(%d+) (%d+) (.*)$')
			others = others + (itsOthers or 0)
			first = first or itsFirst
			for cause in causesOf(list or '') do
				for i, known in ipairs(last) do
					if sub(known, WHAT) == sub(cause, WHAT) then
						table.remove(last, i)
						break
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
		local causes = whole(others) .. ' ' .. (first or nowDigits) .. ' ' .. table.concat(last)
		call('HSET', NOTES, NEXT_CAUSES .. key, causes)
		hasNotes = true
	end
end

-- keepNotes copies the notes of a hand-out that was not finished back from the HELD_ to the NEXT_ fields, and
-- merges what is there into them.
local function keepNotes(key, state)
	local causes = hasNotes and call('HGET', NOTES, HELD_CAUSES .. key)
	if causes then
		local later = call('HGET', NOTES, NEXT_CAUSES .. key)
		call('HSET', NOTES, NEXT_CAUSES .. key, causes)
		if later then addCauses(key, later) end
	end
	local priority = priorityOf(HELD_PRIORITY, key)
	if priority ~= 0 or isDirty(state) then -- 0 also if an interrupted batch has done this.
		setNextPriority(key, priority, isDirty(state))
	end
end

-- forgetNextNotes forgets the notes of a hand-out that will not come.
local function forgetNextNotes(key)
	call('HDEL', NOTES, NEXT_CAUSES .. key)
	setPriority(NEXT_PRIORITY, key, 0)
end
