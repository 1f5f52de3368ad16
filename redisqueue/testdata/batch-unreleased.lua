-- The data of a shard, and how scripts read them: the first part of the script of batch.lua and of that of
-- read.lua.
--
-- STATES keeps the state of a key (of the queue, not of Redis) as a string. A key that waits is in DELAYS,
-- in any state:
--
--   absent              queued    <added>                           16 characters
--   processing          p<session><fence>                           28
--   processing+dirty    d<session><fence><added>                    44; e while all adds since were quiet
--                        2        13     29                         where each part begins
--
-- P, D and E are p, d and e of a hand-out that its worker has answered, so that only its Done is missing. If
-- that does not come, the key is released as by Done when the lease ends: the answer says when it comes
-- again.
--
-- <added> is a time of the queue's clock, in microseconds with 16 digits. A <fence> numbers a hand-out: it is
-- a little more than its time, so that no two are equal. A <session> has 11 characters: it is one life of one
-- replica, which holds keys while its lease lives.
--
-- docs/replicas.md says what becomes of a shard that has lost a part of its data. All KEYS share a hash tag,
-- and all that must not be lost is in them, so that a cluster refuses a script (TRYAGAIN) while only some of
-- them have moved to another node.

local META, STATES, LINE, DELAYS, FAILURES, RETRIES, LEASES, HELD,
	SLEEPERS, BATCHES, GONE, GIVEN_UP, TROUBLES, NOTES, WAKE = unpack(KEYS)
--   META      hash: see batch.lua                         LINE      sorted set: queued key -> its place, see placeOf
--   STATES    hash: key -> state                          DELAYS    sorted set: key -> when it is due
--   FAILURES  sorted set: key -> number of failures       RETRIES   sorted set: key -> when the delay of the last one ends
--   LEASES    sorted set: session -> when its lease ends on the lease clock, -1 if it has quit
--   HELD      sorted set of <session><key>, all scores 0, so that a session's keys are one range
--   SLEEPERS  set: sessions with getters that wait        WAKE      list: what this session's getters wait for
--   BATCHES   hash: session -> its last batch: the seq, when the lease ends that it has renewed, the status; and
--             reply:<session> -> the reply
--   GONE      sorted set: session that has ended -> when its last batch is forgotten, on the lease clock
--   GIVEN_UP  sorted set: key that was given up -> when
--   TROUBLES  hash, NOTES  hash: the fields below, with the key behind each letter
-- Only WAKE has a time to live: a server whose clock is set forward would delete the others too early.

-- Of TROUBLES: why a key was given up; how many leases in a row a key has lost; since when a key fails, and
-- its latest error; how many of its calls in a row were interrupted and handed back, or left behind by a
-- session that was ending.
local REASON, LOSSES, FAILING, AT_ONCE = 'r', 'l', 'f', 'i'
-- Of NOTES: causes and priority of the key's next hand-out, of the present one, and the priority with
-- which it waits. No causes and priority 0 have no field.
local NEXT_CAUSES, NEXT_PRIORITY, HELD_CAUSES, HELD_PRIORITY, WAITING_PRIORITY = 'n', 'p', 'h', 'q', 'w'

-- A long entry in STATES, HELD, DELAYS, FAILURES and RETRIES, which is not counted. Redis keeps small hashes
-- and sorted sets as lists, and scans those at each look-up, unless an entry is long. (Without it batches of
-- 64 keys take up to a third longer.)
local FILLER = string.rep('\0', 80)

local FOREVER = 2 ^ 53 -- the largest time
local COUNTS = '%s %d %d %d %d %d %d %d %s %d %.0f %d %s' -- the numbers of a shard, as protocol.go reads them

local call, sub, byte, find, format = redis.call, string.sub, string.byte, string.find, string.format

-- digits writes a time or fence in 16 digits, whole any number in as many as it has. (%d has 32 bits on some
-- machines, and %.0f takes three times as long.)
local function digits(n) return format('%08d%08d', n / 1e8, n % 1e8) end
local function whole(n) return format('%.0f', n) end

local function isQueued(state) return state and #state == 16 end
local function isClean(state) return state and #state == 28 end -- processing, and not added since
local function isDirty(state) return state and #state == 44 end -- processing, and added since
local function isHeld(state) return isClean(state) or isDirty(state) end
local function isLoud(state) return string.lower(sub(state, 1, 1)) == 'd' end -- has an add that was not quiet
local function isAnswered(state) return find(state, '^%u') end
local function holderOf(state) return sub(state, 2, 12) end
local function fenceOf(state) return sub(state, 13, 28) end
local function addedOf(state) return sub(state, 29) end -- of a dirty key
local function isHeldBy(holder, state) return isHeld(state) and holderOf(state) == holder end

-- makesSense reports whether the queue itself has written a state.
local FORMS = { [16] = '^%d+$', [28] = '^[pP]...........%d+$', [44] = '^[deDE]...........%d+$' } -- by length
local function makesSense(state)
	local form = FORMS[#state]
	return form and find(state, form)
end

-- readSome returns up to limit keys from page(offset, count), fewer if they are long, and true if these are
-- surely all. Redis walks through a long list to each offset, so there are few pages.
local MAX_BYTES = 65536 -- how much is read or handed out at a time
local function readSome(limit, page)
	local keys, bytes, count = {}, 0, math.min(2, limit)
	while count > 0 do
		local more = page(#keys, count)
		for _, key in ipairs(more) do
			keys[#keys + 1] = key
			bytes = bytes + #key
		end
		if #more < count then return keys, true end
		-- As many as are likely to fit, but no jump: the first ones may be short by chance.
		count = math.min(limit - #keys, 3 * #keys, math.floor((MAX_BYTES - bytes) * #keys / (bytes + 1)))
	end
	return keys, false
end
-- Executes one batch of a replica's operations, atomically and once. Ten files make one script. Errors name
-- its lines; this prints line 123:
--
--   cat {data,batch,states,notes,keys,failures,operations,reclaim,handout,reply}.lua | sed -n 123p
--
-- Beside functions and constants, each file has these from the files before it:
--
--   batch       the arguments; description, keeper, freed, offset, now, nowDigits, leaseClock, isFull,
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
local MAX_KEYS = 192 -- of passed delays, of dead sessions, and of old failures together
local MAX_DUE = 128 -- keys of passed delays, so that some of MAX_KEYS are left
local MAX_SESSIONS, MAX_WOKEN = 8, 8 -- dead sessions, sleepers
local keysLeft = MAX_KEYS -- how many keys of dead sessions and old failures reclaim.lua may still take

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

-- The fields of META, beside the names of sessions:
--   description  what all replicas must have in common     pausedUntil  when the queue's pause ends, FOREVER without an end
--   pausedBy     when that was set, and by which replica   limited      until when StartLimit may hold keys back
--   keeper       the session that wakes at keeperCalls     leaseTime    the lease clock
--   time         the queue's clock at the last batch       offset       how far that clock is ahead of the server's
--   fence        the last fence or place                   dirty        how many keys are processing+dirty
--   repaired     how many entries were repaired            repairAt     where the scan for such entries continues
--   leaseChecked where the search for sessions without a lease continues
--   startFullAt…: see handout.lua                          freed:<session>  fences of hand-outs that an operator has ended
--   ends:<session>  that it is ending: what it leaves behind is no loss
local meta = {} -- its numbers
local description, keeper, freed
do
	local numbers = {
		'time', 'offset', 'leaseTime', 'fence', 'dirty', 'repaired', 'pausedUntil', 'limited', 'keeperCalls',
	}
	local found = call('HMGET', META, 'description', 'keeper', 'freed:' .. session, unpack(numbers))
	description, keeper, freed = found[1], found[2], found[3]
	if description and description ~= DESCRIPTION then
		return 'REFUSED ' .. description .. ', in the field description of ' .. META
	end
	for i, field in ipairs(numbers) do
		local n = tonumber(found[i + 3] or 0)
		if not (n and n >= -FOREVER and n <= FOREVER) then
			return redis.error_reply('ERR another program has written the field ' .. field .. ' of ' .. META ..
				', which must be a number')
		end
		meta[field] = n
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
local hasNoErrors = false -- true after the first call
local function raiseErrorsNow()
	if hasNoErrors then return end
	hasNoErrors = true
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
	local missing = call('HSETNX', STATES, FILLER, '') + call('ZADD', HELD, 0, FILLER)
	for _, set in ipairs({ DELAYS, FAILURES, RETRIES }) do
		missing = missing + call('ZADD', set, 'inf', FILLER)
	end
	repaired = meta.time > 0 and missing or 0
end
-- What a batch changes in STATES, what leaves HELD, which keys enter LINE, and which leave DELAYS because
-- their time has come is in these variables until handout.lua writes it, with what enters HELD. All else that
-- becomes of keys is written at once.

local states = {} -- key -> its state, as it was read or set; false if the key is absent
local touched = {} -- set of the keys whose states are written back: this batch has set or removed them
local released = {} -- what leaves HELD, unless it is held again
local releasedNotes = {} -- fields of NOTES: those of the hand-outs that are over
local newlyQueued = {} -- keys that become queued
local putBack = {} -- set of those of them that come before all others: they were handed out, and not finished
local due = {} -- set of the keys whose delays have passed
local changed = 0 -- how often an add queued a key, or was its first since the hand-out
local unmatched = 0 -- how many Dones came too late
local results = {} -- what follows the numbers in the reply

local function setState(key, state)
	states[key] = state
	touched[key] = true
end

-- callAll calls a command with all values of a list, a thousand at a time: Lua cannot unpack more than about
-- 8000.
local function callAll(command, key, list)
	for first = 1, #list, 1000 do
		call(command, key, unpack(list, first, math.min(first + 999, #list)))
	end
end

-- loadStates reads the states of keys. A state that another program has written counts as absent: when the
-- key is found in the line, or by the scan of reply.lua, it is queued.
local function loadStates(keys)
	local missing = {}
	for _, key in ipairs(keys) do
		if states[key] == nil then
			states[key] = false -- absent, until it is read
			missing[#missing + 1] = key
		end
	end
	for first = 1, #missing, 1000 do
		local found = call('HMGET', STATES, unpack(missing, first, math.min(first + 999, #missing)))
		for i, state in ipairs(found) do
			states[missing[first + i - 1]] = state and makesSense(state) and state
		end
	end
end
-- Why and with which priority keys are added.

local hasNotes = call('HLEN', NOTES) > 0 -- false: no key has any

-- toPriority reads a field of NOTES, which another program may have written.
local function toPriority(text) return math.floor(math.max(-1e6, math.min(1e6, tonumber(text or 0) or 0))) end

-- The priorities of next hand-outs are read and set here, until handout.lua writes those that were set.
local nextPriorities, touchedPriorities = {}, {} -- key -> priority; set of keys

-- The field of a priority is NEXT_PRIORITY, HELD_PRIORITY or WAITING_PRIORITY.
local function priorityOf(field, key)
	local known = field == NEXT_PRIORITY and nextPriorities[key]
	return known or hasNotes and toPriority(call('HGET', NOTES, field .. key)) or 0
end
local function setPriority(field, key, priority)
	hasNotes = hasNotes or priority ~= 0
	if field == NEXT_PRIORITY then
		nextPriorities[key], touchedPriorities[key] = priority, hasNotes or nil
	elseif priority ~= 0 then
		call('HSET', NOTES, field .. key, whole(priority))
	elseif hasNotes then
		call('HDEL', NOTES, field .. key)
	end
end

-- writePriorities writes the priorities that setPriority has kept.
local function writePriorities()
	local present, absent = {}, {}
	for key in pairs(touchedPriorities) do
		local priority = nextPriorities[key]
		if priority ~= 0 then
			present[#present + 1], present[#present + 2] = NEXT_PRIORITY .. key, whole(priority)
		else
			absent[#absent + 1] = NEXT_PRIORITY .. key
		end
	end
	callAll('HSET', NOTES, present)
	callAll('HDEL', NOTES, absent)
	touchedPriorities = {}
end

-- A place in the line is a time of the queue's clock, less what the priority puts the key ahead. So no key
-- starves. Keys that were put back are before all others, in the order of their hand-outs: 2^53 earlier.
-- Scores keep whole numbers exactly up to 2^53 on both sides of 0.
local function isPutBack(place) return place < -2 ^ 52 end

-- ahead returns how much earlier than a key without a priority one is queued: PriorityStep for each step, but
-- at most 160 years for a million. From 80 years on, where steps would not fit between the places of other
-- keys, a step is shorter, so that a higher priority stays ahead of a lower one.
local function ahead(priority)
	local steps, longest = math.abs(priority), 80 * 31536e9
	local time = math.floor(math.min(steps * setting('step'), longest + steps * longest / 1e6))
	return priority < 0 and -time or time
end

-- placeOf returns the place of a key that becomes queued now, as text.
local function placeOf(key)
	if putBack[key] then return whole(states[key] - 2 ^ 53) end -- Its state is the fence of its hand-out.
	fence = fence + 1
	local priority = priorityOf(NEXT_PRIORITY, key)
	return priority == 0 and digits(fence) or whole(fence - ahead(priority))
end

-- setNextPriority sets the priority of a key's next hand-out. If an earlier add has asked for that hand-out,
-- the higher priority counts.
local function setNextPriority(key, priority, hasEarlierAdd)
	if not hasEarlierAdd then
		if priority == 0 and nextPriorities[key] == nil then
			nextPriorities[key] = 0 -- It has no field.
		else
			setPriority(NEXT_PRIORITY, key, priority)
		end
		return
	end
	local earlier = priorityOf(NEXT_PRIORITY, key)
	if priority <= earlier then return end
	setPriority(NEXT_PRIORITY, key, priority)
	local place = tonumber(call('ZSCORE', LINE, key) or -FOREVER)
	if not isPutBack(place) then -- Otherwise it was put back, or gets its place when it enters the line.
		writePriorities() -- before the place, which an interrupted batch would otherwise change twice
		call('ZADD', LINE, whole(place + ahead(earlier) - ahead(priority)), key)
	end
end

-- addCauses merges causes into those of a key's next hand-out, as workqueue.Causes.Plus does: the last eight,
-- and the number of others.
--
--   causes   <others> ' ' <time of the first> ' ' and, for each of the last eight, <its length> ' ' <cause>
--   cause    <time, 16 digits> <q (quiet) or l (loud)> <what it is>
local addCauses
do
	-- causesOf is an iterator over the causes of a list.
	local function causesOf(list)
		return function()
			local length, rest = string.match(list, '^(%d+) (.*)$')
			if not length then return end
			list = sub(rest, length + 1)
			return sub(rest, 1, length)
		end
	end

	local WHAT = 18 -- where <what it is> begins in a cause
	function addCauses(key, added)
		local others, first, last = 0, nil, {}
		for _, text in ipairs({ call('HGET', NOTES, NEXT_CAUSES .. key) or '', added }) do
			-- They are nil if another program has written the text.
			local itsOthers, itsFirst, list = string.match(text, '^(%d+) (%d+) (.*)$')
			others = others + (itsOthers or 0)
			first = first or itsFirst
			for cause in causesOf(list or '') do
				for i, known in ipairs(last) do
					if sub(known, WHAT) == sub(cause, WHAT) then
						table.remove(last, i)
						break
					end
				end
				last[#last + 1] = cause
				if #last > 8 then
					table.remove(last, 1)
					others = others + 1
				end
			end
		end
		for i, cause in ipairs(last) do
			last[i] = #cause .. ' ' .. cause
		end
		local causes = whole(others) .. ' ' .. (first or nowDigits) .. ' ' .. table.concat(last)
		call('HSET', NOTES, NEXT_CAUSES .. key, causes)
		hasNotes = true
	end
end

-- keepNotes copies the notes of a hand-out that was not finished back from the HELD_ to the NEXT_ fields, and
-- merges what is there into them.
local function keepNotes(key, state)
	local causes = hasNotes and call('HGET', NOTES, HELD_CAUSES .. key)
	if causes then
		local later = call('HGET', NOTES, NEXT_CAUSES .. key)
		call('HSET', NOTES, NEXT_CAUSES .. key, causes)
		if later then addCauses(key, later) end
	end
	local priority = priorityOf(HELD_PRIORITY, key)
	if priority ~= 0 or isDirty(state) then -- 0 also if an interrupted batch has done this.
		setNextPriority(key, priority, isDirty(state))
	end
end

-- forgetNextNotes forgets the notes of a hand-out that will not come.
local function forgetNextNotes(key)
	call('HDEL', NOTES, NEXT_CAUSES .. key)
	setPriority(NEXT_PRIORITY, key, 0)
end
-- What becomes of a key: it is added, now or later, and it is released when its holder has finished, or puts
-- it back.

local function queue(key, since)
	setState(key, since)
	newlyQueued[#newlyQueued + 1] = key
end

-- setMark sets the state of a held key: a letter, and what follows it. An answered key stays so.
local function setMark(key, letter, rest)
	setState(key, (isAnswered(states[key]) and string.upper(letter) or letter) .. rest)
end

-- add queues a key or, if it is held, notes that it was added again. No priority means 0.
local function add(key, isQuiet, priority)
	local state = states[key]
	local hasEarlierAdd = false -- for the same hand-out
	if not state then
		queue(key, nowDigits)
		changed = changed + 1
	elseif isClean(state) then
		setMark(key, isQuiet and 'e' or 'd', sub(state, 2) .. nowDigits)
		dirty = dirty + 1
		changed = changed + 1
	else
		hasEarlierAdd = true
		if not isQuiet and isDirty(state) and not isLoud(state) then
			setMark(key, 'd', sub(state, 2))
		end
	end
	if priority or hasNotes then
		setNextPriority(key, priority or 0, hasEarlierAdd)
	end
end

-- addAfter adds a key after a delay in microseconds. Of several delays the earliest end counts, and the
-- highest priority.
local function addAfter(key, delay, priority)
	delay = tonumber(delay)
	if delay <= 0 then return add(key, false, priority) end
	priority = priority or 0
	local comparison = 'GT' -- A delay that has passed must not count as the next one.
	if not due[key] and call('ZSCORE', DELAYS, key) then
		comparison, priority = 'LT', math.max(priority, priorityOf(WAITING_PRIORITY, key))
	end
	setPriority(WAITING_PRIORITY, key, priority)
	call('ZADD', DELAYS, comparison, digits(now + delay), key)
	due[key] = nil
end

-- release ends the processing of a key. A key that was added meanwhile is queued again if isFinished.
local function release(holder, key, state, isFinished)
	released[#released + 1] = holder .. key
	if hasNotes then
		releasedNotes[#releasedNotes + 1], releasedNotes[#releasedNotes + 2] = HELD_CAUSES .. key, HELD_PRIORITY .. key
	end
	setState(key, false)
	if isDirty(state) then
		dirty = dirty - 1
		if isFinished then queue(key, addedOf(state)) end
	end
end

-- takeBack queues a key that was not finished, before all others. It counts as queued since it was handed
-- out.
local function takeBack(holder, key, state)
	keepNotes(key, state)
	release(holder, key, state)
	queue(key, fenceOf(state))
	putBack[key] = true
end

-- putOff is takeBack for a key that first waits. It keeps its priority while it does.
local function putOff(holder, key, state, delay)
	keepNotes(key, state)
	release(holder, key, state)
	addAfter(key, delay, priorityOf(NEXT_PRIORITY, key))
	setPriority(NEXT_PRIORITY, key, 0)
end

-- behind returns what is in HELD behind all keys of a session.
local function behind(holder) return sub(holder, 1, -2) .. string.char(byte(holder, -1) + 1) end

-- keysHeldBy returns a function that reads the keys of a session from HELD, for readSome.
local function keysHeldBy(holder)
	return function(from, n)
		local members = call('ZRANGEBYLEX', HELD, '[' .. holder, '(' .. behind(holder), 'LIMIT', from, n)
		for i, member in ipairs(members) do
			members[i] = sub(member, #holder + 1)
		end
		return members
	end
end

-- wake ends a session's blocking read. That session's list is not in KEYS, so a cluster that moves it may
-- refuse LLEN; then the session comes within its poll interval.
local function wake(sleeper)
	local list = sub(WAKE, 1, -1 - #session) .. sleeper
	if redis.pcall('LLEN', list) == 0 then
		call('RPUSH', list, 1)
		call('PEXPIRE', list, 60000)
	end
end
-- Failures of keys, leases that keys have lost, and keys that were given up for one of these.

local hasTroubles = call('HLEN', TROUBLES) > 0 -- false: no key has any
local function setTrouble(field, key, value)
	hasTroubles = true
	call('HSET', TROUBLES, field .. key, value)
end

-- forgetGivenUp forgets that a key was given up, and returns whether it was.
local function forgetGivenUp(key)
	local found = call('ZREM', GIVEN_UP, key) > 0
	if found then
		call('HDEL', TROUBLES, REASON .. key, LOSSES .. key)
	end
	return found
end

-- forgetOldGivenUp forgets the oldest of too many keys that were given up, or those that were given up too
-- long ago.
local function forgetOldGivenUp()
	local excess = math.min(call('ZCARD', GIVEN_UP) - setting('keep'), 64)
	local tooMany = excess > 0 and call('ZRANGE', GIVEN_UP, 0, excess - 1)
	local tooOld = whole(now - setting('keepfor'))
	for _, key in ipairs(tooMany or call('ZRANGEBYSCORE', GIVEN_UP, '-inf', tooOld, 'LIMIT', 0, 64)) do
		forgetGivenUp(key)
	end
end

-- giveUp takes back the retry that waits for the end of the key's delay.
local function giveUp(key, attempts, reason)
	local retry = call('ZSCORE', RETRIES, key)
	if retry and call('ZSCORE', DELAYS, key) == retry then
		call('ZREM', DELAYS, key)
		setPriority(WAITING_PRIORITY, key, 0)
	end
	call('ZADD', GIVEN_UP, nowDigits, key)
	setTrouble(REASON, key, whole(attempts) .. ' ' .. reason)
	forgetOldGivenUp()
end

local function forgetFailures(key)
	call('ZREM', RETRIES, key)
	if call('ZREM', FAILURES, key) > 0 then
		call('HDEL', TROUBLES, FAILING .. key)
	end
end

-- forget forgets the failures of a key, and that it was given up.
local function forget(key)
	forgetFailures(key)
	forgetGivenUp(key)
end

-- failuresOf returns how many failures of a key are counted, and what is left of the last one's delay.
-- The count expires, but not while the key is held.
local function failuresOf(key)
	local retry = call('ZSCORE', RETRIES, key)
	if not retry then return 0, 0 end
	if retry + setting('forget') <= now and not isHeld(states[key]) then
		forgetFailures(key)
		return 0, 0
	end
	-- Another program may have written numbers that no reply can have.
	local failures = math.max(0, (call('ZSCORE', FAILURES, key) or 0) + 0)
	return math.min(failures, 2 ^ 31), math.min(math.max(0, retry - now), 1e15)
end

-- sinceOf returns since when a key fails, nil if that is not known.
local function sinceOf(key)
	local failing = call('HGET', TROUBLES, FAILING .. key)
	return failing and tonumber(string.match(failing, '^%d+'))
end

-- backoff returns how long a key waits after a further failure: the delay of workqueue.BackoffConfig.
local function backoff(failures)
	local delay, jitter = setting('base') * setting('factor') ^ failures, setting('jitter')
	delay = math.min(delay, setting('max'))
	if jitter == 1 then -- workqueue.FullJitter
		delay = delay * math.random()
	elseif jitter == 2 then -- workqueue.EqualJitter
		delay = delay / 2 * (1 + math.random())
	end
	return math.ceil(delay)
end

-- fail counts a failure of a key, and makes it wait or gives it up. It returns how many failures
-- are counted, what is left of the delay, and letters: s for the same failure, g if the key was given up. A
-- failure before the end of the last one's delay is the same: it is not counted, and the key comes at the end
-- of that delay. The details are
--   atLeast  how long the key waits at least                       maxRetries  after how many it is given up, or 0
--   retryFor  for how long it may fail before a further failure gives it up, or 0
--   terminal  true: it is given up at once                         reason      the error
local function fail(key, details)
	local atLeast, maxRetries, retryFor, terminal, reason =
		string.match(details, '^(%d+) (%-?%d+) (%d+) (%l+) (.*)$')
	local failures, left = failuresOf(key)
	local same = left > 0
	local attempt = same and math.max(failures, 1) or failures + 1
	maxRetries, retryFor = tonumber(maxRetries), tonumber(retryFor)
	local since = failures > 0 and sinceOf(key) or now
	local isOld = retryFor > 0 and now - since > retryFor
	if terminal == 'true' or maxRetries ~= 0 and attempt > maxRetries or isOld then
		giveUp(key, attempt, reason)
		forgetFailures(key)
		return attempt, 0, same and 'sg' or 'g'
	end
	if not same then
		left = backoff(failures)
	end
	left = math.max(left, atLeast)
	call('ZADD', FAILURES, attempt, key)
	setTrouble(FAILING, key, whole(since) .. ' ' .. sub(reason, 1, 512))
	call('ZADD', RETRIES, digits(now + left), key)
	addAfter(key, left, isHeld(states[key]) and priorityOf(HELD_PRIORITY, key) or 0)
	return attempt, left, same and 's'
end

-- lose takes a key from a session whose lease has ended: its handler may have ended the process. From its
-- second loss on, the key waits before its next hand-out. The wait is random and grows, so that keys that were
-- lost together come apart. In the end the key is given up. A lost lease is no failure of the key: MaxRetries
-- does not count it.
local function lose(holder, key, state)
	local losses = (tonumber(call('HGET', TROUBLES, LOSSES .. key) or 0) or 0) + 1
	local maxLosses = setting('losses')
	setTrouble(LOSSES, key, losses)
	if maxLosses > 0 and losses >= maxLosses then
		-- An add while the key was held may be confirmed, so it gets an attempt of its own.
		release(holder, key, state, true)
		giveUp(key, losses,
			'the lease was lost ' .. whole(losses) .. ' times in a row: the handler may end its process')
	elseif losses > 1 then
		local longest = math.min(lease * 2 ^ (losses - 2), math.max(setting('max'), lease))
		putOff(holder, key, state, math.ceil(longest / 2 * (1 + math.random())))
	else
		takeBack(holder, key, state)
	end
end
-- Executes the operations of the batch. An operation is a letter and what this table has behind it. A capital
-- letter has an argument of 16 characters before the key. The reply has an answer to those with a *: unless
-- the table says otherwise, 1 if the key was there, or 0. protocol.go has the same letters.

do -- Nothing below needs these locals. Lua allows 200 at a time.
local ADD = 'a' --               key
local ADD_WHY = 'C' --           length of the key, key, q (quiet) or l (loud), causes
local ADD_AFTER = 'L' --         delay in microseconds, key
local ADD_PRIORITY = 'P' --      length of the key, key, priority, blank, delay
local FAIL = 'F' --              length of the key, key, what fail describes    * see fail
local FORGET = 'f' --            key
local SUCCEED = 'g' --           key; FORGET as an answer
local NUM_REQUEUES = 'n' --      key                                            * failures, left of the delay
local DONE = 'D' --              fence, key
local DONE_PLAIN = 'E' --        fence, key; DONE of a hand-out without notes
local HAND_BACK = 'B' --         number, key, which is queued again with that AT_ONCE: BY_HOLDER
local PUT_OFF = 'O' --           fence, key: HAND_BACK, but the key waits for a second
local RELEASE = 'r' --           key, which is taken from its holder            *
local CANNOT_DECODE = 'U' --     fence, key, which is given up
local ADDED_AGAIN = 'W' --       fence, key                                     * 1 if added, not quietly
local DISCARD = 'x' --           key                                            *
local RETRY_GIVEN_UP = 't' --    key                                            *
local FORGET_GIVEN_UP = 'y' --   key                                            *
local PAUSE = 'p' --             microseconds, 0 to resume, blank, name of the replica
local IDENTIFY = 'i' --          name of the replica
local ENDS = 'e' --              nothing: the session is ending, and takes no more keys
local QUIT = 'q' --              nothing: the session ends, and reclaim.lua puts its keys back
local BY_HOLDER = 'H' --         fence, another operation, which is an answer of the key's holder, or with
--                               NO_FENCE an add of a held key
-- A full server executes none of these, unless they are BY_HOLDER. The replica sends them again.
local ADDS = ADD .. ADD_WHY .. ADD_AFTER .. ADD_PRIORITY .. FAIL -- isAdd in protocol.go
local NO_FENCE = '0000000000000000'

local codes, keys, arguments, details = {}, {}, {}, {}
local fences = {} -- of operations that are BY_HOLDER
local count = 0
for i = FIRST_OP, #ARGV do
	local op, itsFence, key, argument, detail = ARGV[i], nil, nil, nil, nil
	local code = sub(op, 1, 1)
	if code == BY_HOLDER then
		itsFence, code, op = sub(op, 2, 17), sub(op, 18, 18), sub(op, 18)
	end
	if byte(op) >= 97 then -- a small letter
		key = sub(op, 2)
	else
		argument, key = sub(op, 2, 17), sub(op, 18)
		if code == ADD_WHY or code == ADD_PRIORITY or code == FAIL then
			detail, key = sub(key, argument + 1), sub(key, 1, argument)
		end
	end
	if itsFence or not (isFull and find(ADDS, code, 1, true)) then
		count = count + 1
		codes[count], keys[count] = code, key -- PAUSE, IDENTIFY, ENDS and QUIT have something else for a key.
		-- Lua takes a while to put nil into a table.
		if argument then arguments[count], details[count] = argument, detail or false end
		if itsFence and itsFence ~= NO_FENCE then fences[count] = itsFence end
	end
end

-- Keys whose delays have passed are added before what the batch adds. A tool leaves that to replicas: it does
-- not know their PriorityStep.
if not isTool and call('ZCARD', DELAYS) > 1 then
	local dueKeys = readSome(MAX_DUE, function(from, n)
		return call('ZRANGEBYSCORE', DELAYS, '-inf', nowDigits, 'LIMIT', from, n)
	end)
	keysLeft = keysLeft - #dueKeys
	loadStates(dueKeys)
	for _, key in ipairs(dueKeys) do
		add(key, false, priorityOf(WAITING_PRIORITY, key))
		due[key] = true
	end
end

-- An interrupted attempt may have handed out keys that the replica does not know of: put them back.
if knownFence then
	local itsKeys = keysHeldBy(session)(0, -1) -- few: those of its workers, and of interrupted attempts
	loadStates(itsKeys)
	for _, key in ipairs(itsKeys) do
		local state = states[key]
		if not isHeldBy(session, state) then
			released[#released + 1] = session .. key
			repaired = repaired + 1
		elseif fenceOf(state) > knownFence then
			takeBack(session, key, state)
			repaired = repaired + 1
		end
	end
end

-- answer appends the answer to an operation.
local function answer(n, left, what)
	results[#results + 1] = 'n' .. whole(n) .. ' ' .. whole(left or 0) .. ' ' .. (what or '') .. ' '
end

-- survived has fields of TROUBLES that go at the end: a process that calls Done has survived the key.
local survived = {}
loadStates(keys)
-- Branches, not a table of functions: each batch runs the whole script, and defining as many functions is 11
-- % of a batch of one key.
for i, code in ipairs(codes) do
	local key, state = keys[i], states[keys[i]]
	local itsFence = fences[i] or arguments[i]
	local isItsHolder = itsFence and state and fenceOf(state) == itsFence -- A fence is one session's.
	if fences[i] and not isItsHolder then -- The hand-out is over.
		if code == FAIL then answer(0, 0, 'l') end
	elseif code == ADD then
		add(key)
	elseif code == DONE or code == DONE_PLAIN then
		if hasTroubles then
			survived[#survived + 1], survived[#survived + 2] = LOSSES .. key, AT_ONCE .. key
		end
		if isItsHolder then
			release(session, key, state, true, code == DONE_PLAIN)
		else
			unmatched = unmatched + 1
			if not isHeldBy(session, state) then -- HELD may have it: the server may have lost the state alone.
				released[#released + 1] = session .. key
			end
		end
	elseif code == HAND_BACK then
		if arguments[i] + 0 > 0 then
			setTrouble(AT_ONCE, key, whole(arguments[i]))
		elseif hasTroubles then
			call('HDEL', TROUBLES, AT_ONCE .. key)
		end
		takeBack(session, key, state)
	elseif code == PUT_OFF then
		if isItsHolder then putOff(session, key, state, 1000000) end
	elseif code == RELEASE then -- The holder hears of it with its next batch. What it says until then is late.
		raiseErrorsNow()
		local isThere = isHeld(state)
		if isThere then
			local holder, fence = holderOf(state), fenceOf(state)
			call('HSET', META, 'freed:' .. holder, (call('HGET', META, 'freed:' .. holder) or '') .. fence)
			wake(holder)
			if isAnswered(state) then
				release(holder, key, state, true)
			else
				takeBack(holder, key, state)
			end
		end
		answer(isThere and 1 or 0)
	elseif code == CANNOT_DECODE then
		if isItsHolder then
			forgetNextNotes(key)
			release(session, key, state)
			forgetFailures(key)
			giveUp(key, 0, 'a replica could not decode the key')
		end
	elseif code == ADDED_AGAIN then
		answer(isItsHolder and isDirty(state) and isLoud(state) and 1 or 0)
	elseif code == ADD_WHY then
		add(key, sub(details[i], 1, 1) == 'q')
		if #details[i] > 1 then addCauses(key, sub(details[i], 2)) end
	elseif code == ADD_AFTER then
		addAfter(key, arguments[i])
	elseif code == ADD_PRIORITY then
		local priority, delay = string.match(details[i], '^(%-?%d+) (%d+)$')
		addAfter(key, delay, tonumber(priority))
	elseif code == FAIL then
		raiseErrorsNow()
		answer(fail(key, details[i]))
	elseif code == FORGET or code == SUCCEED then
		forget(key)
	elseif code == NUM_REQUEUES then
		answer(failuresOf(key))
	elseif code == DISCARD then -- The worker that holds the key keeps it.
		raiseErrorsNow()
		local wasWaiting = call('ZREM', DELAYS, key) > 0
		due[key], putBack[key] = nil, nil
		setPriority(WAITING_PRIORITY, key, 0)
		if isQueued(state) then
			setState(key, false)
			call('ZREM', LINE, key)
		elseif isDirty(state) then
			setMark(key, 'p', sub(state, 2, 28))
			dirty = dirty - 1
		end
		forgetNextNotes(key)
		call('HDEL', TROUBLES, AT_ONCE .. key)
		callAll('HDEL', TROUBLES, survived) -- A Done before this has forgotten the losses.
		survived = {}
		local hadLosses = call('HDEL', TROUBLES, LOSSES .. key) > 0
		local hadFailures = call('ZSCORE', FAILURES, key)
		forget(key)
		answer((state or wasWaiting or hadLosses or hadFailures) and 1 or 0)
	elseif code == RETRY_GIVEN_UP or code == FORGET_GIVEN_UP then
		raiseErrorsNow()
		local found = forgetGivenUp(key)
		if found and code == RETRY_GIVEN_UP then
			forgetFailures(key)
			add(key)
		end
		answer(found and 1 or 0)
	elseif code == PAUSE then
		local duration, by = string.match(key, '^(%S+) (.*)$')
		local ends = duration == '0' and 0 or math.min(FOREVER, math.max(meta.pausedUntil, now + duration))
		if ends ~= meta.pausedUntil then
			meta.pausedUntil = ends
			call('HSET', META, 'pausedUntil', whole(ends), 'pausedBy', nowDigits .. ' ' .. by)
		end
	elseif code == IDENTIFY then
		call('HSET', META, 'name:' .. session, key)
	elseif code == ENDS then
		call('HSET', META, 'ends:' .. session, 1)
	elseif code == QUIT then
		leaseEnds, leavesSleepers = -1, true
		call('ZADD', LEASES, leaseEnds, session)
		wake(session) -- ends its blocking read
	end
	if fences[i] and isItsHolder and code ~= FORGET then -- It is an answer.
		setState(key, string.upper(sub(states[key], 1, 1)) .. sub(states[key], 2))
	end
end
callAll('HDEL', TROUBLES, survived)
end
-- Takes keys back from dead sessions, and forgets what is old. None of this is urgent: see doesChores.

if doesChores then
	-- A session that holds keys has a lease. Check the next session in HELD, behind the place leaseChecked,
	-- and restore a lost lease from its last batch. This is first because HELD still has the keys of the
	-- sessions that end below.
	local leaseChecked = call('HGET', META, 'leaseChecked') or ''
	local from = leaseChecked > FILLER and '[' .. leaseChecked or '(' .. FILLER
	local member = call('ZRANGEBYLEX', HELD, from, '+', 'LIMIT', 0, 1)[1]
	local holder = member and sub(member, 1, 11)
	if holder and not call('ZSCORE', LEASES, holder) then
		local ends = tonumber(string.match(call('HGET', BATCHES, holder) or '', '^%d+ (%-?%d+)') or 0)
		call('ZADD', LEASES, whole(math.min(ends, leaseClock + lease)), holder)
		repaired = repaired + 1
	end
	call('HSET', META, 'leaseChecked', holder and behind(holder) or '') -- '' begins again

	-- Sessions whose leases have ended lose their keys. The seq of a session's last batch is kept, because
	-- its replica may send that again.
	for _, dead in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', whole(leaseClock), 'LIMIT', 0, MAX_SESSIONS)) do
		raiseErrorsNow() -- Lost leases are counted.
		local hasQuit = tonumber(call('ZSCORE', LEASES, dead)) < 0 or call('HGET', META, 'ends:' .. dead)
		local lastBatch = call('HGET', BATCHES, dead) or ''
		local itsKeys, areAll = readSome(keysLeft, keysHeldBy(dead))
		loadStates(itsKeys)
		for _, key in ipairs(itsKeys) do
			local state = states[key] -- false if this batch has released it, or the server has lost it
			released[#released + 1] = dead .. key
			if isHeldBy(dead, state) and isAnswered(state) then -- Its process has survived the call.
				call('HDEL', TROUBLES, LOSSES .. key, AT_ONCE .. key)
				release(dead, key, state, true)
			elseif isHeldBy(dead, state) and hasQuit then
				local atOnce = tonumber(call('HGET', TROUBLES, AT_ONCE .. key) or 0) or 0
				setTrouble(AT_ONCE, key, whole(atOnce + 1)) -- Its handler has not returned.
				takeBack(dead, key, state)
			elseif isHeldBy(dead, state) then
				lose(dead, key, state)
			elseif not state and not touched[key] then
				add(key)
				repaired = repaired + 1
			end
		end
		keysLeft = keysLeft - #itsKeys
		if not areAll then
			break -- The next batch continues with this session.
		end
		call('ZREM', LEASES, dead)
		call('SREM', SLEEPERS, dead)
		call('HDEL', META, 'name:' .. dead, 'ends:' .. dead, 'freed:' .. dead)
		call('ZADD', GONE, whole(leaseClock + math.max(10 * lease, 3600000000)), dead)
		local lastSeq = string.match(lastBatch, '^%d+')
		if lastSeq then
			-- The replica must know that the server was full: otherwise it would take the adds for executed.
			local wasFull = string.match(lastBatch, '^%d+ %-?%d+( FULL)') or ''
			call('HSET', BATCHES, dead, lastSeq .. ' -1 GONE' .. wasFull)
			call('HDEL', BATCHES, 'reply:' .. dead)
		end
	end

	-- Forget sessions that have ended, failures, and keys that were given up.
	local gone = call('ZRANGEBYSCORE', GONE, '-inf', whole(leaseClock), 'LIMIT', 0, MAX_SESSIONS)
	callAll('ZREM', GONE, gone)
	for _, ended in ipairs(gone) do
		call('HDEL', BATCHES, ended, 'reply:' .. ended)
	end
	local expired = whole(now - setting('forget'))
	local failed = readSome(keysLeft, function(from, n)
		return call('ZRANGEBYSCORE', RETRIES, '-inf', expired, 'LIMIT', from, n)
	end)
	loadStates(failed)
	for _, key in ipairs(failed) do
		if isHeld(states[key]) then -- It keeps its count: its call may fail again.
			call('ZADD', RETRIES, nowDigits, key)
		else
			forgetFailures(key)
		end
	end
	forgetOldGivenUp()
end
-- Hands out keys, and writes the clocks and what the batch has changed.

-- The start limit is a token bucket. fullAt is when the bucket is full again: of the startBurst tokens, those
-- that come until then are missing now. Each limit that replicas have, as during a rollout, has a bucket of
-- its own, which is full at first: the old limit says nothing of the tokens of the new one.
local startRate, startBurst = setting('startrate'), setting('startburst')
local bucket = startRate > 0 and 'startFullAt' .. string.match(SETTINGS, '^ startrate=%S+ startburst=%S+')
local fullAt = now
local tokenTime, allowed = 0, math.huge -- how long a token takes; how many hand-outs the limit allows now
if bucket then
	tokenTime = math.min(1000000 / startRate, (FOREVER - now) / startBurst) -- fullAt is at most FOREVER
	fullAt = math.max(now, tonumber(call('HGET', META, bucket) or now) or now)
	if not (fullAt <= now + (startBurst + 2e-6) * tokenTime + 1) then -- Another program has written it.
		fullAt = now
	end
	allowed = math.max(0, math.floor(startBurst - (fullAt - now) / tokenTime + 1e-6))
end

local isPaused = meta.pausedUntil > now
local most = isPaused and 0 or math.min(want, allowed) -- how many keys the batch may hand out
local handedOut, bytes = 0, 0
local function wantsMore() return handedOut < most and bytes < MAX_BYTES end
local newlyHeld = {} -- what enters HELD, as arguments of ZADD
-- Fields of NOTES that go when the states are written, so that an interrupted batch does not lose them.
local usedNotes = {}
local hasFailures = call('ZCARD', FAILURES) > 1

-- readAbout reads what the first n keys of a list have beside their states, all at once. What no key has stays
-- nil.
local nextNotes -- causes and priority of the next hand-out of each key in turn
local retries, atOnces -- of each key, its value in RETRIES and the field AT_ONCE
local heldNotes = {} -- as arguments of HSET
local function readAbout(keys, n)
	if n == 0 then return end
	local notes, fields = {}, {}
	for i = 1, hasNotes and n or 0 do
		notes[2 * i - 1], notes[2 * i] = NEXT_CAUSES .. keys[i], NEXT_PRIORITY .. keys[i]
	end
	for i = 1, hasTroubles and n or 0 do
		fields[i] = AT_ONCE .. keys[i]
	end
	nextNotes = hasNotes and call('HMGET', NOTES, unpack(notes)) -- at most 512
	atOnces = hasTroubles and call('HMGET', TROUBLES, unpack(fields))
	retries = hasFailures and call('ZMSCORE', RETRIES, unpack(keys, 1, n))
end

-- handOut hands out the key at i of the list that readAbout was given.
local function handOut(key, i)
	local failures, left, causes, priority, failing, atOnce = 0, 0, '', 0, '', '0'
	if retries and retries[i] then
		failures, left = failuresOf(key)
		failing = failures > 0 and call('HGET', TROUBLES, FAILING .. key) or ''
	end
	if atOnces and atOnces[i] then
		atOnce = string.match(atOnces[i], '^%d+$') or '0'
	end
	if nextNotes then
		causes, priority = nextNotes[2 * i - 1], toPriority(nextNotes[2 * i])
		if causes then
			heldNotes[#heldNotes + 1], heldNotes[#heldNotes + 2] = HELD_CAUSES .. key, causes
			usedNotes[#usedNotes + 1] = NEXT_CAUSES .. key
		end
		if priority ~= 0 then
			heldNotes[#heldNotes + 1], heldNotes[#heldNotes + 2] = HELD_PRIORITY .. key, whole(priority)
		end
		if nextNotes[2 * i] then usedNotes[#usedNotes + 1] = NEXT_PRIORITY .. key end
		causes = causes or ''
	end
	fence = fence + 1
	local itsFence = digits(fence)
	local queuedSince = states[key] -- The state of a queued key is when it was added.
	local numbers = ' 0 0 0 0 0 0 ' -- To format them takes long, and most keys have none.
	if retries or atOnces or nextNotes then
		numbers = format(' %.0f %.0f %s %d %d %d ', failures, left, atOnce, priority, #causes, #failing)
	end
	local result = 'k' .. #key .. ' ' .. itsFence .. ' ' .. queuedSince .. numbers .. key .. causes .. failing
	results[#results + 1] = result
	setState(key, 'p' .. session .. itsFence)
	handedOut = handedOut + 1
	bytes = bytes + #result
	newlyHeld[#newlyHeld + 1], newlyHeld[#newlyHeld + 2] = '0', session .. key
end

-- While the line is empty and none was put back, the keys that this batch queues need not enter the line to
-- be handed out, if all are known to have no priority. (That saves up to a fifth of a batch of 64 keys.)
local nextNew = 1 -- of newlyQueued
do
	local isPlain = call('ZCARD', LINE) == 0 and not next(putBack)
	for i = 1, hasNotes and isPlain and #newlyQueued or 0 do
		isPlain = isPlain and nextPriorities[newlyQueued[i]] == 0
	end
	if isPlain then
		local n = math.min(#newlyQueued, most)
		readAbout(newlyQueued, n)
		while wantsMore() and nextNew <= n do
			if isQueued(states[newlyQueued[nextNew]]) then
				handOut(newlyQueued[nextNew], nextNew)
			end
			nextNew = nextNew + 1
		end
	end
end

-- What this batch queues enters the line, after its notes are written.
writePriorities()
do
	local places = {} -- as arguments of ZADD
	for i = nextNew, #newlyQueued do
		local key = newlyQueued[i]
		if isQueued(states[key]) then
			places[#places + 1], places[#places + 2] = placeOf(key), key
		end
	end
	callAll('ZADD', LINE, places)
end

-- The first keys of the line are handed out.
local passed = 0
do
	local head = readSome(most - handedOut, function(from, n)
		return call('ZRANGE', LINE, from, from + n - 1)
	end)
	loadStates(head)
	readAbout(head, #head)
	for i, key in ipairs(head) do
		if not wantsMore() then break end
		passed = passed + 1 -- It leaves the line.
		-- Another program has written the state, or it was lost, or an interrupted batch has not written it.
		if not states[key] then
			setState(key, nowDigits)
			repaired = repaired + 1
		end
		if isQueued(states[key]) then
			handOut(key, i)
		else
			repaired = repaired + 1 -- An interrupted batch has handed it out.
		end
	end
end

callAll('HDEL', NOTES, releasedNotes)
callAll('HSET', NOTES, heldNotes) -- after HDEL: a key that this batch has released may be handed out again

-- Write back. A key has entered the line before it gets the state of a queued key, and leaves the line after
-- it has lost that state. (DISCARD alone removes it before, when no error can come later.)
local present, absent = {}, {}
for key in pairs(touched) do
	local state = states[key]
	if state then
		present[#present + 1], present[#present + 2] = key, state
	else
		absent[#absent + 1] = key
	end
end
callAll('ZREM', HELD, released)
callAll('ZADD', HELD, newlyHeld) -- after ZREM: the session may get a key again that this batch has released
local heldCount = math.max(0, call('ZCARD', HELD) - 1)
dirty = heldCount > 0 and math.max(0, dirty) or 0
-- A tool's lease is short, and the lease clock moves at most half a lease a batch.
local clocks = isTool and {} or { 'time', nowDigits, 'leaseTime', whole(leaseClock) }
call('HSET', META, 'fence', whole(fence), 'dirty', dirty, unpack(clocks))
callAll('HSET', STATES, present)
callAll('HDEL', STATES, absent)
if passed > 0 then
	call('ZREMRANGEBYRANK', LINE, 0, passed - 1)
end
callAll('HDEL', NOTES, usedNotes)
for key in pairs(due) do
	call('ZREM', DELAYS, key)
	setPriority(WAITING_PRIORITY, key, 0)
end
fullAt = fullAt + handedOut * tokenTime
if bucket and handedOut > 0 then
	call('HSET', META, bucket, whole(math.min(math.ceil(fullAt), FOREVER)))
end
-- 1. Repair. A key with a state is either in the line or in HELD, as the numbers show. If they do not, an
-- interrupted batch or a lost part of the data has left keys without their place: a scan finds them in steps.
local queued = call('ZCARD', LINE)
if call('HLEN', STATES) - 1 ~= heldCount + queued then
	local cursor = string.match(call('HGET', META, 'repairAt') or '', '^%d+$') or '0'
	local step = call('HSCAN', STATES, cursor, 'COUNT', 64)
	call('HSET', META, 'repairAt', step[1])
	for i = 1, #step[2], 2 do
		local key, state = step[2][i], step[2][i + 1]
		if isHeld(state) and makesSense(state) then -- Its worker may be alive, or the lease ends.
			repaired = repaired + call('ZADD', HELD, 0, holderOf(state) .. key)
		elseif key ~= FILLER then
			repaired = repaired + call('ZADD', LINE, 'NX', placeOf(key), key)
		end
	end
	heldCount, queued = math.max(0, call('ZCARD', HELD) - 1), call('ZCARD', LINE)
end

-- 2. Sleepers. A session that gets fewer keys than it wants sleeps, if none are left or none may be handed
-- out. A batch wakes a few sleepers, at most one per queued key; these wake further ones.
local isLimited = queued > 0 and not isPaused and handedOut >= allowed -- The start limit holds keys back.
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

-- 3. Keeper. Nothing wakes a sleeper when the next key is due, a pause ends, or tokens of the start limit are
-- there: a session must call then, at callAt. If all did, each due key would cost a call of each replica, so
-- one sleeper does, the keeper: this session if it sleeps; else the present one, if it sleeps and calls by
-- then; else any sleeper, which is woken, because its next reply says when to call.
local waiting = math.max(0, call('ZCARD', DELAYS) - 1)
local callAt = FOREVER
if waiting > 0 then
	callAt = math.min(callAt, tonumber(call('ZRANGE', DELAYS, 0, 0, 'WITHSCORES')[2])) -- It may be infinite.
end
if queued > 0 and isPaused then
	callAt = math.min(callAt, meta.pausedUntil)
elseif isLimited then -- Not a call for each token, but for those of ten milliseconds.
	local tokens = math.max(1, math.min(queued, startBurst, math.floor(startRate / 100)))
	local tokensAt = math.ceil(fullAt - (startBurst - tokens) * tokenTime)
	callAt = math.min(callAt, math.max(now + 1, tokensAt))
end
local callIn = callAt < FOREVER and math.max(0, callAt - now) or -1
if callIn >= 0 then
	local newKeeper = call('SISMEMBER', SLEEPERS, session) == 1 and session
	local callsInTime = keeper and meta.keeperCalls <= callAt
	if not newKeeper and not (callsInTime and call('SISMEMBER', SLEEPERS, keeper) == 1) then
		newKeeper = call('SRANDMEMBER', SLEEPERS)
		if newKeeper then wake(newKeeper) end
	end
	if newKeeper then
		call('HSET', META, 'keeper', newKeeper, 'keeperCalls', whole(callAt))
	end
end

-- 4. Reply.
local allRepaired = meta.repaired + repaired
local limited = isLimited and whole(math.min(math.ceil(fullAt), FOREVER)) + 0 or 0
if isTool then limited = meta.limited end -- It does not know the start limit.
if not description or offset ~= meta.offset or repaired > 0 or limited ~= meta.limited then
	call('HSET', META, 'description', DESCRIPTION, 'offset', whole(offset), 'repaired', allRepaired,
		'limited', whole(limited))
end

-- These cost time, so they are read only for a batch that asks for them.
local failing, givenUp, oldest, pausedBy = 0, 0, '0', ''
if allCounts then
	failing, givenUp = math.max(0, call('ZCARD', FAILURES) - 1), call('ZCARD', GIVEN_UP)
	local head = call('ZRANGE', LINE, 0, 0)[1]
	local state = head and call('HGET', STATES, head)
	oldest = isQueued(state) and makesSense(state) and state or oldest
	pausedBy = isPaused and call('HGET', META, 'pausedBy') or ''
end

if freed then
	results[#results + 1] = 'f' .. #freed .. ' ' .. freed
	call('HDEL', META, 'freed:' .. session)
end

-- parseReply in protocol.go reads the same in this order.
local pauseLeft = isPaused and meta.pausedUntil - now or 0
if meta.pausedUntil == FOREVER then pauseLeft = -1 end -- no end
local status = isFull and 'FULL' or 'OK'
results[0] = format('%s %d %d %d %.0f ', status, handedOut, changed, unmatched, callIn) ..
	format(COUNTS, nowDigits, queued, heldCount, dirty, waiting, failing, givenUp, allRepaired, oldest,
		now < limited and 1 or 0, pauseLeft, #pausedBy, pausedBy)
local reply = table.concat(results, '', 0) -- Lua hashes each string that it makes: this one is the longest.
call('HSET', BATCHES, session, seq .. ' ' .. whole(leaseEnds) .. ' ' .. status, 'reply:' .. session, reply)
return reply

end)()
