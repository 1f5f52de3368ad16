-- The second part of batch.lua: the operations of the batch. What they decide is in local variables until handout.lua writes
-- it; what is about one key alone, and harmless if it is done twice, they write themselves.

-- states has those keys' states that were read, false for absent. What is written back in the end is in touched. Lists
-- to which every key is appended have a counter: #list searches for the end.
local states, touched = {}, {}
local held, released, holds = {}, {}, {} -- arguments for ZADD and ZREM of HELD; holds has what the former adds
local front, tail, due = {}, {}, {} -- queued before all others, the last one first; after all others; no longer delayed
local uncaused = {} -- fields of CAUSES to be deleted
local changed, unmatched = 0, 0
local results = {}

-- each calls a command with all of a list. Lua cannot unpack more than about 8000 values.
local function each(command, key, list)
	for first = 1, #list, 1000 do
		call(command, key, unpack(list, first, math.min(first + 999, #list)))
	end
end

-- read returns up to limit keys from page(offset, count), fewer if they are long, and whether that is all there is.
local function read(limit, page)
	local list, bytes, count = {}, 0, math.min(2, limit)
	while count > 0 do
		local more = page(#list, count)
		for _, key in ipairs(more) do
			list[#list + 1] = key
			bytes = bytes + #key
		end
		if #more < count then
			return list, true
		end
		-- As many as are likely to fit, and not too many if the first were short by chance.
		count = math.min(limit - #list, 3 * #list, math.floor((BYTES - bytes) * #list / (bytes + 1)))
	end
	return list, false
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
	for first = 1, n, 1000 do
		local values = call('HMGET', STATES, unpack(missing, first, math.min(first + 999, n)))
		for i, state in ipairs(values) do
			states[missing[first + i - 1]] = state
		end
	end
end

local function set(key, state)
	states[key] = state
	touched[key] = true
end

local function isQueued(key)
	local state = states[key]
	return state and #state == 16
end

local function add(key, quiet)
	local state = states[key]
	if not state then
		set(key, since)
		tail[#tail + 1] = key
		changed = changed + 1
	elseif byte(state) == 112 then -- p
		set(key, (quiet and 'e' or 'd') .. sub(state, 2) .. since)
		again = again + 1
		changed = changed + 1
	elseif not quiet and byte(state) == 101 then -- e
		set(key, 'd' .. sub(state, 2))
	end
end

local function isDirty(state) return byte(state) == 100 or byte(state) == 101 end -- d or e

local waiting
local function addLater(key, delay)
	if delay <= 0 then
		load({ key })
		add(key)
		return
	end
	if due[key] then
		due[key] = nil
		call('ZREM', DELAYS, key)
	end
	call('ZADD', DELAYS, 'LT', digits(now + delay), key)
	waiting = nil
end

-- heldUnder returns the key's state if it is held under that fence. No two hand-outs have the same.
local function heldUnder(itsFence, key)
	local state = states[key]
	return state and find(state, itsFence, 13, true) == 13 and state
end

-- release ends the processing of a key, and returns since when it is dirty, if it is.
local function release(holder, key, state)
	released[#released + 1] = holder .. key
	if caused then
		uncaused[#uncaused + 1] = 'h' .. key
	end
	set(key, false)
	if isDirty(state) then
		again = again - 1
		return sub(state, 29)
	end
end

-- Keys whose time has come are added before what the batch adds.
local chores = CHORES
waiting = call('ZCARD', DELAYS) - 1 -- nil when it must be read again
if waiting > 0 then
	local keys = read(DUE, function(from, n) return call('ZRANGEBYSCORE', DELAYS, '-inf', since, 'LIMIT', from, n) end)
	chores = chores - #keys
	load(keys)
	for _, key in ipairs(keys) do
		add(key)
		due[key] = true
		waiting = nil
	end
end

local givenUp, gaveUp = nil, false -- how many keys were given up, when that was read
local function countGivenUp()
	givenUp = givenUp or call('ZCARD', GIVEN)
	return givenUp
end
local function dropGivenUp(key)
	if countGivenUp() == 0 or call('ZREM', GIVEN, key) == 0 then
		return false
	end
	givenUp = givenUp - 1
	call('HDEL', REASONS, key)
	call('HDEL', LOSSES, key)
	return true
end

local function forget(key)
	if call('ZREM', FAILURES, key) > 0 then
		call('ZREM', EXPIRIES, key)
		call('HDEL', LASTS, key)
	end
	dropGivenUp(key)
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

-- What most batches do not need is defined when it is: to make these functions takes as long as to execute a few commands.
local bucketChanged = false
local seldom
local function rare()
	if seldom then
		return seldom
	end
	seldom = {}

	-- addCauses merges causes into those that a key has, as workqueue.Causes.Plus does. They are
	-- <number of others> <time of the first> and, for each of the last eight, <length> <time><q or l><what it is>.
	local function addCauses(key, later)
		local others, first, last = 0, nil, {}
		local function plus(text)
			local more, began, at = string.match(text, '^(%d+) (%d+) ()')
			others, first = others + more, first or began
			while at <= #text do
				local length, from = string.match(text, '^(%d+) ()', at)
				local cause = sub(text, from, from + length - 1)
				at = from + length
				for i = #last, 1, -1 do
					if sub(last[i], 18) == sub(cause, 18) then
						table.remove(last, i)
					end
				end
				last[#last + 1] = cause
				if #last > 8 then
					table.remove(last, 1)
					others = others + 1
				end
			end
		end
		if not caused then
			call('HSET', META, 'n', 1)
			caused = true
		end
		local earlier = call('HGET', CAUSES, 'n' .. key)
		if earlier then
			plus(earlier)
			plus(later)
			for i, cause in ipairs(last) do
				last[i] = #cause .. ' ' .. cause
			end
			later = whole(others) .. ' ' .. first .. ' ' .. table.concat(last)
		end
		call('HSET', CAUSES, 'n' .. key, later)
	end

	-- keepCauses keeps the causes of a hand-out that was not finished for the next one.
	local function keepCauses(key)
		local held = caused and call('HGET', CAUSES, 'h' .. key)
		if held then
			local later = call('HGET', CAUSES, 'n' .. key)
			call('HSET', CAUSES, 'n' .. key, held)
			if later then
				addCauses(key, later)
			end
		end
	end

	-- forgetCauses forgets why a key was added that will not come again.
	local function forgetCauses(key)
		if caused then
			call('HDEL', CAUSES, 'n' .. key)
		end
	end

	-- putBack queues a key that was not finished, before all others. It is dirty since it was handed out.
	function seldom.putBack(holder, key, state)
		keepCauses(key)
		release(holder, key, state)
		set(key, sub(state, 13, 28))
		front[#front + 1] = key
	end

	-- membersOf returns a function that reads the entries of a session's keys in HELD.
	function seldom.membersOf(holder)
		local past = sub(holder, 1, -2) .. string.char(byte(holder, -1) + 1)
		return function(from, n) return call('ZRANGEBYLEX', HELD, '[' .. holder, '(' .. past, 'LIMIT', from, n) end
	end

	local function failuresOf(key)
		local expires = call('ZSCORE', EXPIRIES, key)
		if not expires or score(expires) <= now then
			return 0
		end
		return score(call('ZSCORE', FAILURES, key) or 0)
	end

	local settings
	local function setting(name)
		if not settings then
			settings = {}
			for field, value in string.gmatch(SETTINGS, '(%a+)=(%S+)') do
				settings[field] = tonumber(value)
			end
		end
		return settings[name]
	end

	local function countFailure(key, failures, delay)
		call('ZADD', FAILURES, failures + 1, key)
		call('ZADD', EXPIRIES, digits(now + delay + setting('forget')), key)
	end

	-- addRateLimited counts a failure of the key, and adds it after the longer of two delays: the backoff, as
	-- workqueue.BackoffConfig defines it, and what the token bucket demands. random is from [0, 1): the server's own
	-- random numbers are the same in each script.
	function seldom.addRateLimited(key, random)
		local base, longest, jitter, limit = setting('base'), setting('max'), setting('jitter'), setting('limit')
		local failures = failuresOf(key)
		local delay = math.min(base * setting('factor') ^ failures, longest)
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
			local burst = setting('burst')
			local tokens, filled = tonumber(meta[5]) or burst, tonumber(meta[6]) or now
			tokens = math.min(burst, tokens + math.max(0, now - filled) * limit / 1000000) - 1
			meta[5], meta[6], bucketChanged = format('%.6f', tokens), format('%.0f', now), true
			if tokens < 0 then
				delay = math.max(delay, math.ceil(-tokens / limit * 1000000))
			end
		end
		countFailure(key, failures, delay)
		addLater(key, delay)
	end

	function seldom.giveUp(key, attemptsAndReason)
		givenUp, gaveUp = countGivenUp() + call('ZADD', GIVEN, since, key), true
		call('HSET', REASONS, key, attemptsAndReason)
	end

	local function result(found) results[#results + 1] = found and 'n1 ' or 'n0 ' end

	-- remove takes a key out, but for the worker that holds it. In a long line its place stays, and is skipped.
	local function remove(key)
		local found, state = call('ZREM', DELAYS, key) > 0, states[key]
		waiting = nil
		if isQueued(key) then
			set(key, false)
			if call('LLEN', LINE) <= 10000 then
				call('LREM', LINE, 1, key)
			end
		elseif state and isDirty(state) then
			set(key, 'p' .. sub(state, 2, 28))
			again = again - 1
		end
		forgetCauses(key)
		forget(key)
		call('HDEL', LOSSES, key)
		return found or state
	end

	-- execute executes the operations that have no function above.
	function seldom.execute(code, key, argument, rest)
		if code == 'c' then -- An add with its causes, behind q if it is quiet, and l.
			add(key, byte(rest) == 113)
			if #rest > 1 then
				addCauses(key, sub(rest, 2))
			end
		elseif code == 'w' then -- Was the key that the session holds added again?
			local state = heldUnder(argument, key)
			result(state and byte(state) == 100)
		elseif code == 'n' then
			results[#results + 1] = 'n' .. failuresOf(key) .. ' '
		elseif code == 'q' then -- Quit ends the session. What it holds is reclaimed below, and its blocking read is woken to end.
			call('ZADD', LEASES, -1, session)
			wake(session)
		elseif code == 'b' or code == 'u' then -- A key that is held is handed back, or set aside.
			local state = heldUnder(argument, key)
			if state and code == 'b' then
				seldom.putBack(session, key, state)
			elseif state then
				forgetCauses(key)
				release(session, key, state)
				call('SADD', ASIDE, key)
			end
		elseif code == 'P' or code == 'R' then -- Pause and Resume have no key.
			paused = code == 'P'
		elseif code == 'x' then
			result(remove(key))
		elseif code == 't' or code == 'y' then -- A key that was given up is tried again, or only not listed any more.
			local found = dropGivenUp(key)
			if found and code == 't' then
				forget(key)
				add(key)
			end
			result(found)
		elseif code == 's' then -- A key that was set aside is queued again.
			local found = call('SREM', ASIDE, key) > 0
			if found then
				add(key)
			end
			result(found)
		elseif code == 'g' then
			seldom.giveUp(key, rest)
		end
	end
	-- lose gives a key back whose holder was heard of no more. It may have killed its process, and the keys beside it: the
	-- second time, and from then on, each of these comes at a time of its own, later and later, and in the end not at all.
	function seldom.lose(holder, key, state)
		local losses, most, delay = tonumber(call('HGET', LOSSES, key) or 0) + 1, setting('losses'), 0
		call('HSET', LOSSES, key, losses)
		if losses > 1 then
			local random = (now % 1000 * 7919 + #released * 104729) % 1000 / 1000
			delay = math.ceil(math.min(lease * 2 ^ (losses - 2), math.max(setting('max'), lease)) * (1 + random) / 2)
		end
		countFailure(key, failuresOf(key), delay)
		if most > 0 and losses >= most then
			forgetCauses(key)
			release(holder, key, state)
			seldom.giveUp(key, losses .. ' the lease was lost ' .. losses .. ' times in a row: the handler may end its process')
		elseif delay > 0 then
			keepCauses(key)
			release(holder, key, state)
			addLater(key, delay)
		else
			seldom.putBack(holder, key, state)
		end
	end

	seldom.setting = setting

	return seldom
end

-- The attempt may have handed out keys and not have come to its end: the replica does not know that it has them.
if interrupted then
	local members = read(4096, rare().membersOf(session))
	local keys = {}
	for i, member in ipairs(members) do
		keys[i] = sub(member, #session + 1)
	end
	load(keys)
	for _, key in ipairs(keys) do
		local state = states[key]
		local holds = state and #state >= 28 and sub(state, 2, 12) == session
		if holds and sub(state, 13, 28) > interrupted then
			rare().putBack(session, key, state)
			repaired = repaired + 1
		elseif not holds then
			released[#released + 1] = session .. key
			repaired = repaired + 1
		end
	end
end

-- Operations have a key, or an argument of 16 characters and a key, or the length of the key in 16 characters, the key and a rest.
local WITH_ARGUMENT, WITH_REST, WITH_STATE = 'lrdbuw', 'cg', 'adbuxtscw'
local codes, keys, arguments, rests, toLoad, finished, n = {}, {}, {}, {}, {}, {}, 0
for i = 1, #ARGV - FIRST_OP + 1 do
	local op = ARGV[FIRST_OP + i - 1]
	local code = sub(op, 1, 1)
	codes[i] = code
	if find(WITH_ARGUMENT, code, 1, true) then
		arguments[i], keys[i] = sub(op, 2, 17), sub(op, 18)
	elseif find(WITH_REST, code, 1, true) then
		local past = 18 + tonumber(sub(op, 2, 17), 10)
		keys[i], rests[i] = sub(op, 18, past - 1), sub(op, past)
	else
		keys[i] = sub(op, 2)
	end
	if find(WITH_STATE, code, 1, true) then
		n = n + 1
		toLoad[n] = keys[i]
	end
	if code == 'd' then
		finished[#finished + 1] = keys[i]
	end
end
load(toLoad)
for i, code in ipairs(codes) do
	local key, argument = keys[i], arguments[i]
	if full and find('aclr', code, 1, true) then
		-- A full server executes no adds. The replica sends them again.
	elseif code == 'a' then
		add(key)
	elseif code == 'd' then
		local state = heldUnder(argument, key)
		local dirtySince = state and release(session, key, state)
		if dirtySince then
			set(key, dirtySince)
			tail[#tail + 1] = key
		elseif not state then
			unmatched = unmatched + 1
		end
	elseif code == 'f' then
		forget(key)
	elseif code == 'l' then
		addLater(key, tonumber(argument, 10))
	elseif code == 'r' then
		rare().addRateLimited(key, tonumber(argument))
	else
		rare().execute(code, key, argument, rests[i])
	end
end
-- A process that has called Done has survived the key.
if #finished > 0 and call('HLEN', LOSSES) > 0 then
	call('HDEL', LOSSES, unpack(finished))
end
