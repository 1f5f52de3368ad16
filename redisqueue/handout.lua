-- The third part of batch.lua: it takes keys back from dead sessions, forgets what is old, hands out keys, writes and replies.

-- lose takes a key from a session whose lease has ended: its handler may have ended the process. From its second loss on, the key
-- waits before it comes again. The wait is random and grows, so that keys that were lost together come apart. In the end the key is
-- given up. A key that is no suspect counts only a quarter of a loss: a younger key of the same session is more likely to blame.
local function lose(holder, key, state, isSuspect)
	local losses, most, delay = tonumber(call('HGET', LOSSES, key) or 0) + (isSuspect and 1 or 0.25), setting('losses'), 0
	call('HSET', LOSSES, key, losses)
	if losses > 1 then
		local random = (now % 1000 * 7919 + #released * 104729) % 1000 / 1000
		delay = math.ceil(math.min(lease * 2 ^ (losses - 2), math.max(setting('max'), lease)) * (1 + random) / 2)
	end
	if most > 0 and losses >= most then
		-- An add while the key was held may be confirmed, so it gets an attempt of its own.
		if not release(holder, key, state, true) then
			forgetCauses(key)
		end
		giveUp(key, whole(losses) .. ' the lease was lost ' .. whole(losses) .. ' times in a row: the handler may end its process')
	elseif delay > 0 then
		keepCauses(key)
		release(holder, key, state)
		addLater(key, delay)
	else
		putBack(holder, key, state)
	end
end

-- Sessions whose leases have ended lose their keys. A busy replica looks for such sessions with one batch in four. The seq of a
-- session's last batch is kept, because its replica may send that batch again.
local reclaims = not tool and (opCount == 0 or seq % 4 == 1)
local ended = reclaims and call('ZRANGEBYSCORE', LEASES, '-inf', whole(leaseClock), 'LIMIT', 0, SESSIONS) or {}
for _, dead in ipairs(ended) do
	local quit = call('ZSCORE', LEASES, dead) + 0 < 0
	local last = call('HGET', REPLIES, dead)
	-- A handler is a long one if it had run for a lease, that is, since longSince, at the time of the session's last reply.
	local heard = last and string.match(last, '^%d+ %-?%d+ %u+ (%d+)')
	local longSince = heard and tonumber(heard, 10) - lease or 0
	local lost, all = readSome(chores, heldBy(dead))
	loadStates(lost)
	-- When each key was handed out, nil if the session does not hold it: HELD still has what this batch has released.
	local begun, allLong = {}, true
	for i, key in ipairs(lost) do
		released[#released + 1] = dead .. key
		local state = states[key]
		begun[i] = state and #state > 16 and sub(state, 2, 12) == dead and tonumber(sub(state, 13, 28), 10) or nil
		allLong = allLong and (begun[i] or 0) <= longSince
	end
	for i = #lost, 1, -1 do
		local key = lost[i]
		if begun[i] and quit then
			putBack(dead, key, states[key])
		elseif begun[i] then
			lose(dead, key, states[key], allLong or begun[i] > longSince)
		end
	end
	chores = chores - #lost
	if not all then
		break -- The next batch goes on with this session.
	end
	call('ZREM', LEASES, dead)
	call('SREM', SLEEPERS, dead)
	call('HDEL', NAMES, dead)
	call('ZADD', GONE, whole(leaseClock + REMEMBER), dead)
	if last then
		local refused = find(last, '^%d+ %-?%d+ FULL') and ' FULL' or '' -- The replica must know it, or it takes the adds for executed.
		call('HSET', REPLIES, dead, string.match(last, '^%d+') .. ' -1 GONE' .. refused)
	end
end

-- Forget the oldest of the sessions that have ended, and of the failures.
if tidies then
	local forgotten = call('ZRANGEBYSCORE', GONE, '-inf', whole(leaseClock), 'LIMIT', 0, SESSIONS)
	each('ZREM', GONE, forgotten)
	each('HDEL', REPLIES, forgotten)
	local before = whole(now - setting('forget'))
	local keys = readSome(chores, function(from, n) return call('ZRANGEBYSCORE', RETRIES, '-inf', before, 'LIMIT', from, n) end)
	chores = chores - #keys
	loadStates(keys)
	for i = #keys, 1, -1 do -- A key that is held keeps its count: its call may fail again.
		if #(states[keys[i]] or '') >= 28 then
			call('ZADD', RETRIES, since, keys[i])
			table.remove(keys, i)
		end
	end
	each('ZREM', FAILURES, keys)
	each('ZREM', RETRIES, keys)
	each('HDEL', LASTS, keys)
end

-- Forget keys that were given up too long ago, and the oldest of too many.
if tidies or gaveUp and not tool then
	givenUp = givenUp or call('ZCARD', GIVEN)
	local excess, old = math.min(givenUp - setting('keep'), 64), {}
	if excess > 0 then
		old = call('ZRANGE', GIVEN, 0, excess - 1)
	elseif givenUp > 0 then
		old = call('ZRANGEBYSCORE', GIVEN, '-inf', digits(now - setting('keepfor')), 'LIMIT', 0, 64)
	end
	for _, key in ipairs(old) do
		dropGivenUp(key)
	end
end

-- Hand out keys: first those that this batch puts back, then those in the line, then those that this batch queues.
local got, bytes, popped = 0, 0, 0
local paused, failing = pausedUntil > now, call('ZCARD', FAILURES) > 1
local function wants() return not paused and got < want and bytes < BYTES end
local moves, moved = {}, {} -- arguments for HSET and HDEL of CAUSES
local function handOut(key)
	fence = fence + 1
	local itsFence = digits(fence)
	local failures, delay = 0, 0
	if failing then
		failures, delay = failuresOf(key)
	end
	-- The state of a queued key is <since>.
	local result = 'k' .. #key .. ' ' .. itsFence .. ' ' .. states[key] .. ' ' .. whole(failures) .. ' ' .. whole(delay) .. ' ' .. key
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
	held[2 * got - 1], held[2 * got] = '0', member
	holds[member] = true
end
while wants() and #front > 0 do
	local key = table.remove(front)
	if isQueued(key) then
		handOut(key)
	end
end
local page = 2 -- how many places are read at once: few at first, because the keys may be very long
while wants() and popped - got < SKIP do -- One batch skips about SKIP places whose keys are not queued.
	local asked = math.min(want - got, page)
	local line = call('LRANGE', LINE, popped, popped + asked - 1)
	loadStates(line)
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

-- Write back. A key enters the line before it gets the state of a queued key, and leaves the line after it has lost that state.
local present, absent = {}, {}
for key in pairs(touched) do
	local state = states[key]
	if state then
		present[#present + 1], present[#present + 2] = key, state
	else
		absent[#absent + 1] = key
	end
end
each('RPUSH', LINE, left)
each('LPUSH', LINE, front) -- If any of these are left, no key was taken from the line, so popped is 0.
each('ZADD', HELD, held)
each('HSET', STATES, present)
each('HDEL', STATES, absent)
if popped > 0 then
	call('LPOP', LINE, popped)
end
if caused then
	each('HDEL', CAUSES, uncaused)
	each('HSET', CAUSES, moves)
	each('HDEL', CAUSES, moved)
end
local over = {}
for _, member in ipairs(released) do
	if not holds[member] then
		over[#over + 1] = member
	end
end
each('ZREM', HELD, over)
local passed = {}
for key in pairs(due) do
	passed[#passed + 1] = key
end
each('ZREM', DELAYS, passed)

-- An interrupted script may leave queued keys that are not in the line. While the line is empty, a scan finds them in steps.
local processing = call('ZCARD', HELD) - 1
local queued = math.max(0, call('HLEN', STATES) - 1 - processing)
if processing == 0 then
	again = 0
end
if queued > 0 and call('LLEN', LINE) == 0 then
	local step = call('HSCAN', STATES, string.match(call('HGET', META, 'repairAt') or '', '^%d+$') or '0', 'COUNT', 64)
	call('HSET', META, 'repairAt', step[1])
	for i = 1, #step[2], 2 do
		local key, state = step[2][i], step[2][i + 1]
		local holder = #state >= 28 and sub(state, 2, 12)
		if key ~= FILLER and not (holder and call('ZSCORE', HELD, holder .. key)) then
			call('RPUSH', LINE, key)
			call('HSET', STATES, key, since)
			again = again - (#state == 44 and 1 or 0)
			repaired = repaired + 1
		end
	end
end

-- A session that gets fewer keys than it wants sleeps, if none are left or the queue is paused. A batch wakes a few sleepers, at most one
-- per queued key; these wake further ones.
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

-- A sleeper, the keeper, calls at keeperCalls, when the next key is due: this session if it sleeps, else, if need be, one that is woken.
waiting = waiting or call('ZCARD', DELAYS) - 1
local nextDue, at = -1, nil
if waiting > 0 then
	at = math.min(call('ZRANGE', DELAYS, 0, 0, 'WITHSCORES')[2] + 0, 2 ^ 53) -- It may be infinite.
end
if queued > 0 and paused and pausedUntil < FOREVER then
	at = math.min(at or pausedUntil, pausedUntil) -- The end of a pause is like a key that comes due.
end
if at then
	nextDue = math.max(0, at - now)
	local sleeps = call('SISMEMBER', SLEEPERS, session) == 1
	if sleeps or not keeper or keeperCalls > at or call('SISMEMBER', SLEEPERS, keeper) == 0 then
		local before = keeper
		keeper = sleeps and session or call('SRANDMEMBER', SLEEPERS)
		if keeper and not sleeps then
			wake(keeper)
		end
		if keeper and (keeper ~= before or at ~= keeperCalls) then
			call('HSET', META, 'keeper', keeper, 'keeperCalls', whole(at))
		end
	end
end

-- These numbers cost time, so they are read only for a batch that asks for them.
local allRepaired, occasional = repaired + repairedBefore, '0 0 0 0 0'
if wantsAll then
	local head = queued > 0 and call('LINDEX', LINE, 0)
	local state = head and call('HGET', STATES, head)
	local oldest = state and #state == 16 and not find(state, '%D') and state or '0'
	occasional = format('%d %d %d %d %s', call('ZCARD', FAILURES) - 1, call('SCARD', ASIDE), givenUp or call('ZCARD', GIVEN), allRepaired, oldest)
end
local pauseLeft = not paused and 0 or pausedUntil == FOREVER and -1 or pausedUntil - now
local reply = format('%s %s %d %d %d %d %d %d %.0f %.0f %s %d ', full and 'FULL' or 'OK', since, queued, processing, again, waiting,
	changed, unmatched, nextDue, pauseLeft, occasional, got) .. table.concat(results)
call('HSET', REPLIES, session, seq .. ' ' .. whole(leaseEnds) .. ' ' .. reply)
if not description or offset ~= offsetBefore or repaired > 0 then
	call('HSET', META, 'description', DESCRIPTION, 'offset', whole(offset), 'repaired', allRepaired)
end
if tool then -- A tool leaves the clocks alone: its lease is short, so it would hold the lease clock back.
	call('HSET', META, 'again', again)
else
	call('HSET', META, 'leaseTime', whole(leaseClock), 'time', whole(now), 'fence', whole(fence), 'again', again)
end
if bucketChanged then
	call('HSET', META, 'tokens', format('%.6f', tokens), 'filled', whole(filled))
end
return reply
