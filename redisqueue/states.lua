-- The states of keys. What a batch changes is in these variables until handout.lua writes it back. Only what concerns one key alone, and
-- does no harm if it is done twice, is written at once.

local states = {} -- key -> its state, as it was read or set; false if the key is absent
local touched = {} -- set of the keys whose states are written back
local released = {} -- what leaves HELD, unless it is held again
local front, tail = {}, {} -- keys that become queued: before all others (the last one first), and after all others
local due = {} -- set of the keys whose delays have passed
local changed, unmatched = 0, 0 -- how many adds changed something, and how many Dones came too late
local results = {} -- what follows the numbers in the reply

local function isQueued(state) return state and #state == 16 end
local function isProcessing(state) return state and #state == 28 end -- and not dirty
local function isDirty(state) return state and #state == 44 end
local function isHeld(state) return isProcessing(state) or isDirty(state) end
local function isLoud(state) return sub(state, 1, 1) == 'd' end -- not all adds since the hand-out were quiet
local function holderOf(state) return sub(state, 2, 12) end
local function fenceOf(state) return sub(state, 13, 28) end
local function isHeldBy(holder, state) return isHeld(state) and holderOf(state) == holder end

-- makesSense reports whether the queue itself has written a state.
local function makesSense(state)
	return isQueued(state) and find(state, '^%d+$') or isProcessing(state) and find(state, '^p...........%d+$') or
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
			if state and not makesSense(state) then
				setState(key, nowDigits)
				tail[#tail + 1] = key
				repaired = repaired + 1
			end
		end
	end
end

-- readSome returns up to limit keys from page(offset, count), fewer if they are long, and whether these are all.
local function readSome(limit, page)
	local keys, bytes, count = {}, 0, math.min(2, limit)
	while count > 0 do
		local more = page(#keys, count)
		for _, key in ipairs(more) do
			keys[#keys + 1] = key
			bytes = bytes + #key
		end
		if #more < count then
			return keys, true
		end
		-- As many as are likely to fit, but no jump: the first ones may be short by chance.
		count = math.min(limit - #keys, 3 * #keys, math.floor((MAX_BYTES - bytes) * #keys / (bytes + 1)))
	end
	return keys, false
end

-- setting returns one of the replica's settings, see Config.settings.
local function setting(name) return tonumber(string.match(SETTINGS, ' ' .. name .. '=(%S+)')) end
