-- Deletes a queue: all KEYS of batch.lua; ARGV[1] is the session in the name of WAKE. UNLINK leaves the work to another thread of the
-- server. Each call also deletes the leases and WAKE lists of up to 256 sessions, and returns how many sessions are left.
local LEASES, WAKE = KEYS[7], KEYS[16]

local sessions = redis.call('ZRANGE', LEASES, 0, 255)
for _, other in ipairs(sessions) do
	redis.call('UNLINK', string.sub(WAKE, 1, -1 - #ARGV[1]) .. other)
end
if #sessions > 0 then
	redis.call('ZREM', LEASES, unpack(sessions))
end
redis.call('UNLINK', unpack(KEYS, 1, 6))
redis.call('UNLINK', unpack(KEYS, 8, 15))
return redis.call('ZCARD', LEASES)
