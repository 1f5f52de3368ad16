-- Reads keys for the KEYS of batch.lua, each with its state, its failures and when it is due. It writes nothing. ARGV has how
-- many, of which list, and from where: a number or, for those of all states and delays, the cursor of a scan. Returns
-- where to go on (empty at the end), how far the queue's clock is ahead of the server's, and four strings a key; behind a single
-- key, its causes. It reads a few keys at a time, and fewer if they are long.
local META, STATES, LINE, DELAYS, FAILURES, HELD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[9]
local ASIDE, GIVEN, REASONS, CAUSES = KEYS[11], KEYS[15], KEYS[16], KEYS[17]
local count, list, from = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local call = redis.call
local BYTES = 65536

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
local scans = { states = { 'HSCAN', STATES }, delays = { 'ZSCAN', DELAYS }, aside = { 'SSCAN', ASIDE } }

local keys, next = {}, ''
if list == 'key' or list == 'givenupkey' then
	keys = { from }
elseif scans[list] then
	local page = call(scans[list][1], scans[list][2], from, 'COUNT', count)
	next = page[1] ~= '0' and page[1] or ''
	local step = list == 'aside' and 1 or 2 -- The others have a value behind each key.
	for i = 1, #page[2], step do
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

local result = { next, call('HGET', META, 'o') or '0' }
if #keys == 0 then
	return result
end
local states, failures, dues = call('HMGET', STATES, unpack(keys)), nil, nil
if list == 'givenup' or list == 'givenupkey' then
	failures, dues = call('HMGET', REASONS, unpack(keys)), call('ZMSCORE', GIVEN, unpack(keys))
else
	failures, dues = call('ZMSCORE', FAILURES, unpack(keys)), call('ZMSCORE', DELAYS, unpack(keys))
end
for i, key in ipairs(keys) do
	result[4 * i - 1] = key
	result[4 * i] = states[i] or ''
	result[4 * i + 1] = failures[i] or ''
	result[4 * i + 2] = dues[i] or ''
end
if list == 'key' then
	local isHeld = states[1] and #states[1] > 16
	result[#result + 1] = call('HGET', CAUSES, (isHeld and 'h' or 'n') .. from) or ''
end
return result
