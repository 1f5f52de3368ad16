-- Returns 0 if the server lacks the batch with seq ARGV[2] of the session ARGV[1]: it has taken over without
-- it. Otherwise the script writes something and returns 1: a WAIT behind it waits for that write, and so for
-- all before it.
local BATCHES = KEYS[10]
local stored = redis.call('HGET', BATCHES, ARGV[1]) or ''
if tonumber(string.match(stored, '^%d+') or 0) < tonumber(ARGV[2]) then
	return 0
end
-- A full server does not refuse these in this order: the first one frees memory.
redis.call('HDEL', BATCHES, ARGV[1])
redis.call('HSET', BATCHES, ARGV[1], stored)
return 1
