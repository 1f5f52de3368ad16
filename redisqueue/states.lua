-- The states of keys. What a batch changes is in these variables until handout.lua writes it back. Other files write at once what does no
-- harm if an interrupted batch does it twice.

local states = {} -- key -> its state, as it was read or set; false if the key is absent
local touched = {} -- set of the keys whose states are written back
local released = {} -- what leaves HELD, unless it is held again
local newlyQueued = {} -- keys that become queued
local putBack = {} -- set of those of them that come before all others: they were handed out, and not finished
local due = {} -- set of the keys whose delays have passed
local changed, unmatched = 0, 0 -- how many adds changed something, and how many Dones came too late
local results = {} -- what follows the numbers in the reply

-- makesSense reports whether the queue itself has written a state.
local function makesSense(state)
	return isQueued(state) and find(state, '^%d+$') or isClean(state) and find(state, '^p...........%d+$') or
		isDirty(state) and find(state, '^[de]...........%d+$')
end

local function setState(key, state)
	states[key] = state
	touched[key] = true
end

-- callAll calls a command with all values of a list, a thousand at a time: Lua cannot unpack more than about 8000.
local function callAll(command, key, list)
	for first = 1, #list, 1000 do
		call(command, key, unpack(list, first, math.min(first + 999, #list)))
	end
end

-- loadStates reads the states of keys. One that another program has written counts as absent: the key is queued when it is found.
local function loadStates(keys)
	local missing = {}
	for _, key in ipairs(keys) do
		if states[key] == nil then
			states[key], missing[#missing + 1] = false, key
		end
	end
	for first = 1, #missing, 1000 do
		for i, state in ipairs(call('HMGET', STATES, unpack(missing, first, math.min(first + 999, #missing)))) do
			states[missing[first + i - 1]] = state and makesSense(state) and state
		end
	end
end

-- setting returns one of the replica's settings, see Config.settings.
local function setting(name) return tonumber(string.match(SETTINGS, ' ' .. name .. '=(%S+)')) end
