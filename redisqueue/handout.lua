-- The last part of batch.lua: it takes keys back from dead sessions, forgets what is old, hands out keys, writes and replies.

-- lose takes a key from a session whose lease has ended: its handler may have ended the process. From its second loss on, the key
-- waits before it comes again. The wait is random and grows, so that keys that were lost together come apart. In the end the key is
-- given up. A lost lease is no failure of the key: MaxRetries does not count it.
local function lose(holder, key, state)
	local losses, most, delay = tonumber(call('HGET', TROUBLES, 'l' .. key) or 0) + 1, setting('losses'), 0
	call('HSET', TROUBLES, 'l' .. key, losses)
	if losses > 1 then
		local random = (now % 1000 * 7919 + #released * 104729) % 1000 / 1000
		delay = math.ceil(math.min(lease * 2 ^ (losses - 2), math.max(setting('max'), lease)) * (1 + random) / 2)
	end
	if most > 0 and losses >= most then
		-- An add while the key was held may be confirmed, so it gets an attempt of its own.
		if not release(holder, key, state, true) then
			forgetNotes(key)
		end
		giveUp(key, whole(losses) .. ' the lease was lost ' .. whole(losses) .. ' times in a row: the handler may end its process')
	elseif delay > 0 then
		keepNotes(key, state)
		release(holder, key, state)
		addLater(key, delay, priority('p', key))
		setPriority('p', key, 0)
	else
		putBack(holder, key, state)
	end
end

if isFirst or not tool and (opCount == 0 or tidies) then
	local lost = call('HSETNX', STATES, FILLER, '') + call('ZADD', HELD, 0, FILLER)
	for _, set in ipairs({ DELAYS, FAILURES, RETRIES }) do -- The numbers count on it.
		lost = lost + call('ZADD', set, 'inf', FILLER)
	end
	repaired = repaired + (meta.time > 0 and lost or 0)
	-- A session that holds keys has a lease. Each such batch checks one session, and restores a lost lease from the last reply.
	local after = call('HGET', META, 'leaseChecked') or ''
	local member = call('ZRANGEBYLEX', HELD, '(' .. (after > FILLER and after or FILLER), '+', 'LIMIT', 0, 1)[1]
	local holder = member and sub(member, 1, 11)
	if holder and not call('ZSCORE', LEASES, holder) then
		local ends = tonumber(string.match(call('HGET', REPLIES, holder) or '', '^%d+ (%-?%d+)') or 0)
		call('ZADD', LEASES, whole(math.min(ends, leaseClock + lease)), holder)
		repaired = repaired + 1
	end
	local checked = holder and holder .. '\255' or ''
	if checked ~= after then
		call('HSET', META, 'leaseChecked', checked)
	end
end

-- Sessions whose leases have ended lose their keys. A busy replica looks for such sessions with one batch in four. The seq of a
-- session's last batch is kept, because its replica may send that batch again.
local reclaims = not tool and (opCount == 0 or seq % 4 == 1)
for _, dead in ipairs(reclaims and call('ZRANGEBYSCORE', LEASES, '-inf', whole(leaseClock), 'LIMIT', 0, SESSIONS) or {}) do
	local quit = call('ZSCORE', LEASES, dead) + 0 < 0
	local last = call('HGET', REPLIES, dead)
	local lost, all = readSome(chores, heldBy(dead))
	loadStates(lost)
	for i = #lost, 1, -1 do
		local key = lost[i]
		local state = states[key]
		released[#released + 1] = dead .. key
		if not state then -- The server has lost the state alone.
			add(key)
			repaired = repaired + 1
		elseif not isHeldBy(dead, state) then
			-- HELD still has what this batch has released.
		elseif quit then
			putBack(dead, key, state)
		else
			lose(dead, key, state)
		end
	end
	chores = chores - #lost
	if not all then
		break -- The next batch goes on with this session.
	end
	call('ZREM', LEASES, dead)
	call('SREM', SLEEPERS, dead)
	call('HDEL', META, 'name:' .. dead)
	call('ZADD', GONE, whole(leaseClock + REMEMBER), dead)
	if last then
		-- That the server was full the replica must know, or it takes the adds for executed.
		call('HSET', REPLIES, dead, string.match(last, '^%d+') .. ' -1 GONE' .. (string.match(last, '^%d+ %-?%d+( FULL)') or ''))
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
		if isHeld(states[keys[i]]) then
			call('ZADD', RETRIES, since, keys[i])
			table.remove(keys, i)
		end
	end
	each('ZREM', FAILURES, keys)
	each('ZREM', RETRIES, keys)
end

-- Forget keys that were given up too long ago, and the oldest of too many.
if tidies or gaveUp and not tool then
	local excess = math.min(call('ZCARD', GIVEN) - setting('keep'), 64)
	for _, key in ipairs(excess > 0 and call('ZRANGE', GIVEN, 0, excess - 1) or
		call('ZRANGEBYSCORE', GIVEN, '-inf', digits(now - setting('keepfor')), 'LIMIT', 0, 64)) do
		dropGivenUp(key)
	end
end

-- The start limit is a token bucket. startsAt is when the bucket is full again. So tokens are there for startBurst hand-outs, less those
-- in the time until then.
local startsAt, startRate, startBurst, interval, allowed = math.max(meta.startsAt, now), 0, 0, 0, math.huge
if limitsStarts then
	startRate, startBurst = setting('startrate'), setting('startburst')
	interval = 1000000 / startRate
	allowed = math.max(0, math.floor(startBurst - (startsAt - now) / interval + 1e-6))
end

-- Hand out keys: those of the line, in the order of their places. Keys that this batch puts back come before all others.
local got, bytes, popped = 0, 0, 0
local paused, failing = meta.pausedUntil > now, call('ZCARD', FAILURES) > 1
local function wants() return not paused and got < want and got < allowed and bytes < BYTES end
local dropped = {} -- fields of NOTES: the notes of queued keys that are handed out
local function handOut(key)
	fence = fence + 1
	local itsFence = digits(fence)
	local failures, delay, causes, rank = 0, 0, '', '0'
	if failing then
		failures, delay = failuresOf(key)
	end
	if noted then
		local notes = call('HMGET', NOTES, 'n' .. key, 'p' .. key)
		causes, rank = notes[1] or '', notes[2] or '0'
		for i, field in ipairs({ 'h' .. key, 'q' .. key }) do
			if notes[i] then
				call('HSET', NOTES, field, notes[i])
			end
		end
		dropped[#dropped + 1], dropped[#dropped + 2] = 'n' .. key, 'p' .. key
	end
	-- The state of a queued key is <since>.
	local result = 'k' .. #key .. ' ' .. itsFence .. ' ' .. states[key] .. ' ' .. whole(failures) .. ' ' .. whole(delay) .. ' ' ..
		rank .. ' ' .. #causes .. ' ' .. key .. causes
	results[#results + 1] = result
	set(key, 'p' .. session .. itsFence)
	got = got + 1
	bytes = bytes + #result
	held[2 * got - 1], held[2 * got] = '0', session .. key
end

-- While the line is empty and no key has a priority, what this batch queues need not enter the line to be handed out.
local queued, first = call('ZCARD', LINE), 1
if queued == 0 and not noted then
	while #front > 0 do
		table.insert(tail, 1, table.remove(front, 1))
	end
	while wants() and first <= #tail do
		if isQueued(states[tail[first]]) then
			handOut(tail[first])
		end
		first = first + 1
	end
end
local places = {} -- arguments for ZADD of LINE
for i = first, #tail do
	local key = tail[i]
	if isQueued(states[key]) then
		places[#places + 1], places[#places + 2] = whole(placeOf(key)), key
	end
end
each('ZADD', LINE, places)
local head = #front > 0 and (call('ZRANGE', LINE, 0, 0, 'WITHSCORES')[2] or fence)
for i, key in ipairs(front) do -- The last one comes first.
	if isQueued(states[key]) then
		call('ZADD', LINE, whole(math.max(head - i, -2 ^ 53)), key)
	end
end

local asked = paused and 0 or math.min(want, allowed) - got
local line = readSome(asked, function(from, n) return call('ZRANGE', LINE, from, from + n - 1) end)
loadStates(line)
for _, key in ipairs(line) do
	if not wants() then
		break
	end
	popped = popped + 1
	if not states[key] then -- The server has lost the state alone, or an interrupted batch has not written it.
		set(key, since)
		repaired = repaired + 1
	end
	if isQueued(states[key]) then
		handOut(key)
	else
		repaired = repaired + 1 -- An interrupted batch has handed it out.
	end
end

-- Write back. A key has entered the line before it gets the state of a queued key, and leaves the line after it has lost that state.
local present, absent = {}, {}
for key in pairs(touched) do
	local state = states[key]
	if state then
		present[#present + 1], present[#present + 2] = key, state
	else
		absent[#absent + 1] = key
	end
end
each('ZADD', HELD, held)
each('HSET', STATES, present)
each('HDEL', STATES, absent)
if popped > 0 then
	call('ZREMRANGEBYRANK', LINE, 0, popped - 1)
end
each('HDEL', NOTES, dropped)
local noLongerHeld = {}
for _, member in ipairs(released) do
	if not isHeldBy(sub(member, 1, 11), states[sub(member, 12)]) then
		noLongerHeld[#noLongerHeld + 1] = member
	end
end
each('ZREM', HELD, noLongerHeld)
for key in pairs(due) do
	call('ZREM', DELAYS, key)
end

-- A key with a state is either in the line or in HELD, as the numbers show. If they do not, an interrupted batch or a lost part of the
-- data has left keys without their place: a scan finds them in steps.
local processing = call('ZCARD', HELD) - 1
if #places > 0 or #front > 0 or popped > 0 then
	queued = call('ZCARD', LINE)
end
if processing <= 0 then
	processing, dirty = 0, 0
end
if call('HLEN', STATES) - 1 ~= processing + queued then
	local step = call('HSCAN', STATES, string.match(call('HGET', META, 'repairAt') or '', '^%d+$') or '0', 'COUNT', 64)
	call('HSET', META, 'repairAt', step[1])
	for i = 1, #step[2], 2 do
		local key, state = step[2][i], step[2][i + 1]
		local holds = isHeld(state) and isState(state)
		if key ~= FILLER and holds and not call('ZSCORE', HELD, holderOf(state) .. key) then
			-- The worker may be alive: when its lease ends, the key comes again.
			repaired = repaired + call('ZADD', HELD, 0, holderOf(state) .. key)
		elseif key ~= FILLER and not holds and not call('ZSCORE', LINE, key) then
			repaired = repaired + call('ZADD', LINE, whole(placeOf(key)), key)
		end
	end
	processing, queued = call('ZCARD', HELD) - 1, call('ZCARD', LINE)
end

-- The start limit holds keys back if tokens for no further hand-out are left.
local limited = false
if limitsStarts then
	startsAt = startsAt + got * interval
	limited = queued > 0 and not paused and got >= allowed
	if got > 0 then
		call('HSET', META, 'startsAt', whole(math.ceil(startsAt)))
	end
end
if not tool and limited ~= (meta.limitedAt > 0) then
	call('HSET', META, 'limitedAt', limited and since or 0)
end

-- A session that gets fewer keys than it wants sleeps, if none are left or none may be handed out. A batch wakes a few sleepers, at most
-- one per queued key; these wake further ones.
local heldBack = paused or limited
if got < want and (heldBack or queued == 0) then
	call('SADD', SLEEPERS, session)
elseif asleep then
	call('SREM', SLEEPERS, session)
end
if queued > 0 and not heldBack then
	for _, sleeper in ipairs(call('SPOP', SLEEPERS, math.min(queued, WAKE_UP)) or {}) do
		wake(sleeper)
	end
end

-- A sleeper, the keeper, calls at keeperCalls, when the next key is due, or a pause ends, or tokens of the start limit are there: this
-- session if it sleeps, else, if need be, one that is woken.
local waiting = call('ZCARD', DELAYS) - 1
local nextDue, at = -1, math.huge
if waiting > 0 then
	at = math.min(call('ZRANGE', DELAYS, 0, 0, 'WITHSCORES')[2] + 0, 2 ^ 53) -- It may be infinite.
end
if queued > 0 and paused and meta.pausedUntil < FOREVER then
	at = math.min(at, meta.pausedUntil)
elseif limited then -- Not for each token: those of ten milliseconds come together, if the bucket has room for them.
	local tokens = math.max(1, math.min(queued, startBurst, math.floor(startRate / 100)))
	at = math.min(at, math.max(now + 1, math.ceil(startsAt - (startBurst - tokens) * interval)))
end
if at < math.huge then
	nextDue = math.max(0, at - now)
	local sleeps = call('SISMEMBER', SLEEPERS, session) == 1
	if sleeps or not keeper or meta.keeperCalls > at or call('SISMEMBER', SLEEPERS, keeper) == 0 then
		keeper = sleeps and session or call('SRANDMEMBER', SLEEPERS)
		if keeper then
			call('HSET', META, 'keeper', keeper, 'keeperCalls', whole(at))
		end
		if keeper and not sleeps then
			wake(keeper)
		end
	end
end

-- These numbers cost time, so they are read only for a batch that asks for them.
local allRepaired, occasional = repaired + meta.repaired, '0 0 0 0 0'
if wantsAll then
	local head = queued > 0 and call('ZRANGE', LINE, 0, 0)[1]
	local state = head and call('HGET', STATES, head)
	local oldest = isQueued(state) and isState(state) and state or '0'
	occasional = format('%d %d %d %d %s', math.max(0, call('ZCARD', FAILURES) - 1), call('SCARD', ASIDE), call('ZCARD', GIVEN), allRepaired, oldest)
end
if wantsAll and paused then
	local by = call('HGET', META, 'pausedBy') or ''
	results[#results + 1] = 'p' .. #by .. ' ' .. by
end
local pauseLeft = not paused and 0 or meta.pausedUntil == FOREVER and -1 or meta.pausedUntil - now
local reply = format('%s %s %d %d %d %d %d %d %.0f %.0f %d %s %d ', full and 'FULL' or 'OK', since, queued, math.max(0, processing),
	math.max(0, dirty), math.max(0, waiting), changed, unmatched, nextDue, pauseLeft, limited and 1 or 0, occasional, got) .. table.concat(results)
call('HSET', REPLIES, session, seq .. ' ' .. whole(leaseEnds) .. ' ' .. reply)
if not description or offset ~= meta.offset or repaired > 0 then
	call('HSET', META, 'description', DESCRIPTION, 'offset', whole(offset), 'repaired', allRepaired)
end
-- A tool leaves the clocks alone: its lease is short, so it would hold the lease clock back.
call('HSET', META, 'dirty', dirty)
if not tool then
	call('HSET', META, 'leaseTime', whole(leaseClock), 'time', whole(now), 'fence', whole(fence))
elseif #places > 0 then
	call('HSET', META, 'fence', whole(fence))
end
if bucketChanged then
	call('HSET', META, 'tokens', format('%.6f', meta.tokens), 'filled', whole(meta.filled))
end
return reply
