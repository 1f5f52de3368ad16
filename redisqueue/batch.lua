-- Executes one batch of a replica's operations, atomically and once. Ten files make one script. Errors name
-- its lines; this prints line 123:
--
--   cat {data,batch,states,notes,keys,failures,operations,reclaim,handout,reply}.lua | sed -n 123p
--
-- Beside functions and constants, each file has these from the files before it:
--
--   batch       the arguments; description, freed, offset, now, nowDigits, leaseClock, isFull,
--               doesChores; and what others change: fence, dirty, repaired, meta, leaseEnds, leavesSleepers
--   states      what the batch changes, until handout writes it; changed, unmatched and results, for reply
--   notes       hasNotes, false while no key has any
--   handout     what was handed out, how many keys are held, whether the queue is paused, and the numbers of
--               the start limit
--
-- An error (the user may no longer call a command, another program has written a Redis key) stops the script,
-- and leaves the batch half done. The replica sends it again until it succeeds. Then the result must be that
-- of a batch that ran once:
--   * Adds, and what needs the key's fence, may run twice. handout.lua writes STATES, HELD and new places in an
--     order that loses no key.
--   * Hand-outs that the replica does not know are taken back: see knownFence.
--   * What counts, or takes a key from a list, must run once: before it, raiseErrorsNow makes sure that no
--     error can come later.

-- To make a function, Lua searches all variables in use of the function around it for each name that the new
-- one uses, but takes those of an outer function, here of data.lua, at once. That saves a tenth of a call.
-- reply.lua ends it.
return (function()

local session, seq, lease, want, flags = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local SETTINGS, DESCRIPTION, FIRST_OP = ARGV[6], ARGV[7], 8
local leavesSleepers = find(flags, 'leavesSleepers', 1, true) -- unless it then sleeps: see reply.lua
local allCounts = find(flags, 'allCounts', 1, true) -- asks for the numbers that not every reply has
local isTool = find(flags, 'isTool', 1, true) -- takes no keys back, and forgets nothing
-- After an interrupted attempt: the replica knows of the hand-outs up to this fence.
local knownFence = string.match(flags, 'knownFence=(%d+)')
local isFirst, isCheck = seq == '1', seq == '0' -- A check asks whether the replica's batches would be executed.

-- How much one batch does at most of the work that has piled up. The next batch continues.
local MAX_CHORES = 192 -- keys of passed delays, of dead sessions, and of old failures together
local MAX_DUE = 128 -- keys of passed delays, so that some of MAX_CHORES are left
local MAX_SESSIONS, MAX_WOKEN = 8, 8 -- dead sessions, sleepers
local choresLeft = MAX_CHORES

-- setting returns one of the replica's settings, see Config.settings.
local function setting(name) return tonumber(string.match(SETTINGS, ' ' .. name .. '=(%S+)')) end

-- A batch that was executed before gets the same reply, or GONE if the session has ended since. A batch that
-- is not the next one was overtaken, or the server has lost batches and their hand-outs: the session is over.
local lastLeaseEnds
do
	local last = call('HGET', BATCHES, session) or ''
	local lastSeq, ends, status = string.match(last, '^(%d+) (%-?%d+) (.*)')
	if lastSeq == seq then
		local reply = call('HGET', BATCHES, 'reply:' .. session)
		return reply or find(status, '^GONE') and status or 'LOST'
	end
	if not isCheck and (lastSeq or 0) + 1 ~= tonumber(seq) then return 'LOST' end
	lastLeaseEnds = ends
end

-- The fields of META:
--
--   description     what all replicas must have in common
--   time, offset    the queue's clock at the last batch, and how far it is ahead of the server's
--   leaseTime       the lease clock
--   fence           the last fence or place
--   dirty           how many keys are processing+dirty
--   pausedUntil     when the queue's pause ends, FOREVER without an end
--   pausedBy        <time> <name>: when that was set, and by which replica
--   limited         until when StartLimit may hold keys back
--   startFullAt…    a token bucket of it: see handout.lua
--   repaired        how many entries were repaired
--   repairAt        where the scan for such entries continues
--   leaseChecked    where the search for sessions without a lease continues
--
-- and of each session:
--
--   name:<session>  the name of its replica
--   ends:<session>  that it is ending: what it leaves behind is no loss
--   freed:<session> fences of its hand-outs that an operator has ended
local meta = {} -- its numbers
local description, freed
do
	local numbers = { 'time', 'offset', 'leaseTime', 'fence', 'dirty', 'repaired', 'pausedUntil', 'limited' }
	local found = call('HMGET', META, 'description', 'freed:' .. session, unpack(numbers))
	description, freed = found[1], found[2]
	if description and description ~= DESCRIPTION then
		return 'REFUSED ' .. description .. ', in the field description of ' .. META
	end
	for i, field in ipairs(numbers) do
		meta[field] = tonumber(found[i + 2] or 0)
	end
end

local now, offset, leaseClock
do
	-- The queue's clock never goes back. So nothing waits longer when the server's clock is set back.
	local time = call('TIME')
	now = time[1] * 1000000 + time[2] + meta.offset
	local lastNow = meta.time > 0 and meta.time or now
	offset = meta.offset + math.max(0, lastNow - now)
	now = math.max(now, lastNow)

	-- The lease clock moves at most half a lease from batch to batch, and live replicas send a batch every
	-- third of a lease. So the lease of one that calls in time does not end because the server's clock was
	-- set, or because the server hung or was down. If the server has lost that clock, it starts again
	-- a lease before the last lease's end: from 0 it would reach that too late.
	leaseClock = meta.leaseTime
	if leaseClock == 0 then
		local lastEnd = call('ZRANGE', LEASES, -1, -1, 'WITHSCORES')[2] or 0
		leaseClock = math.max(0, lastEnd - lease)
	end
	leaseClock = leaseClock + math.min(now - lastNow, lease / 2)
end

local nowDigits = digits(now)
math.randomseed(now % 2 ^ 31) -- Redis seeds each script alike.
local fence, dirty, repaired = math.max(meta.fence, now), meta.dirty, 0

-- raiseErrorsNow raises the errors that could stop the script later: a command is forbidden, or a Redis key
-- has a foreign type. Neither changes while a script runs.
local raisesNone = false -- true after the first call
local function raiseErrorsNow()
	if raisesNone then return end
	raisesNone = true
	for command in string.gmatch('HGET HMGET HSET HSETNX HDEL HLEN HSCAN ' ..
		'ZSCORE ZMSCORE ZADD ZREM ZCARD ZRANGE ZRANGEBYSCORE ZRANGEBYLEX ' ..
		'ZREMRANGEBYRANK RPUSH LLEN PEXPIRE SADD SREM SPOP SCARD SISMEMBER SRANDMEMBER', '%u+') do
		if not redis.acl_check_cmd(command, META) then
			error(redis.error_reply('NOPERM the queue needs the command ' .. command))
		end
	end
	for command, names in pairs({
		HLEN = { META, STATES, BATCHES, TROUBLES, NOTES }, SCARD = { SLEEPERS }, LLEN = { WAKE },
		ZCARD = { LINE, DELAYS, FAILURES, RETRIES, LEASES, HELD, GONE, GIVEN_UP },
	}) do
		for _, name in ipairs(names) do call(command, name) end
	end
end

if isFirst or isCheck then
	raiseErrorsNow()
elseif tonumber(lastLeaseEnds) <= leaseClock then
	return 'LOST'
end

-- A full server refuses a script's first write, unless that can only free memory; after such a write it
-- refuses none. Then all operations but adds are executed: they take little memory, and Dones free some. To a
-- check a full server is as good as any.
local leaseEnds = leaseClock + lease
local isFull
do
	local write = isCheck and { 'HSETNX', META, 'description', DESCRIPTION } or
		{ 'ZADD', LEASES, whole(leaseEnds), session }
	local firstWrite = redis.pcall(unpack(write))
	local refusal = type(firstWrite) == 'table' and firstWrite.err
	isFull = refusal and find(refusal, 'OOM', 1, true)
	if refusal and not isFull then
		return firstWrite
	elseif isCheck then
		return 'OK'
	elseif isFull then
		call('HDEL', BATCHES, '') -- deletes nothing, but is a write that can only free memory
		call('ZADD', LEASES, whole(leaseEnds), session)
	end
end

-- A batch does the chores of reclaim.lua if it has nothing else to do or must count exactly; a busy replica
-- does them now and then.
local doesChores = not isTool and (#ARGV < FIRST_OP or allCounts or seq % 8 == 1)

-- The fillers must be there: they are subtracted when keys are counted.
if isFirst or doesChores then
	call('HSETNX', META, FILLER, '') -- for the speed alone
	local missing = call('HSETNX', STATES, FILLER, '') + call('ZADD', HELD, 0, FILLER)
	for _, set in ipairs({ DELAYS, FAILURES, RETRIES }) do
		missing = missing + call('ZADD', set, 'inf', FILLER)
	end
	repaired = meta.time > 0 and missing or 0
end
