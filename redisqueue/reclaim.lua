-- Takes keys back from dead sessions, and forgets what is old. None of this is urgent: see doesChores.

if doesChores then

-- restoreLease checks that the next session in HELD, behind the place leaseChecked, has a lease, and restores a
-- lost one from its last batch.
local function restoreLease()
	local leaseChecked = call('HGET', META, 'leaseChecked') or ''
	local from = leaseChecked > FILLER and '[' .. leaseChecked or '(' .. FILLER
	local member = call('ZRANGEBYLEX', HELD, from, '+', 'LIMIT', 0, 1)[1]
	local holder = member and sub(member, 1, 11)
	if holder and not call('ZSCORE', LEASES, holder) then
		local ends = string.match(call('HGET', BATCHES, holder) or '', '^%d+ (%-?%d+)') or 0
		call('ZADD', LEASES, whole(math.min(ends, leaseClock + lease)), holder)
		repaired = repaired + 1
	end
	call('HSET', META, 'leaseChecked', holder and behind(holder) or '') -- '' begins again
end

-- takeKey takes a key from a dead session. hasQuit: the session was ending, so that it has lost nothing.
local function takeKey(dead, key, hasQuit)
	local state = states[key] -- false if this batch has released it, or the server has lost it
	released[#released + 1] = dead .. key
	if not isHeldBy(dead, state) then
		if not state and not touched[key] then
			add(key)
			repaired = repaired + 1
		end
	elseif isAnswered(state) then -- Its process has survived the call.
		call('HDEL', TROUBLES, LOSSES .. key, AT_ONCE .. key)
		release(dead, key, state, true)
	elseif hasQuit then
		-- Its handler has not returned.
		setTrouble(AT_ONCE, key, whole((call('HGET', TROUBLES, AT_ONCE .. key) or 0) + 1))
		takeBack(dead, key, state)
	else
		lose(dead, key, state)
	end
end

-- bury forgets a dead session without keys, but for the seq of its last batch: its replica may send that again.
-- It must know that the server was full: otherwise it would take the adds for executed.
local function bury(dead)
	call('ZREM', LEASES, dead)
	call('SREM', SLEEPERS, dead)
	call('HDEL', META, 'name:' .. dead, 'ends:' .. dead, 'freed:' .. dead)
	call('ZADD', GONE, whole(leaseClock + math.max(10 * lease, 3600000000)), dead)
	local lastBatch = call('HGET', BATCHES, dead) or ''
	local lastSeq = string.match(lastBatch, '^%d+')
	if lastSeq then
		local wasFull = string.match(lastBatch, '^%d+ %-?%d+( FULL)') or ''
		call('HSET', BATCHES, dead, lastSeq .. ' -1 GONE' .. wasFull)
		call('HDEL', BATCHES, 'reply:' .. dead)
	end
end

-- forgetOld forgets sessions that have ended long ago, failures, and keys that were given up.
local function forgetOld()
	local gone = call('ZRANGEBYSCORE', GONE, '-inf', whole(leaseClock), 'LIMIT', 0, MAX_SESSIONS)
	callAll('ZREM', GONE, gone)
	for _, ended in ipairs(gone) do
		call('HDEL', BATCHES, ended, 'reply:' .. ended)
	end
	local expired = whole(now - setting('forget'))
	local failed = readSome(choresLeft, function(from, n)
		return call('ZRANGEBYSCORE', RETRIES, '-inf', expired, 'LIMIT', from, n)
	end)
	loadStates(failed)
	for _, key in ipairs(failed) do
		if isHeld(states[key]) then
			-- Its call may fail again, so its count expires later, as if its delay had ended just now. (now itself
			-- may be <added> by another add: see isAddedByRetryAlone.)
			local state, isRetry = states[key], isAddedByRetryAlone(states[key], retryOf(key))
			local retry = digits(now - 1)
			call('ZADD', RETRIES, retry, key)
			if isRetry then setState(key, sub(state, 1, 28) .. retry) end
		else
			forgetFailures(key)
		end
	end
	forgetOldGivenUp()
end

restoreLease() -- first, because HELD still has the keys of the sessions that end now
for _, dead in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', whole(leaseClock), 'LIMIT', 0, MAX_SESSIONS)) do
	raiseErrorsNow() -- Lost leases are counted.
	local hasQuit = tonumber(call('ZSCORE', LEASES, dead)) < 0 or call('HGET', META, 'ends:' .. dead)
	local itsKeys, areAll = readSome(choresLeft, keysHeldBy(dead))
	loadStates(itsKeys)
	for _, key in ipairs(itsKeys) do
		takeKey(dead, key, hasQuit)
	end
	choresLeft = choresLeft - #itsKeys
	if not areAll then break end -- The next batch continues with this session.
	bury(dead)
end
forgetOld()

end
