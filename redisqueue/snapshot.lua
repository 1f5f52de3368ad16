-- Reads up to ARGV[1] keys of the state ARGV[2] for the KEYS of batch.lua, each with its state, its failures and when it
-- is due. It writes nothing. Each state has a call of its own: four times a thousand keys would take too long.
local STATES, LINE, DELAYS, FAILURES, HELD = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[9]
local limit, state = tonumber(ARGV[1]), ARGV[2]
local call = redis.call

local keys = {}
if state == 'processing' then
	-- The filler is the first member.
	for i, member in ipairs(call('ZRANGE', HELD, 1, limit)) do
		keys[i] = string.sub(member, 12)
	end
elseif state == 'queued' then
	keys = call('LRANGE', LINE, 0, limit - 1)
elseif state == 'waiting' then
	keys = call('ZRANGEBYSCORE', DELAYS, '-inf', '(inf', 'LIMIT', 0, limit)
elseif state == 'failing' then
	-- The filler has the highest score.
	keys = call('ZREVRANGE', FAILURES, 1, limit)
end
if #keys == 0 then
	return {}
end
local states = call('HMGET', STATES, unpack(keys))
local failures, dues = call('ZMSCORE', FAILURES, unpack(keys)), call('ZMSCORE', DELAYS, unpack(keys))
local list = {}
for i, key in ipairs(keys) do
	list[4 * i - 3] = key
	list[4 * i - 2] = states[i] or ''
	list[4 * i - 1] = failures[i] or '0'
	list[4 * i] = dues[i] or ''
end
return list
