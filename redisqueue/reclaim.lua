-- Takes keys back from dead sessions, and forgets what is old. None of this is urgent: see doesChores.

-- The fillers must be there: they are subtracted when keys are counted.
if isFirst or doesChores then
	local missing = call('HSETNX', STATES, FILLER, '') + call('ZADD', HELD, 0, FILLER)
	for _, set in ipairs({ DELAYS, FAILURES, RETRIES }) do
		missing = missing + call('ZADD', set, 'inf', FILLER)
	end
	repaired = repaired + (meta.time > 0 and missing or 0)
end

if doesChores then
	-- A session that holds keys has a lease. Chores check the next session, and restore a lost lease from that session's last batch.
	local lastChecked = call('HGET', META, 'leaseChecked') or ''
	local member = call('ZRANGEBYLEX', HELD, '(' .. (lastChecked > FILLER and lastChecked or FILLER), '+', 'LIMIT', 0, 1)[1]
	local holder = member and sub(member, 1, 11)
	if holder and not call('ZSCORE', LEASES, holder) then
		local ends = tonumber(string.match(call('HGET', BATCHES, holder) or '', '^%d+ (%-?%d+)') or 0)
		call('ZADD', LEASES, whole(math.min(ends, leaseClock + lease)), holder)
		repaired = repaired + 1
	end
	call('HSET', META, 'leaseChecked', holder and holder .. '\255' or '') -- behind the last key of that session; '' begins again

	-- Sessions whose leases have ended lose their keys. The seq of a session's last batch is kept, because its replica may send that again.
	local deadSessions = call('ZRANGEBYSCORE', LEASES, '-inf', whole(leaseClock), 'LIMIT', 0, MAX_SESSIONS)
	if #deadSessions > 0 then
		mustNotStop() -- Lost leases are counted.
	end
	for _, dead in ipairs(deadSessions) do
		local hasQuit = tonumber(call('ZSCORE', LEASES, dead)) < 0
		local lastBatch = call('HGET', BATCHES, dead) or ''
		local held, all = readSome(keysLeft, keysHeldBy(dead))
		loadStates(held)
		for _, key in ipairs(held) do
			local state = states[key]
			released[#released + 1] = dead .. key
			if isHeldBy(dead, state) then
				(hasQuit and takeBack or lose)(dead, key, state)
			elseif not state and not touched[key] then -- The server has lost the state alone.
				add(key)
				repaired = repaired + 1
			end -- Otherwise this batch has released it.
		end
		keysLeft = keysLeft - #held
		if not all then
			break -- The next batch goes on with this session.
		end
		call('ZREM', LEASES, dead)
		call('SREM', SLEEPERS, dead)
		call('HDEL', META, 'name:' .. dead)
		call('ZADD', GONE, whole(leaseClock + math.max(10 * lease, 3600000000)), dead)
		local lastSeq = string.match(lastBatch, '^%d+')
		if lastSeq then
			-- That the server was full the replica must know, or it takes the adds for executed.
			call('HSET', BATCHES, dead, lastSeq .. ' -1 GONE' .. (string.match(lastBatch, '^%d+ %-?%d+( FULL)') or ''))
		end
	end

	-- Forget sessions that have ended, failures, and keys that were given up.
	local gone = call('ZRANGEBYSCORE', GONE, '-inf', whole(leaseClock), 'LIMIT', 0, MAX_SESSIONS)
	callAll('ZREM', GONE, gone)
	callAll('HDEL', BATCHES, gone)
	local before = whole(now - setting('forget'))
	local failed = readSome(keysLeft, function(from, n) return call('ZRANGEBYSCORE', RETRIES, '-inf', before, 'LIMIT', from, n) end)
	loadStates(failed)
	for _, key in ipairs(failed) do
		if isHeld(states[key]) then -- It keeps its count: its call may fail again.
			call('ZADD', RETRIES, nowDigits, key)
		else
			forgetFailures(key)
		end
	end
	dropOldGivenUp()
end
