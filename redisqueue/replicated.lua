-- Writes something, so that a WAIT behind it waits for all that was written before, and returns 1; or returns 0 if the server lacks
-- the batch with seq ARGV[2] of the session ARGV[1], because it has taken over without it.
local REPLIES = KEYS[12]
local stored = redis.call('HGET', REPLIES, ARGV[1])
if not stored or tonumber(string.match(stored, '^%d+')) < tonumber(ARGV[2]) then
	return 0
end
-- In this order, a full server does not refuse it.
redis.call('HDEL', REPLIES, ARGV[1])
redis.call('HSET', REPLIES, ARGV[1], stored)
return 1
