-- These variables collect what the batch changes in STATES, HELD, LINE and DELAYS (due keys). handout.lua
-- writes them. All else is written at once.

local states = {} -- key -> its state, as it was read or set; false if the key is absent
local touched = {} -- set of the keys whose states are written back: this batch has set or removed them
local released = {} -- what leaves HELD, unless it is held again
local releasedNotes = {} -- fields of NOTES: those of the hand-outs that are over
local newlyQueued = {} -- keys that become queued
local putBack = {} -- set of those of them that come before all others: they were handed out, and not finished
local due = {} -- set of the keys whose delays have passed
local soonest = math.huge -- the earliest end of the delays that the batch has set
local changed = 0 -- how often an add queued a key, or was its first since the hand-out
local unmatched = 0 -- how many Dones came too late
local results = {} -- what follows the numbers in the reply

local function setState(key, state)
	states[key] = state
	touched[key] = true
end

-- callAll calls a command with all values of a list, a thousand at a time: Lua cannot unpack more than about
-- 8000.
local function callAll(command, key, list)
	for first = 1, #list, 1000 do
		call(command, key, unpack(list, first, math.min(first + 999, #list)))
	end
end

-- loadStates reads the states of keys.
local function loadStates(keys)
	local missing = {}
	for _, key in ipairs(keys) do
		if states[key] == nil then
			states[key] = false -- absent, until it is read
			missing[#missing + 1] = key
		end
	end
	for first = 1, #missing, 1000 do
		local found = call('HMGET', STATES, unpack(missing, first, math.min(first + 999, #missing)))
		for i, state in ipairs(found) do
			states[missing[first + i - 1]] = state
		end
	end
end
