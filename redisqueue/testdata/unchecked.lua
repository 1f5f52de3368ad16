-- Executes one batch of operations of one replica, atomically and once. Package redisqueue sends nothing else that
-- changes a queue, so this file is the whole of the queue's semantics.
--
-- A key (of the queue, not of Redis) is in one of the states of package workqueue. `states` has it as a string:
--
--   absent              queued    <since>
--   processing          p<session><fence>
--   processing+dirty    d<session><fence><since>
--
-- <since> and <fence> have 16 digits: microseconds of the server's clock, or a little more for a fence. A session is
-- one life of one replica and has 11 characters. It holds keys while its lease lives.
--
-- The data of a queue (of one shard) share a hash tag. All that a lost entry could make wrong is declared in KEYS,
-- so that a cluster refuses the script (TRYAGAIN) while only some of the keys have moved to another node.

local META, STATES, LINE, DELAYS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FAILURES, EXPIRIES, LASTS = KEYS[5], KEYS[6], KEYS[7]
local LEASES, HELD, SLEEPERS, ASIDE = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local REPLIES, GONE, WAKE = KEYS[12], KEYS[13], KEYS[14]
--   META      hash: v, the lease clock; t, when it was read last; f, the last fence; a, the number of dirty keys that
--             are processed; b and c, the token bucket and when it was filled; k and e, see "keeper" below
--   STATES    hash: key -> state                          LINE      list: the queued keys
--   DELAYS    sorted set: key -> when it is due           ASIDE     set: keys that a replica could not decode
--   FAILURES  sorted set: key -> number of failures       EXPIRIES  sorted set: key -> when they are forgotten
--   LASTS     hash: key -> its last delay, if the jitter is decorrelated
--   LEASES    sorted set: session -> when its lease ends on the lease clock
--   HELD      sorted set of <session><key>, all scores 0, so that a session's keys are one range
--   SLEEPERS  set: sessions with getters that wait        WAKE      list: what this session's getters wait for
--   REPLIES   hash: session -> number and reply of its last batch
--   GONE      sorted set: session that has ended -> when its reply is forgotten, on the lease clock
--
-- No key but WAKE expires by itself: a server whose time is set forward would forget what it must know.

-- Hashes and sorted sets with few and short entries have an encoding in which every look-up scans all of them. One
-- entry that is longer than that encoding allows prevents it. Redis deletes what is empty, so it stays.
local FILLER = string.rep('\0', 80)

local session, number = ARGV[1], ARGV[2]
local lease, want, registered = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local FIRST_OP = 7 -- ARGV[6] is the configuration of AddRateLimited.

-- How much is done of the work that other replicas, or time, have left. The rest is left to the next batch.
local RECLAIM, SESSIONS, DUE, EXPIRE, WAKE_UP = 128, 8, 128, 128, 8
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
		-- Without a write WAIT would not wait. A full server refuses HSET as the first one.
		call('HDEL', REPLIES, session)
		call('HSET', REPLIES, session, stored)
		return sub(stored, space + 1)
	end
	if tonumber(last) + 1 ~= tonumber(number) then
		return 'LOST'
	end
elseif number ~= '1' then
	return 'LOST'
end

-- Leases are counted on a clock that goes at most half a lease forward from batch to batch, and never back. So no
-- lease ends because the server's clock is set, because the server has hung, or because it was down: replicas
-- have the time to come back. A live replica sends a batch every third of its lease.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local meta = call('HMGET', META, 'v', 't', 'f', 'a', 'b', 'c', 'k', 'e')
local passed = now - (meta[2] and tonumber(meta[2], 10) or now)
local leaseClock = (tonumber(meta[1]) or 0) + math.max(0, math.min(passed, lease / 2))
local fence = math.max(meta[3] and tonumber(meta[3], 10) or 0, now)
local again = tonumber(meta[4]) or 0
local since = digits(now)

if number ~= '1' then
	local ends = call('ZSCORE', LEASES, session)
	if not ends or score(ends) <= leaseClock then
		return 'LOST'
	end
end
-- The first command that writes must be one that a full server refuses: from here on it refuses none.
call('ZADD', LEASES, whole(leaseClock + lease), session)
if number == '1' then
	call('HSETNX', STATES, FILLER, '')
	call('HSETNX', LASTS, FILLER, '')
	call('ZADD', HELD, 0, FILLER)
	for _, set in ipairs({ DELAYS, FAILURES, EXPIRIES }) do
		call('ZADD', set, 'inf', FILLER)
	end
end

-- states has those keys' states that were read, false for absent. What is written back in the end is in touched. Lists
-- to which every key is appended have a counter: #list searches for the end.
local states, touched = {}, {}
local held, released = {}, {} -- arguments for ZADD and ZREM of HELD
local tail, changed, unmatched = {}, 0, 0
local results = {}

-- Lua cannot unpack more than about 8000 values.
local function chunks(list, size, f)
	for first = 1, #list, size do
		f(first, math.min(first + size - 1, #list))
	end
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

local function addLater(key, delay)
	if delay <= 0 then
		load({ key })
		add(key)
	else
		call('ZADD', DELAYS, 'LT', digits(now + delay), key)
	end
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
	call('LPUSH', LINE, key)
end

-- Keys whose time has come are added before what the batch adds.
if call('ZCARD', DELAYS) > 1 then
	local due = call('ZRANGEBYSCORE', DELAYS, '-inf', digits(now), 'LIMIT', 0, DUE)
	if #due > 0 then
		load(due)
		for _, key in ipairs(due) do
			add(key)
		end
		call('ZREM', DELAYS, unpack(due))
	end
end
if call('ZCARD', EXPIRIES) > 1 then
	local expired = call('ZRANGEBYSCORE', EXPIRIES, '-inf', digits(now), 'LIMIT', 0, EXPIRE)
	if #expired > 0 then
		call('ZREM', FAILURES, unpack(expired))
		call('ZREM', EXPIRIES, unpack(expired))
		call('HDEL', LASTS, unpack(expired))
	end
end

local function failuresOf(key)
	local expires = call('ZSCORE', EXPIRIES, key)
	if not expires or score(expires) <= now then
		return 0
	end
	return score(call('ZSCORE', FAILURES, key) or 0)
end

local backoff
-- addRateLimited counts a failure of the key, and adds it after the longer of two delays: the backoff, as
-- workqueue.BackoffConfig defines it, and what the token bucket demands. random is from [0, 1): the server's own
-- random numbers are the same in each script.
local function addRateLimited(key, random)
	if not backoff then
		backoff = {}
		for field in string.gmatch(ARGV[6], '%S+') do
			backoff[#backoff + 1] = tonumber(field)
		end
	end
	local base, longest, factor, jitter, forgetAfter, limit, burst = unpack(backoff)
	local failures = failuresOf(key)
	local delay = math.min(base * factor ^ failures, longest)
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
		local tokens, filled = tonumber(meta[5]) or burst, tonumber(meta[6]) or now
		tokens = math.min(burst, tokens + math.max(0, now - filled) * limit / 1000000) - 1
		meta[5], meta[6] = format('%.6f', tokens), format('%.0f', now)
		if tokens < 0 then
			delay = math.max(delay, math.ceil(-tokens / limit * 1000000))
		end
	end
	call('ZADD', FAILURES, failures + 1, key)
	call('ZADD', EXPIRIES, digits(now + delay + forgetAfter), key)
	addLater(key, delay)
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

local operations = {
	-- These have a key alone.
	a = add,
	f = function(key)
		if call('ZREM', FAILURES, key) > 0 then
			call('ZREM', EXPIRIES, key)
			call('HDEL', LASTS, key)
		end
	end,
	n = function(key) results[#results + 1] = 'n' .. failuresOf(key) .. ' ' end,
	-- Quit ends the session. What it holds is reclaimed below, and its blocking read is woken to end.
	q = function()
		call('ZADD', LEASES, -1, session)
		wake(session)
	end,
	-- These have a number of 16 characters before the key.
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
	b = function(key, itsFence)
		local state = heldUnder(itsFence, key)
		if state then
			putBack(session, key, state)
		end
	end,
	u = function(key, itsFence)
		local state = heldUnder(itsFence, key)
		if state then
			release(session, key, state)
			call('SADD', ASIDE, key)
		end
	end,
}
local plain = { a = true, f = true, n = true, q = true }
local stateful = { a = true, d = true, b = true, u = true }

local ops, keys, arguments, toLoad, n = {}, {}, {}, {}, 0
for i = FIRST_OP, #ARGV do
	local code = sub(ARGV[i], 1, 1)
	ops[i] = code
	if plain[code] then
		keys[i] = sub(ARGV[i], 2)
	else
		arguments[i], keys[i] = sub(ARGV[i], 2, 17), sub(ARGV[i], 18)
	end
	if stateful[code] then
		n = n + 1
		toLoad[n] = keys[i]
	end
end
load(toLoad)
for i = FIRST_OP, #ARGV do
	operations[ops[i]](keys[i], arguments[i])
end

-- The keys of sessions whose leases have ended come again. What remains of a session is that its last batch was executed:
-- the replica may still send that again.
local reclaims = RECLAIM
for _, dead in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', whole(leaseClock), 'LIMIT', 0, SESSIONS)) do
	-- What is released above is still in HELD, but not in the state of a held key.
	local past = sub(dead, 1, -2) .. string.char(byte(dead, -1) + 1)
	local members = call('ZRANGEBYLEX', HELD, '[' .. dead, '(' .. past, 'LIMIT', 0, reclaims)
	local lost = {}
	for i, member in ipairs(members) do
		lost[i] = sub(member, #dead + 1)
	end
	load(lost)
	for i = #lost, 1, -1 do
		local state = states[lost[i]]
		if state and byte(state) >= 100 and sub(state, 2, 12) == dead then
			putBack(dead, lost[i], state)
		end
	end
	if #members > 0 then
		call('ZREM', HELD, unpack(members))
	end
	reclaims = reclaims - #members
	if reclaims == 0 then
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
local forgotten = call('ZRANGEBYSCORE', GONE, '-inf', whole(leaseClock), 'LIMIT', 0, SESSIONS)
if #forgotten > 0 then
	call('ZREM', GONE, unpack(forgotten))
	call('HDEL', REPLIES, unpack(forgotten))
end

-- Hand out keys: first those that were queued before, then those of this batch.
local got = 0
if want > 0 then
	local line = call('LPOP', LINE, want) or {}
	load(line)
	local function handOut(key)
		fence = fence + 1
		local itsFence = digits(fence)
		results[#results + 1] = 'k' .. #key .. ' ' .. itsFence .. ' ' .. states[key] .. ' ' .. key
		set(key, 'p' .. session .. itsFence)
		got = got + 1
		held[2 * got - 1] = '0'
		held[2 * got] = session .. key
	end
	for _, key in ipairs(line) do
		handOut(key)
	end
	local rest = {}
	for _, key in ipairs(tail) do
		if got < want then
			handOut(key)
		else
			rest[#rest + 1] = key
		end
	end
	tail = rest
end
if got < want then
	call('SADD', SLEEPERS, session)
elseif registered then
	call('SREM', SLEEPERS, session)
end

-- Write back.
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
chunks(present, 1000, function(first, last) call('HSET', STATES, unpack(present, first, last)) end)
chunks(absent, 1000, function(first, last) call('HDEL', STATES, unpack(absent, first, last)) end)
chunks(tail, 1000, function(first, last) call('RPUSH', LINE, unpack(tail, first, last)) end)
chunks(released, 1000, function(first, last) call('ZREM', HELD, unpack(released, first, last)) end)
chunks(held, 1000, function(first, last) call('ZADD', HELD, unpack(held, first, last)) end)
call('HSET', META, 'v', whole(leaseClock), 't', since, 'f', digits(fence), 'a', again)
if backoff and meta[5] then
	call('HSET', META, 'b', meta[5], 'c', meta[6])
end

-- Wake as many sleeping replicas as there are keys for, a few at a time: each of them does the same.
local queued = call('LLEN', LINE)
if queued > 0 then
	for _, sleeper in ipairs(call('SPOP', SLEEPERS, math.min(queued, WAKE_UP)) or {}) do
		wake(sleeper)
	end
end

-- One of the sleepers, the keeper (META k), knows a time (META e) by which it will call, not later than the next delayed key
-- is due. If there is none, another one is woken, and becomes it with its call.
local waiting = call('ZCARD', DELAYS) - 1
local nextDue = -1
if waiting > 0 then
	local due = score(call('ZRANGE', DELAYS, 0, 0, 'WITHSCORES')[2])
	nextDue = math.max(0, due - now)
	local keeper, known = meta[7], tonumber(meta[8] or 0, 10)
	if call('SISMEMBER', SLEEPERS, session) == 1 then
		keeper = session
	elseif not keeper or known > due or call('SISMEMBER', SLEEPERS, keeper) == 0 then
		keeper = call('SRANDMEMBER', SLEEPERS)
		if keeper then
			wake(keeper)
		end
	else
		due = known
	end
	if keeper and (keeper ~= meta[7] or due ~= known) then
		call('HSET', META, 'k', keeper, 'e', digits(due))
	end
end
local reply = table.concat({
	'OK', since, queued, call('HLEN', STATES) - 1 - queued, again, waiting, call('ZCARD', FAILURES) - 1,
	call('SCARD', ASIDE), changed, unmatched, format('%.0f', nextDue), got, '',
}, ' ') .. table.concat(results)
call('HSET', REPLIES, session, number .. ' ' .. reply)
return reply
