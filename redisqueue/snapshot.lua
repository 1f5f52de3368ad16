-- Reads what there is to see of a queue, with work bounded by ARGV[1], the number of keys of each state, for the KEYS
-- of batch.lua. It writes nothing.
local STATES, LINE, DELAYS, FAILURES, EXPIRIES = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local HELD, ASIDE = KEYS[9], KEYS[11]
local limit = tonumber(ARGV[1])
local call = redis.call

local time = call('TIME')
local queued = call('LLEN', LINE)
local counts = {
	string.format('%.0f', time[1] * 1000000 + time[2]),
	queued,
	math.max(0, call('HLEN', STATES) - 1 - queued),
	tonumber(call('HGET', KEYS[1], 'a')) or 0,
	math.max(0, call('ZCARD', DELAYS) - 1),
	math.max(0, call('ZCARD', FAILURES) - 1),
	call('SCARD', ASIDE),
}

-- described appends state, failures and due time to each key.
local function described(keys)
	local list = {}
	if #keys == 0 then
		return list
	end
	local states = call('HMGET', STATES, unpack(keys))
	local failures, dues = call('ZMSCORE', FAILURES, unpack(keys)), call('ZMSCORE', DELAYS, unpack(keys))
	for i, key in ipairs(keys) do
		list[#list + 1] = key
		list[#list + 1] = states[i] or ''
		list[#list + 1] = failures[i] or '0'
		list[#list + 1] = dues[i] or ''
	end
	return list
end

if limit <= 0 then
	return { counts, {}, {}, {}, {} }
end
local processing = {}
-- The filler is the first member.
for _, member in ipairs(call('ZRANGE', HELD, 1, limit)) do
	processing[#processing + 1] = string.sub(member, 12)
end
return {
	counts,
	described(processing),
	described(call('LRANGE', LINE, 0, limit - 1)),
	described(call('ZRANGEBYSCORE', DELAYS, '-inf', '(inf', 'LIMIT', 0, limit)),
	-- The filler has the highest score.
	described(call('ZREVRANGE', FAILURES, 1, limit)),
}
