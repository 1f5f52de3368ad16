-- Deletes a queue: all KEYS of batch.lua. UNLINK leaves the work to another thread of the server. The sessions
-- that are known find themselves lost, a few hundred a call; returns how many may be left.
local LEASES, WAKE = KEYS[8], KEYS[19]

local sessions = redis.call('ZRANGE', LEASES, 0, 255)
for _, other in ipairs(sessions) do
	redis.call('UNLINK', string.sub(WAKE, 1, -1 - #ARGV[1]) .. other)
end
if #sessions > 0 then
	redis.call('ZREM', LEASES, unpack(sessions))
end
redis.call('UNLINK', unpack(KEYS, 1, 7))
redis.call('UNLINK', unpack(KEYS, 9, 18))
return redis.call('ZCARD', LEASES)
