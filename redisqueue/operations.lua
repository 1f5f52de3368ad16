-- Executes the operations of the batch. An operation is a letter and what this table has behind it. A capital
-- letter has an argument of 16 characters before the key. Those with a * have a result in the reply, which
-- the table names: without a name it is 1 if the key was there, or 0. protocol.go has the same letters.

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

-- Due keys are added before the batch's own adds. A tool leaves them to replicas: it does not know their
-- PriorityStep.
if not isTool and call('ZCARD', DELAYS) > 1 then
	local dueKeys = readSome(MAX_DUE, function(from, n)
		return call('ZRANGEBYSCORE', DELAYS, '-inf', nowDigits, 'LIMIT', from, n)
	end)
	choresLeft = choresLeft - #dueKeys
	loadStates(dueKeys)
	for _, key in ipairs(dueKeys) do
		addDue(key)
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

-- addResult appends the result of an operation to the reply.
local function addResult(n, left, what)
	results[#results + 1] = 'n' .. whole(n) .. ' ' .. whole(left or 0) .. ' ' .. (what or '') .. ' '
end
local function addResultIf(is) addResult(is and 1 or 0) end

-- Fields of TROUBLES that go at the end: a process that calls Done has survived the key.
local survived = {}

-- takeFromHolder is RELEASE. The holder hears of it with its next batch; what it says until then is late.
local function takeFromHolder(key, state)
	if not isHeld(state) then return false end
	local holder, field = holderOf(state), 'freed:' .. holderOf(state)
	call('HSET', META, field, (call('HGET', META, field) or '') .. fenceOf(state))
	wake(holder)
	if isAnswered(state) then
		release(holder, key, state, true)
	else
		takeBack(holder, key, state)
	end
	return true
end

-- endLate is what ends a hand-out, for one that is over, or whose state the server has lost. In the second case
-- HELD and NOTES still have it, and the key is queued again if it was not finished.
local ENDINGS = DONE .. DONE_PLAIN .. HAND_BACK .. PUT_OFF .. CANNOT_DECODE
local function endLate(code, key, state)
	local isDone = code == DONE or code == DONE_PLAIN
	if isDone or code == HAND_BACK then -- The worker has called Done.
		unmatched = unmatched + 1
	end
	if isHeldBy(session, state) then return end
	if not (isDone or state or touched[key]) and call('ZSCORE', HELD, session .. key) then
		raiseErrorsNow()
		add(key)
		repaired = repaired + 1
	end
	released[#released + 1] = session .. key
	if hasNotes and not isHeld(state) then
		releasedNotes[#releasedNotes + 1] = HELD_CAUSES .. key
		releasedNotes[#releasedNotes + 1] = HELD_PRIORITY .. key
	end
end

-- discard is DISCARD. The worker that holds the key keeps it.
local function discard(key, state)
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
	forgetFailures(key)
	local wasGivenUp = forgetGivenUp(key)
	return state or wasWaiting or hadLosses or hadFailures or wasGivenUp
end

-- pause is PAUSE. Of several pauses the latest end counts.
local function pause(duration, by)
	local ends = duration == '0' and 0 or math.min(FOREVER, math.max(meta.pausedUntil, now + duration))
	if ends == meta.pausedUntil then return end
	meta.pausedUntil = ends
	call('HSET', META, 'pausedUntil', whole(ends), 'pausedBy', nowDigits .. ' ' .. by)
end

loadStates(keys)
-- Branches, not a table of functions: each batch runs the whole script, and defining as many functions is 11
-- % of a batch of one key.
for i, code in ipairs(codes) do
	local key, state = keys[i], states[keys[i]]
	local itsFence = fences[i] or arguments[i]
	local isItsHolder = itsFence and state and fenceOf(state) == itsFence -- A fence is one session's.
	if itsFence and not isItsHolder and find(ENDINGS, code, 1, true) then
		endLate(code, key, state)
	elseif fences[i] and not isItsHolder then -- The hand-out is over.
		if code == FAIL then addResult(0, 0, 'l') end
	elseif code == ADD then
		add(key)
	elseif code == ADD_WHY then
		add(key, sub(details[i], 1, 1) == 'q')
		if #details[i] > 1 then addCauses(key, sub(details[i], 2)) end
	elseif code == ADD_AFTER then
		addAfter(key, arguments[i])
	elseif code == ADD_PRIORITY then
		local priority, delay = string.match(details[i], '^(%-?%d+) (%d+)$')
		addAfter(key, delay, tonumber(priority))
	elseif code == DONE or code == DONE_PLAIN then
		if hasTroubles then
			survived[#survived + 1], survived[#survived + 2] = LOSSES .. key, AT_ONCE .. key
		end
		release(session, key, state, true, code == DONE_PLAIN)
	elseif code == HAND_BACK then -- The hand-out lasts: see ENDINGS.
		local atOnce = tonumber(arguments[i])
		if atOnce > 0 then
			setTrouble(AT_ONCE, key, whole(atOnce))
		elseif hasTroubles then
			call('HDEL', TROUBLES, AT_ONCE .. key)
		end
		takeBack(session, key, state)
	elseif code == PUT_OFF then
		putOff(session, key, state, 1000000)
	elseif code == CANNOT_DECODE then
		forgetNextNotes(key)
		release(session, key, state)
		giveUp(key, 0, 'a replica could not decode the key')
		forgetFailures(key)
	elseif code == FAIL then
		raiseErrorsNow()
		addResult(fail(key, details[i]))
	elseif code == FORGET or code == SUCCEED then
		forget(key)
	elseif code == NUM_REQUEUES then
		addResult(failuresOf(key))
	elseif code == ADDED_AGAIN then
		addResultIf(isItsHolder and isDirty(state) and isLoud(state))
	elseif code == RELEASE then
		raiseErrorsNow()
		addResultIf(takeFromHolder(key, state))
	elseif code == DISCARD then
		raiseErrorsNow()
		addResultIf(discard(key, state))
	elseif code == RETRY_GIVEN_UP or code == FORGET_GIVEN_UP then
		raiseErrorsNow()
		local found = forgetGivenUp(key)
		if found and code == RETRY_GIVEN_UP then
			forgetFailures(key)
			add(key)
		end
		addResultIf(found)
	elseif code == PAUSE then
		pause(string.match(key, '^(%S+) (.*)$'))
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
