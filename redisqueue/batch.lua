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
-- <since> and <fence> have 16 digits: microseconds of the queue's clock, or a little more for a fence. A session is
-- one life of one replica and has 11 characters. It holds keys while its lease lives.
--
-- The script reads, decides, and writes last, in an order that loses no key wherever it is interrupted: a key is in the
-- line before it has the state, and leaves what it comes from after that. Places in the line whose keys are not queued are
-- skipped.
--
-- The data of a queue (of one shard) share a hash tag. All that a lost entry could make wrong is declared in KEYS,
-- so that a cluster refuses the script (TRYAGAIN) while only some of the keys have moved to another node.

local META, STATES, LINE, DELAYS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FAILURES, EXPIRIES, LASTS = KEYS[5], KEYS[6], KEYS[7]
local LEASES, HELD, SLEEPERS, ASIDE = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local REPLIES, GONE = KEYS[12], KEYS[13]
local LOSSES, GIVEN, REASONS, WAKE = KEYS[14], KEYS[15], KEYS[16], KEYS[17]
--   META      hash: d, the description of the queue; v, the lease clock; t, when it was read last; o, how far the queue's
--             clock is ahead of the server's; f, the last fence; a, the number of dirty keys that are processed; b and c,
--             the token bucket and when it was filled; p, 1 while the queue is paused; k and e, the timekeeper and the
--             time by which it calls, see below; x, how far a repair has come; r, the number of entries that were repaired
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

local meta = call('HMGET', META, 'v', 't', 'f', 'a', 'b', 'c', 'k', 'e', 'd', 'o', 'p', 'r')
if meta[9] and meta[9] ~= DESCRIPTION then
	return 'REFUSED ' .. meta[9]
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

-- states has those keys' states that were read, false for absent. What is written back in the end is in touched. Lists
-- to which every key is appended have a counter: #list searches for the end.
local states, touched = {}, {}
local held, released, holds = {}, {}, {} -- arguments for ZADD and ZREM of HELD; holds has what the former adds
local front, tail, due = {}, {}, {} -- queued before all others, the last one first; after all others; no longer delayed
local changed, unmatched = 0, 0
local results = {}

-- Lua cannot unpack more than about 8000 values.
local function chunks(list, size, f)
	for first = 1, #list, size do
		f(first, math.min(first + size - 1, #list))
	end
end

-- read returns up to limit keys from page(offset, count), fewer if they are long, and whether that is all there is.
local function read(limit, page)
	local list, bytes, count = {}, 0, math.min(8, limit)
	while count > 0 do
		local more = page(#list, count)
		for _, key in ipairs(more) do
			list[#list + 1] = key
			bytes = bytes + #key
		end
		if #more < count then
			return list, true
		end
		-- As many as are likely to fit, and not too many if the first were short by chance.
		count = math.min(limit - #list, 3 * #list, math.floor((BYTES - bytes) * #list / (bytes + 1)))
	end
	return list, false
end

local function load(keys)
	local missing, n = {}, 0
	for _, key in ipairs(keys) do
		if states[key] == nil then
			states[key] = false
			n = n + 1
			missing[n] = key
		end
	end
	chunks(missing, 1000, function(first, last)
		local values = call('HMGET', STATES, unpack(missing, first, last))
		for i = first, last do
			states[missing[i]] = values[i - first + 1]
		end
	end)
end

local function set(key, state)
	states[key] = state
	touched[key] = true
end

local function isQueued(key)
	local state = states[key]
	return state and #state == 16
end

local function add(key)
	local state = states[key]
	if not state then
		set(key, since)
		tail[#tail + 1] = key
		changed = changed + 1
	elseif byte(state) == 112 then -- p
		set(key, 'd' .. sub(state, 2) .. since)
		again = again + 1
		changed = changed + 1
	end
end

local waiting
local function addLater(key, delay)
	if delay <= 0 then
		load({ key })
		add(key)
		return
	end
	if due[key] then
		due[key] = nil
		call('ZREM', DELAYS, key)
	end
	call('ZADD', DELAYS, 'LT', digits(now + delay), key)
	waiting = nil
end

-- heldUnder returns the key's state if it is held under that fence. No two hand-outs have the same.
local function heldUnder(itsFence, key)
	local state = states[key]
	return state and find(state, itsFence, 13, true) == 13 and state
end

-- release ends the processing of a key, and returns since when it is dirty, if it is.
local function release(holder, key, state)
	released[#released + 1] = holder .. key
	set(key, false)
	if byte(state) == 100 then -- d
		again = again - 1
		return sub(state, 29)
	end
end

-- putBack queues a key that was not finished, before all others. It is dirty since it was handed out.
local function putBack(holder, key, state)
	release(holder, key, state)
	set(key, sub(state, 13, 28))
	front[#front + 1] = key
end

-- membersOf returns a function that reads the entries of a session's keys in HELD.
local function membersOf(holder)
	local past = sub(holder, 1, -2) .. string.char(byte(holder, -1) + 1)
	return function(from, n) return call('ZRANGEBYLEX', HELD, '[' .. holder, '(' .. past, 'LIMIT', from, n) end
end

-- The attempt may have handed out keys and not have come to its end: the replica does not know that it has them.
if interrupted then
	local members = read(4096, membersOf(session))
	local keys = {}
	for i, member in ipairs(members) do
		keys[i] = sub(member, #session + 1)
	end
	load(keys)
	for _, key in ipairs(keys) do
		local state = states[key]
		local holds = state and #state >= 28 and sub(state, 2, 12) == session
		if holds and sub(state, 13, 28) > interrupted then
			putBack(session, key, state)
			repaired = repaired + 1
		elseif not holds then
			released[#released + 1] = session .. key
			repaired = repaired + 1
		end
	end
end

-- Keys whose time has come are added before what the batch adds.
local chores = CHORES
waiting = call('ZCARD', DELAYS) - 1 -- nil when it must be read again
if waiting > 0 then
	local keys = read(DUE, function(from, n) return call('ZRANGEBYSCORE', DELAYS, '-inf', since, 'LIMIT', from, n) end)
	chores = chores - #keys
	load(keys)
	for _, key in ipairs(keys) do
		add(key)
		due[key] = true
		waiting = nil
	end
end

local function failuresOf(key)
	local expires = call('ZSCORE', EXPIRIES, key)
	if not expires or score(expires) <= now then
		return 0
	end
	return score(call('ZSCORE', FAILURES, key) or 0)
end

local settings
local function setting(name)
	if not settings then
		settings = {}
		for field, value in string.gmatch(SETTINGS, '(%a+)=(%S+)') do
			settings[field] = tonumber(value)
		end
	end
	return settings[name]
end

local bucketChanged = false
local function countFailure(key, failures, delay)
	call('ZADD', FAILURES, failures + 1, key)
	call('ZADD', EXPIRIES, digits(now + delay + setting('forget')), key)
end

-- addRateLimited counts a failure of the key, and adds it after the longer of two delays: the backoff, as
-- workqueue.BackoffConfig defines it, and what the token bucket demands. random is from [0, 1): the server's own
-- random numbers are the same in each script.
local function addRateLimited(key, random)
	local base, longest, jitter, limit = setting('base'), setting('max'), setting('jitter'), setting('limit')
	local failures = failuresOf(key)
	local delay = math.min(base * setting('factor') ^ failures, longest)
	if jitter == 1 then
		delay = delay * random
	elseif jitter == 2 then
		delay = delay / 2 + delay / 2 * random
	elseif jitter == 3 then
		local last = failures > 0 and tonumber(call('HGET', LASTS, key) or base) or base
		delay = base + (math.min(3 * last, longest) - base) * random
		call('HSET', LASTS, key, format('%.0f', delay))
	end
	delay = math.ceil(delay)
	if limit > 0 then
		local burst = setting('burst')
		local tokens, filled = tonumber(meta[5]) or burst, tonumber(meta[6]) or now
		tokens = math.min(burst, tokens + math.max(0, now - filled) * limit / 1000000) - 1
		meta[5], meta[6], bucketChanged = format('%.6f', tokens), format('%.0f', now), true
		if tokens < 0 then
			delay = math.max(delay, math.ceil(-tokens / limit * 1000000))
		end
	end
	countFailure(key, failures, delay)
	addLater(key, delay)
end

local givenUp, gaveUp = nil, false -- how many keys were given up, when that was read
local function countGivenUp()
	givenUp = givenUp or call('ZCARD', GIVEN)
	return givenUp
end
local function giveUp(key, attempts, reason)
	givenUp, gaveUp = countGivenUp() + call('ZADD', GIVEN, since, key), true
	call('HSET', REASONS, key, attempts .. ' ' .. reason)
end

local function dropGivenUp(key)
	if countGivenUp() == 0 or call('ZREM', GIVEN, key) == 0 then
		return false
	end
	givenUp = givenUp - 1
	call('HDEL', REASONS, key)
	call('HDEL', LOSSES, key)
	return true
end

local function forget(key)
	if call('ZREM', FAILURES, key) > 0 then
		call('ZREM', EXPIRIES, key)
		call('HDEL', LASTS, key)
	end
	dropGivenUp(key)
end

-- wake makes a session call that waits in a blocking read. Its list need not have more than one element. The list is not in
-- KEYS: while a cluster moves it to another node it cannot be read, and the session comes within its poll interval.
local function wake(sleeper)
	local list = sub(WAKE, 1, -1 - #session) .. sleeper
	if redis.pcall('LLEN', list) == 0 then
		call('RPUSH', list, 1)
		call('PEXPIRE', list, 60000)
	end
end

local function result(found) results[#results + 1] = found and 'n1 ' or 'n0 ' end

-- What every program does has a function. Its operations have a key, or a number of 16 characters and a key.
local operations = {
	a = add,
	f = forget,
	l = function(key, delay) addLater(key, tonumber(delay, 10)) end,
	r = function(key, random) addRateLimited(key, tonumber(random)) end,
	d = function(key, itsFence)
		local state = heldUnder(itsFence, key)
		if not state then
			unmatched = unmatched + 1
			return
		end
		local dirtySince = release(session, key, state)
		if dirtySince then
			set(key, dirtySince)
			tail[#tail + 1] = key
		end
	end,
}

-- remove takes a key out, but for the worker that holds it. In a long line its place stays, and is skipped.
local function remove(key)
	local found, state = call('ZREM', DELAYS, key) > 0, states[key]
	waiting = nil
	if isQueued(key) then
		set(key, false)
		if call('LLEN', LINE) <= 10000 then
			call('LREM', LINE, 1, key)
		end
	elseif state and byte(state) == 100 then -- d
		set(key, 'p' .. sub(state, 2, 28))
		again = again - 1
	end
	forget(key)
	call('HDEL', LOSSES, key)
	return found or state
end

-- rare executes all other operations.
local function rare(code, key, argument)
	if code == 'n' then
		results[#results + 1] = 'n' .. failuresOf(key) .. ' '
	elseif code == 'q' then -- Quit ends the session. What it holds is reclaimed below, and its blocking read is woken to end.
		call('ZADD', LEASES, -1, session)
		wake(session)
	elseif code == 'b' or code == 'u' then -- A key that is held is handed back, or set aside.
		local state = heldUnder(argument, key)
		if state and code == 'b' then
			putBack(session, key, state)
		elseif state then
			release(session, key, state)
			call('SADD', ASIDE, key)
		end
	elseif code == 'P' or code == 'R' then -- Pause and Resume have no key.
		paused = code == 'P'
	elseif code == 'x' then
		result(remove(key))
	elseif code == 't' or code == 'y' then -- A key that was given up is tried again, or only not listed any more.
		local found = dropGivenUp(key)
		if found and code == 't' then
			forget(key)
			add(key)
		end
		result(found)
	elseif code == 's' then -- A key that was set aside is queued again.
		local found = call('SREM', ASIDE, key) > 0
		if found then
			add(key)
		end
		result(found)
	elseif code == 'g' then -- The argument is the number of attempts; the key's length stands before it, the error behind it.
		local length = tonumber(sub(key, 1, 16), 10)
		giveUp(sub(key, 17, 16 + length), whole(tonumber(argument, 10)), sub(key, 17 + length))
	end
end
local WITH_ARGUMENT, WITH_STATE = 'lrdbug', 'adbuxts'
local adds = { a = true, l = true, r = true } -- A full server does not execute these.

local ops, keys, arguments, toLoad, finished, n = {}, {}, {}, {}, {}, 0
for i = FIRST_OP, #ARGV do
	local code = sub(ARGV[i], 1, 1)
	ops[i] = code
	if find(WITH_ARGUMENT, code, 1, true) then
		arguments[i], keys[i] = sub(ARGV[i], 2, 17), sub(ARGV[i], 18)
	else
		keys[i] = sub(ARGV[i], 2)
	end
	if find(WITH_STATE, code, 1, true) then
		n = n + 1
		toLoad[n] = keys[i]
	end
	if code == 'd' then
		finished[#finished + 1] = keys[i]
	end
end
load(toLoad)
for i = FIRST_OP, #ARGV do
	local code = ops[i]
	local operation = operations[code]
	if full and adds[code] then
		-- The replica sends it again.
	elseif operation then
		operation(keys[i], arguments[i])
	else
		rare(code, keys[i], arguments[i])
	end
end
-- A process that has called Done has survived the key.
if #finished > 0 and call('HLEN', LOSSES) > 0 then
	call('HDEL', LOSSES, unpack(finished))
end

-- lose gives a key back whose holder was heard of no more. It may have killed its process, and the keys beside it: the
-- second time, and from then on, each of these comes at a time of its own, later and later, and in the end not at all.
local function lose(holder, key, state)
	local losses, most, delay = tonumber(call('HGET', LOSSES, key) or 0) + 1, setting('losses'), 0
	call('HSET', LOSSES, key, losses)
	if losses > 1 then
		local random = (now % 1000 * 7919 + #released * 104729) % 1000 / 1000
		delay = math.ceil(math.min(lease * 2 ^ (losses - 2), math.max(setting('max'), lease)) * (1 + random) / 2)
	end
	countFailure(key, failuresOf(key), delay)
	if most > 0 and losses >= most then
		release(holder, key, state)
		giveUp(key, losses, 'the lease was lost ' .. losses .. ' times in a row: the handler may end its process')
	elseif delay > 0 then
		release(holder, key, state)
		addLater(key, delay)
	else
		putBack(holder, key, state)
	end
end

-- The keys of sessions whose leases have ended come again. What remains of a session is that its last batch was executed:
-- the replica may still send that again.
local ended = call('ZRANGEBYSCORE', LEASES, '-inf', whole(leaseClock), 'LIMIT', 0, SESSIONS)
for _, dead in ipairs(ended) do
	local quit = score(call('ZSCORE', LEASES, dead)) < 0
	-- What is released above is still in HELD, but not in the state of a held key.
	local members, all = read(chores, membersOf(dead))
	local lost = {}
	for i, member in ipairs(members) do
		lost[i] = sub(member, #dead + 1)
		released[#released + 1] = member
	end
	load(lost)
	for i = #lost, 1, -1 do
		local state = states[lost[i]]
		if state and byte(state) >= 100 and sub(state, 2, 12) == dead then
			(quit and putBack or lose)(dead, lost[i], state)
		end
	end
	chores = chores - #members
	if not all then
		break -- It may hold more.
	end
	call('ZREM', LEASES, dead)
	call('SREM', SLEEPERS, dead)
	call('ZADD', GONE, whole(leaseClock + REMEMBER), dead)
	local last = call('HGET', REPLIES, dead)
	if last then
		call('HSET', REPLIES, dead, string.match(last, '^%d+') .. ' GONE')
	end
end
local forgotten = tidies and call('ZRANGEBYSCORE', GONE, '-inf', whole(leaseClock), 'LIMIT', 0, SESSIONS) or {}
if #forgotten > 0 then
	call('ZREM', GONE, unpack(forgotten))
	call('HDEL', REPLIES, unpack(forgotten))
end

-- Failures are forgotten in the end.
if tidies and call('ZCARD', EXPIRIES) > 1 then
	local keys = read(chores, function(from, n) return call('ZRANGEBYSCORE', EXPIRIES, '-inf', since, 'LIMIT', from, n) end)
	chores = chores - #keys
	if #keys > 0 then
		call('ZREM', FAILURES, unpack(keys))
		call('ZREM', EXPIRIES, unpack(keys))
		call('HDEL', LASTS, unpack(keys))
	end
end

-- Keys that were given up are kept for a time, and not too many of them.
if (tidies or gaveUp) and countGivenUp() > 0 then
	local excess = math.min(givenUp - setting('keep'), 64)
	local old = excess > 0 and call('ZRANGE', GIVEN, 0, excess - 1)
		or call('ZRANGEBYSCORE', GIVEN, '-inf', digits(now - setting('keepfor')), 'LIMIT', 0, 64)
	for _, key in ipairs(old) do
		dropGivenUp(key)
	end
end

-- Hand out keys: first those that were given back, then those that were queued before, then those of this batch.
local got, bytes, popped = 0, 0, 0
local function wants() return not paused and got < want and bytes < BYTES end
local function handOut(key)
	fence = fence + 1
	local itsFence = digits(fence)
	results[#results + 1] = 'k' .. #key .. ' ' .. itsFence .. ' ' .. states[key] .. ' ' .. key
	set(key, 'p' .. session .. itsFence)
	got = got + 1
	bytes = bytes + #key
	local member = session .. key
	held[2 * got - 1] = '0'
	held[2 * got] = member
	holds[member] = true
end
while wants() and #front > 0 do
	local key = table.remove(front)
	if isQueued(key) then
		handOut(key)
	end
end
local page = 8
while wants() and popped - got < SKIP do
	local asked = math.min(want - got, page)
	local line = call('LRANGE', LINE, popped, popped + asked - 1)
	load(line)
	for _, key in ipairs(line) do
		if not wants() then
			break
		end
		popped = popped + 1
		if isQueued(key) then
			handOut(key)
		else
			repaired = repaired + 1
		end
	end
	if #line < asked then
		break
	end
	if got > 0 then
		page = math.max(1, math.min(4 * page, math.floor((BYTES - bytes) * got / (bytes + 1))))
	end
end
local left = {}
for _, key in ipairs(tail) do
	if isQueued(key) then
		if wants() then
			handOut(key)
		else
			left[#left + 1] = key
		end
	end
end

-- Write back. Keys are in the line before they have the state, and are taken from the line after it.
local present, absent, n = {}, {}, 0
for key in pairs(touched) do
	local state = states[key]
	if state then
		n = n + 2
		present[n - 1] = key
		present[n] = state
	else
		absent[#absent + 1] = key
	end
end
chunks(left, 1000, function(first, last) call('RPUSH', LINE, unpack(left, first, last)) end)
if #front > 0 then -- Then none was taken from the line.
	call('LPUSH', LINE, unpack(front))
end
chunks(held, 1000, function(first, last) call('ZADD', HELD, unpack(held, first, last)) end)
chunks(present, 1000, function(first, last) call('HSET', STATES, unpack(present, first, last)) end)
chunks(absent, 1000, function(first, last) call('HDEL', STATES, unpack(absent, first, last)) end)
if popped > 0 then
	call('LPOP', LINE, popped)
end
local over, n = {}, 0
for _, member in ipairs(released) do
	if not holds[member] then
		n = n + 1
		over[n] = member
	end
end
chunks(over, 1000, function(first, last) call('ZREM', HELD, unpack(over, first, last)) end)
local moved, n = {}, 0
for key in pairs(due) do
	n = n + 1
	moved[n] = key
end
if n > 0 then
	call('ZREM', DELAYS, unpack(moved))
end

-- If keys have the state of queued ones and the line is empty, they have got lost from it: for instance, because an older
-- script was interrupted. They are looked for in steps.
local processing = call('ZCARD', HELD) - 1
local queued = math.max(0, call('HLEN', STATES) - 1 - processing)
if processing == 0 then
	again = 0
end
if queued > 0 and call('LLEN', LINE) == 0 then
	local step = call('HSCAN', STATES, call('HGET', META, 'x') or '0', 'COUNT', 64)
	call('HSET', META, 'x', step[1])
	for i = 1, #step[2], 2 do
		local key, state = step[2][i], step[2][i + 1]
		local holder = #state >= 28 and sub(state, 2, 12)
		if key ~= FILLER and not (holder and call('ZSCORE', HELD, holder .. key)) then
			call('RPUSH', LINE, key)
			call('HSET', STATES, key, since)
			again = again - (byte(state) == 100 and 1 or 0)
			repaired = repaired + 1
		end
	end
end

-- A session sleeps that did not get what it wants. As many are woken as there are keys for, a few at a time: each of them
-- does the same.
if got < want and (paused or queued == 0) then
	call('SADD', SLEEPERS, session)
elseif asleep then
	call('SREM', SLEEPERS, session)
end
if queued > 0 and not paused then
	for _, sleeper in ipairs(call('SPOP', SLEEPERS, math.min(queued, WAKE_UP)) or {}) do
		wake(sleeper)
	end
end

-- One of the sleepers, the timekeeper (META k), knows a time (META e) by which it will call, not later than the next delayed
-- key is due. If there is none, another one is woken, and becomes it with its call.
waiting = waiting or call('ZCARD', DELAYS) - 1
local nextDue = -1
if waiting > 0 then
	local at = score(call('ZRANGE', DELAYS, 0, 0, 'WITHSCORES')[2])
	nextDue = math.max(0, at - now)
	local keeper, known = meta[7], tonumber(meta[8] or 0, 10)
	if call('SISMEMBER', SLEEPERS, session) == 1 then
		keeper = session
	elseif not keeper or known > at or call('SISMEMBER', SLEEPERS, keeper) == 0 then
		keeper = call('SRANDMEMBER', SLEEPERS)
		if keeper then
			wake(keeper)
		end
	else
		at = known
	end
	if keeper and (keeper ~= meta[7] or at ~= known) then
		call('HSET', META, 'k', keeper, 'e', digits(at))
	end
end

-- Numbers that take time are read when they are asked for.
local oldest, failing, aside = '0', 0, 0
if wantsAll then
	failing, aside = call('ZCARD', FAILURES) - 1, call('SCARD', ASIDE)
	local head = queued > 0 and call('LINDEX', LINE, 0)
	local state = head and call('HGET', STATES, head)
	oldest = state and #state == 16 and state or '0'
end
local allRepaired = repaired + (tonumber(meta[12]) or 0)
local reply = table.concat({
	full and 'FULL' or 'OK', since, queued, processing, again, waiting, failing, aside, wantsAll and countGivenUp() or 0,
	allRepaired, changed, unmatched, format('%.0f', nextDue), paused and 1 or 0, oldest, got, '',
}, ' ') .. table.concat(results)
call('HSET', REPLIES, session, number .. ' ' .. reply)
call('HSET', META, 'v', whole(leaseClock), 't', since, 'f', digits(fence), 'a', again)
if not meta[9] or offset ~= tonumber(meta[10] or 0) or paused ~= (meta[11] == '1') or repaired > 0 then
	call('HSET', META, 'd', DESCRIPTION, 'o', whole(offset), 'p', paused and 1 or 0, 'r', allRepaired)
end
if bucketChanged then
	call('HSET', META, 'b', meta[5], 'c', meta[6])
end
return reply
