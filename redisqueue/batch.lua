-- Executes one batch of operations of one replica, atomically and once. Package redisqueue sends nothing else that
-- changes a queue, so this file is the whole of the queue's semantics.
--
-- A key (of the queue, not of Redis) is in one of the states of package workqueue. `states` has it as a string:
--
--   absent              queued    <since>                           16 characters
--   processing          p<session><fence>                           28
--   processing+dirty    d<session><fence><since>                    44
--                        2        13     29                         where each part begins
--
-- Instead of d it is e while all adds since the hand-out were quiet ones.
--
-- <since> and <fence> have 16 digits: microseconds of the queue's clock, or a little more for a fence. A session is
-- one life of one replica and has 11 characters. It holds keys while its lease lives.
--
-- The script reads, decides, and writes last, in an order that loses no key wherever it is interrupted: a key is in the
-- line before it has the state, and leaves what it comes from after that. Places in the line whose keys are not queued are
-- skipped.
--
-- It has three parts, which are one script: this one decides whether the batch is executed, and reads the clocks;
-- operations.lua executes what the replica asks for; handout.lua does what time and dead replicas have left, hands out keys,
-- writes everything back and replies.
--
-- The data of a queue (of one shard) share a hash tag. All that a lost entry could make wrong is declared in KEYS,
-- so that a cluster refuses the script (TRYAGAIN) while only some of the keys have moved to another node.

local META, STATES, LINE, DELAYS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FAILURES, EXPIRIES, LASTS = KEYS[5], KEYS[6], KEYS[7]
local LEASES, HELD, SLEEPERS, ASIDE = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local REPLIES, GONE = KEYS[12], KEYS[13]
local LOSSES, GIVEN, REASONS, CAUSES, WAKE = KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]
--   META      hash: d, the description of the queue; v, the lease clock; t, when it was read last; o, how far the queue's
--             clock is ahead of the server's; f, the last fence; a, the number of dirty keys that are processed; b and c,
--             the token bucket and when it was filled; p, 1 while the queue is paused; k and e, the timekeeper and the
--             time by which it calls, see below; x, how far a repair has come; r, the number of entries that were repaired;
--             n, 1 while CAUSES may have entries
--   STATES    hash: key -> state                          LINE      list: the queued keys, and perhaps some that are not
--   DELAYS    sorted set: key -> when it is due           ASIDE     set: keys that a replica could not decode
--   FAILURES  sorted set: key -> number of failures       EXPIRIES  sorted set: key -> when they are forgotten
--   LASTS     hash: key -> its last delay, if the jitter is decorrelated
--   LEASES    sorted set: session -> when its lease ends on the lease clock, -1 if it has quit
--   HELD      sorted set of <session><key>, all scores 0, so that a session's keys are one range
--   SLEEPERS  set: sessions with getters that wait        WAKE      list: what this session's getters wait for
--   REPLIES   hash: session -> number and reply of its last batch
--   GONE      sorted set: session that has ended -> when its reply is forgotten, on the lease clock
--   LOSSES    hash: key -> how often in a row its lease was lost
--   GIVEN     sorted set: key that was given up -> when   REASONS   hash: such a key -> its number of attempts and error
--   CAUSES    hash: n<key> -> why it was added, for its next hand-out; h<key> -> the same of the hand-out that is held
--
-- No key but WAKE expires by itself: a server whose time is set forward would forget what it must know.

-- Hashes and sorted sets with few and short entries have an encoding in which every look-up scans all of them. One
-- entry that is longer than that encoding allows prevents it. Redis deletes what is empty, so it stays.
local FILLER = string.rep('\0', 80)

local session, number = ARGV[1], ARGV[2]
local lease, want = tonumber(ARGV[3]), tonumber(ARGV[4])
-- Flags: r, the session was asleep; o, it asks for the numbers that not every reply has; e and a fence, an attempt to execute
-- this batch was answered by an error, and that fence is the last one that the replica has heard of.
local flags, asleep, wantsAll, interrupted = ARGV[5], false, false, false
if flags ~= '-' then
	asleep, wantsAll = string.find(flags, 'r', 1, true), string.find(flags, 'o', 1, true)
	interrupted = string.match(flags, 'e(%d+)')
end
-- What only saves memory is not done by every batch.
local tidies = wantsAll or tonumber(number) % 16 == 1
local SETTINGS, DESCRIPTION, FIRST_OP = ARGV[6], ARGV[7], 8

-- How much is done of the work that other replicas, or time, have left. The rest is left to the next batch.
local CHORES, SESSIONS, DUE, WAKE_UP, SKIP, BYTES = 192, 8, 128, 8, 256, 65536
local REMEMBER = math.max(10 * lease, 3600000000)

local call, sub, byte, find, format = redis.call, string.sub, string.byte, string.find, string.format

-- Numbers with leading zeros are read with an explicit base: some Lua implementations take them for octal.
local function digits(n) return format('%016.0f', n) end
local function whole(n) return format('%.0f', n) end
-- A score may come as 1.1e+8, which tonumber does not know everywhere.
local function score(text) return text + 0 end

-- A batch that was executed before gets the reply that it got, or GONE if the session has ended since. One that is not
-- the next has been overtaken, or the server has lost batches before it, and with them the keys that were handed out: then
-- the session is over.
local stored = call('HGET', REPLIES, session)
if stored then
	local space = find(stored, ' ', 1, true)
	local last = sub(stored, 1, space - 1)
	if last == number then
		return sub(stored, space + 1)
	end
	if tonumber(last) + 1 ~= tonumber(number) then
		return 'LOST'
	end
elseif number ~= '1' and number ~= '0' then
	return 'LOST'
end

local meta = call('HMGET', META, 'v', 't', 'f', 'a', 'b', 'c', 'k', 'e', 'd', 'o', 'p', 'r', 'n')
if meta[9] ~= DESCRIPTION and (meta[9] or meta[2]) then
	return 'REFUSED ' .. (meta[9] or 'an older format')
end

-- The queue's clock never goes back: what waits for a time does not wait longer because the server's clock was set back.
local offset = tonumber(meta[10] or 0)
local time = call('TIME')
local now = time[1] * 1000000 + time[2] + offset
local last = meta[2] and tonumber(meta[2], 10) or now
offset = offset + math.max(0, last - now)
now = math.max(now, last)

-- Leases are counted on a clock that goes at most half a lease forward from batch to batch. So no lease ends because
-- the server's clock is set, because the server has hung, or because it was down: replicas have the time to come back. A
-- live replica sends a batch every third of its lease.
local leaseClock = (tonumber(meta[1]) or 0) + math.min(now - last, lease / 2)
local fence = math.max(meta[3] and tonumber(meta[3], 10) or 0, now)
local again = tonumber(meta[4]) or 0
local paused = meta[11] == '1'
local caused = meta[13] == '1'
local repaired = 0
local since = digits(now)

if number ~= '1' and number ~= '0' then
	local ends = call('ZSCORE', LEASES, session)
	if not ends or score(ends) <= leaseClock then
		return 'LOST'
	end
end

-- A user who may not call a command must find out before the first write. (If the rights change later, see `interrupted`.)
if redis.acl_check_cmd and (number == '0' or number == '1') then
	for _, command in ipairs({
		{ 'HGET', META, '' }, { 'HMGET', META, '' }, { 'HSET', META, '', '' }, { 'HDEL', META, '' }, { 'HLEN', META },
		{ 'HSCAN', META, 0 }, { 'ZSCORE', HELD, '' }, { 'ZADD', HELD, 0, '' }, { 'ZREM', HELD, '' }, { 'ZCARD', HELD },
		{ 'ZRANGE', HELD, 0, 0 }, { 'ZRANGEBYSCORE', HELD, 0, 0 }, { 'ZRANGEBYLEX', HELD, '-', '+' }, { 'RPUSH', LINE, '' },
		{ 'LPUSH', LINE, '' }, { 'LPOP', LINE, 1 }, { 'LREM', LINE, 1, '' }, { 'LLEN', LINE }, { 'LINDEX', LINE, 0 },
		{ 'LRANGE', LINE, 0, 0 }, { 'SADD', ASIDE, '' }, { 'SREM', ASIDE, '' }, { 'SPOP', ASIDE, 1 }, { 'SCARD', ASIDE },
		{ 'SISMEMBER', ASIDE, '' }, { 'SRANDMEMBER', ASIDE }, { 'PEXPIRE', WAKE, 1 },
	}) do
		if not redis.acl_check_cmd(unpack(command)) then
			return redis.error_reply('NOPERM the queue needs the command ' .. command[1])
		end
	end
end

-- The first formats had a hash here, and read it first: their scripts fail, before they have changed anything.
if number == '0' or number == '1' then
	redis.pcall('SADD', sub(META, 1, -5) .. 'replies', DESCRIPTION)
end

-- Number 0 is no batch: a new replica asks whether its batches would be executed. The first one describes the queue.
if number == '0' then
	redis.pcall('HSETNX', META, 'd', DESCRIPTION) -- A full server refuses that. The first batch does it, too.
	return 'OK'
end

-- A full server refuses the first command that writes, unless it can only free memory. Once there was one, it refuses none.
-- All that is not an add goes on: it takes no memory, or little, and Dones free some.
local refused = redis.pcall('ZADD', LEASES, whole(leaseClock + lease), session)
local full = type(refused) == 'table' and refused.err
if full then
	if not find(full, 'OOM', 1, true) then
		return refused
	end
	call('HDEL', REPLIES, FILLER)
	call('ZADD', LEASES, whole(leaseClock + lease), session)
end
if number == '1' then
	call('HSET', STATES, FILLER, '')
	call('HSET', LASTS, FILLER, '')
	call('ZADD', HELD, 0, FILLER)
	for _, set in ipairs({ DELAYS, FAILURES, EXPIRIES }) do
		call('ZADD', set, 'inf', FILLER)
	end
end
