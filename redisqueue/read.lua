-- Reads a shard for people and tools, and writes nothing: EVAL_RO runs it, also for a user who may not write, and on a read-only
-- replica. KEYS are those of batch.lua but for the last, and what they hold is described there. ARGV has what to read:
--
--   counts                      the numbers of all states
--   key, the key                what is known of one key
--   page, list, from, count     up to count keys of a list, in its order, from a place: 0 at first, then what the last reply has said.
--                               When others take keys away in between, the places of the next ones change.
--   scan, list, cursor, count   about so many keys of a list, in no order. None is missed that is there from the first call, with the
--                               cursor 0, to the last.
--
-- Returns the numbers; or where to go on ('' at the end), how far the queue's clock is ahead of the server's, and a row for each
-- key. It reads a few keys at a time, and fewer if they are long.
local META, STATES, LINE, DELAYS, FAILURES, HELD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[9]
local ASIDE, LOSSES, GIVEN, REASONS, CAUSES, NAMES = KEYS[11], KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local what, list, from, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local call, BYTES = redis.call, 65536

if what == 'counts' then
	local meta = call('HMGET', META, 'again', 'repaired', 'paused', 'offset', 'time')
	local head = call('LINDEX', LINE, 0)
	local time = call('TIME')
	local now = math.max(time[1] * 1000000 + time[2] + (meta[4] or 0), meta[5] or 0)
	return {
		call('HLEN', STATES), call('ZCARD', HELD), meta[1], call('ZCARD', DELAYS), call('ZCARD', FAILURES), call('ZCARD', GIVEN),
		call('SCARD', ASIDE), meta[2], meta[3], head and call('HGET', STATES, head), string.format('%.0f', now),
	}
end

-- The fillers are the first member of HELD and the last of the sorted sets.
local pages = {
	processing = function(at, n)
		local keys = call('ZRANGE', HELD, at + 1, at + n)
		for i, member in ipairs(keys) do
			keys[i] = string.sub(member, 12)
		end
		return keys
	end,
	queued = function(at, n) return call('LRANGE', LINE, at, at + n - 1) end,
	waiting = function(at, n) return call('ZRANGEBYSCORE', DELAYS, '-inf', '(inf', 'LIMIT', at, n) end,
	failing = function(at, n) return call('ZREVRANGE', FAILURES, at + 1, at + n) end,
	givenup = function(at, n) return call('ZREVRANGE', GIVEN, at, at + n - 1) end,
}
local scans = {
	states = { 'HSCAN', STATES }, waiting = { 'ZSCAN', DELAYS }, failing = { 'ZSCAN', FAILURES }, givenup = { 'ZSCAN', GIVEN },
	aside = { 'SSCAN', ASIDE },
}
scans.queued, scans.processing = scans.states, scans.states

local keys, next = {}, ''
if what == 'key' then
	keys = { ARGV[2] }
elseif what == 'scan' then
	local command, set = unpack(scans[list])
	local page = call(command, set, from, 'COUNT', count)
	next = page[1] ~= '0' and page[1] or ''
	for i = 1, #page[2], command == 'SSCAN' and 1 or 2 do -- In the others each key has a value behind it.
		keys[#keys + 1] = page[2][i]
	end
else
	local at, bytes = tonumber(from), 0
	while #keys < count and bytes < BYTES do
		local asked = math.min(8, count - #keys)
		local some = pages[list](at + #keys, asked)
		for _, key in ipairs(some) do
			keys[#keys + 1] = key
			bytes = bytes + #key
		end
		if #some < asked then
			break
		end
	end
	next = #keys > 0 and string.format('%.0f', at + #keys) or ''
end

local result = { next, call('HGET', META, 'offset') }
if #keys > 0 then
	local states, failures, dues = call('HMGET', STATES, unpack(keys)), call('ZMSCORE', FAILURES, unpack(keys)), call('ZMSCORE', DELAYS, unpack(keys))
	local given, reasons, losses = call('ZMSCORE', GIVEN, unpack(keys)), call('HMGET', REASONS, unpack(keys)), call('HMGET', LOSSES, unpack(keys))
	local isHeld = what == 'key' and states[1] and #states[1] > 16
	local causes = what == 'key' and call('HGET', CAUSES, (isHeld and 'h' or 'n') .. ARGV[2])
	for i, key in ipairs(keys) do
		local name = states[i] and #states[i] > 16 and call('HGET', NAMES, string.sub(states[i], 2, 12))
		local isAside = list == 'aside' or what == 'key' and call('SISMEMBER', ASIDE, key) == 1
		result[#result + 1] = {
			key, states[i], failures[i], dues[i], given[i], reasons[i], losses[i], name, isAside and '1' or '0', causes,
		}
	end
end
return result
