-- The third part of batch.lua.

-- The keys of sessions whose leases have ended come again. What remains of a session is that its last batch was executed:
-- the replica may still send that again.
local ended = call('ZRANGEBYSCORE', LEASES, '-inf', whole(leaseClock), 'LIMIT', 0, SESSIONS)
for _, dead in ipairs(ended) do
	local quit = score(call('ZSCORE', LEASES, dead)) < 0
	-- What is released above is still in HELD, but not in the state of a held key.
	local members, all = read(chores, rare().membersOf(dead))
	local lost = {}
	for i, member in ipairs(members) do
		lost[i] = sub(member, #dead + 1)
		released[#released + 1] = member
	end
	load(lost)
	for i = #lost, 1, -1 do
		local state = states[lost[i]]
		if state and byte(state) >= 100 and sub(state, 2, 12) == dead then
			rare()[quit and 'putBack' or 'lose'](dead, lost[i], state)
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
	local excess = math.min(givenUp - rare().setting('keep'), 64)
	local old = excess > 0 and call('ZRANGE', GIVEN, 0, excess - 1)
		or call('ZRANGEBYSCORE', GIVEN, '-inf', digits(now - rare().setting('keepfor')), 'LIMIT', 0, 64)
	for _, key in ipairs(old) do
		dropGivenUp(key)
	end
end

-- Hand out keys: first those that were given back, then those that were queued before, then those of this batch.
local got, bytes, popped = 0, 0, 0
local function wants() return not paused and got < want and bytes < BYTES end
local moves, moved = {}, {} -- arguments for HSET and HDEL of CAUSES
local function handOut(key)
	fence = fence + 1
	local itsFence = digits(fence)
	local result = 'k' .. #key .. ' ' .. itsFence .. ' ' .. states[key] .. ' ' .. key
	local causes = caused and call('HGET', CAUSES, 'n' .. key)
	if causes then
		result = 'K' .. sub(result, 2) .. #causes .. ' ' .. causes
		moves[#moves + 1], moves[#moves + 2], moved[#moved + 1] = 'h' .. key, causes, 'n' .. key
	end
	results[#results + 1] = result
	set(key, 'p' .. session .. itsFence)
	got = got + 1
	bytes = bytes + #result
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
local page = 2 -- More would be too much if they are very long.
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
each('RPUSH', LINE, left)
if #front > 0 then -- Then none was taken from the line.
	call('LPUSH', LINE, unpack(front))
end
each('ZADD', HELD, held)
each('HSET', STATES, present)
each('HDEL', STATES, absent)
if popped > 0 then
	call('LPOP', LINE, popped)
end
each('HDEL', CAUSES, uncaused)
if #moves > 0 then
	call('HSET', CAUSES, unpack(moves))
	call('HDEL', CAUSES, unpack(moved))
end
local over, n = {}, 0
for _, member in ipairs(released) do
	if not holds[member] then
		n = n + 1
		over[n] = member
	end
end
each('ZREM', HELD, over)
local added, n = {}, 0
for key in pairs(due) do
	n = n + 1
	added[n] = key
end
if n > 0 then
	call('ZREM', DELAYS, unpack(added))
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
			again = again - (isDirty(state) and 1 or 0)
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
local allRepaired, occasional = repaired + (tonumber(meta[12]) or 0), '0 0 0 0 0'
if wantsAll then
	local head = queued > 0 and call('LINDEX', LINE, 0)
	local state = head and call('HGET', STATES, head)
	local oldest = state and #state == 16 and state or '0'
	occasional = format('%d %d %d %d %s', call('ZCARD', FAILURES) - 1, call('SCARD', ASIDE), countGivenUp(), allRepaired, oldest)
end
local reply = format('%s %s %d %d %d %d %d %d %.0f %d %s %d ', full and 'FULL' or 'OK', since, queued, processing, again, waiting,
	changed, unmatched, nextDue, paused and 1 or 0, occasional, got) .. table.concat(results)
call('HSET', REPLIES, session, number .. ' ' .. reply)
if not meta[9] or offset ~= tonumber(meta[10] or 0) or paused ~= (meta[11] == '1') or repaired > 0 then
	call('HSET', META, 'd', DESCRIPTION, 'o', whole(offset), 'p', paused and 1 or 0, 'r', allRepaired)
end
call('HSET', META, 'v', whole(leaseClock), 't', since, 'f', digits(fence), 'a', again)
if caused and tidies and call('HLEN', CAUSES) == 0 then
	call('HDEL', META, 'n')
end
if bucketChanged then
	call('HSET', META, 'b', meta[5], 'c', meta[6])
end
return reply
