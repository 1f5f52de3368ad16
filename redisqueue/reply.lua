-- Ends the batch: finds keys that have lost their place, wakes sessions for which there is work, and replies.

-- 1. Repair. A key with a state is either in the line or in HELD, as the numbers show. If they do not, an
-- interrupted batch or a lost part of the data has left keys without their place: a scan finds them in steps.
local queued = call('ZCARD', LINE)
if call('HLEN', STATES) - 1 ~= heldCount + queued then
	local step = call('HSCAN', STATES, call('HGET', META, 'repairAt') or 0, 'COUNT', 64)
	call('HSET', META, 'repairAt', step[1])
	for i = 1, #step[2], 2 do
		local key, state = step[2][i], step[2][i + 1]
		if isHeld(state) then -- Its worker may be alive, or the lease ends.
			repaired = repaired + call('ZADD', HELD, 0, holderOf(state) .. key)
		elseif key ~= FILLER then
			repaired = repaired + call('ZADD', LINE, 'NX', placeOf(key), key)
		end
	end
	heldCount, queued = cardOf(HELD), call('ZCARD', LINE)
end

-- 2. Sleepers. A session that gets fewer keys than it wants sleeps, if none are left or none may be handed
-- out. A batch wakes a few sleepers, at most one per queued key; these wake further ones.
local isLimited = queued > 0 and not isPaused and handedOut >= tokensLeft -- The start limit holds keys back.
local hasMore = queued > 0 and not isPaused and not isLimited -- keys that a session could get now
if handedOut < want and not hasMore then
	call('SADD', SLEEPERS, session)
elseif leavesSleepers then
	call('SREM', SLEEPERS, session)
end
if hasMore then
	for _, sleeper in ipairs(call('SPOP', SLEEPERS, math.min(queued, MAX_WOKEN))) do
		wake(sleeper)
	end
end

-- 3. Next call. Nothing wakes a session when the next key is due, a pause ends, or the start limit has tokens. A
-- sleeper calls then: each reply says when that is (callAt).
local waiting = cardOf(DELAYS)
local callAt = FOREVER
if waiting > 0 then
	callAt = tonumber(call('ZRANGE', DELAYS, 0, 0, 'WITHSCORES')[2])
end
if queued > 0 and isPaused then
	callAt = math.min(callAt, meta.pausedUntil)
elseif isLimited then -- when enough tokens for ten milliseconds have come, not at each token
	local tokens = math.max(1, math.min(queued, startBurst, math.floor(startRate / 100)))
	local tokensAt = math.ceil(fullAt - (startBurst - tokens) * tokenTime)
	callAt = math.min(callAt, math.max(now + 1, tokensAt))
end
-- Only sleepers call at callAt. If this session is none, and callAt may be earlier than a sleeper knows, wake
-- one: its next reply has callAt. It may be earlier if this session has left SLEEPERS, or if its batch has set a
-- delay or queued the first keys that are held back.
local hasFirstHeldBack = queued > 0 and not hasMore and queued <= #newlyQueued
local mayBeEarlier = leavesSleepers or soonest <= callAt or hasFirstHeldBack
if mayBeEarlier and callAt < FOREVER and call('SISMEMBER', SLEEPERS, session) == 0 then
	local sleeper = call('SRANDMEMBER', SLEEPERS)
	if sleeper then wake(sleeper) end
end

-- 4. Reply.
local allRepaired = meta.repaired + repaired
local limitedUntil = isLimited and math.min(math.ceil(fullAt), FOREVER) or 0
if isTool then limitedUntil = meta.limited end -- It does not know the start limit.
if not description or offset ~= meta.offset or repaired > 0 or limitedUntil ~= meta.limited then
	call('HSET', META, 'description', DESCRIPTION, 'offset', whole(offset), 'repaired', allRepaired,
		'limited', whole(limitedUntil))
end

-- These cost time, so they are read only for a batch that asks for them.
local failing, givenUp, oldest, pausedBy = 0, 0, '0', ''
if allCounts then
	failing, givenUp, oldest = cardOf(FAILURES), call('ZCARD', GIVEN_UP), oldestQueued()
	pausedBy = isPaused and call('HGET', META, 'pausedBy') or ''
end

if freed then
	results[#results + 1] = 'f' .. #freed .. ' ' .. freed
	call('HDEL', META, 'freed:' .. session)
end

-- parseReply in protocol.go reads the same in this order.
local callIn = callAt < FOREVER and math.max(0, callAt - now) or -1 -- -1: no call is needed
local pauseLeft = isPaused and meta.pausedUntil - now or 0
if meta.pausedUntil == FOREVER then pauseLeft = -1 end
local status = isFull and 'FULL' or 'OK'
results[0] = format('%s %d %d %d %.0f ', status, handedOut, changed, unmatched, callIn) ..
	format(COUNTS, nowDigits, queued, heldCount, dirty, waiting, failing, givenUp, allRepaired, oldest,
		now < limitedUntil and 1 or 0, pauseLeft, #pausedBy, pausedBy)
local reply = table.concat(results, '', 0) -- Lua hashes each string that it makes: this one is the longest.
call('HSET', BATCHES, session, seq .. ' ' .. whole(leaseEnds) .. ' ' .. status, 'reply:' .. session, reply)
return reply

end)() -- begun in batch.lua
