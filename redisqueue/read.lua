-- Reads a shard, and writes nothing: EVAL_RO runs it, also for a user who may not write, and on a read-only
-- replica. data.lua stands before it. ARGV is one of
--
--   counts                      the numbers of the shard: the reply is COUNTS
--   key, the key                what is known of a key
--   page, list, from, count     up to count keys of a sorted set, in its order. When other clients remove keys
--                               in between, the next page misses as many.
--   scan, list, from, count     about count keys of a list, in no order. A scan misses no key that is in the
--                               list from its first call to its last.
--
-- from is 0 at first, and then the `next` of the last reply, which is empty at the end of the list.
--
-- Any other reply has lists of names and values: first that of the shard, with `offset` (how far the queue's
-- clock is ahead of the server's) and `next`, then one for each key.

-- counts returns the numbers of the shard.
local function counts()
	local meta = call('HMGET', META, 'time', 'offset', 'dirty', 'repaired', 'pausedUntil', 'limited', 'pausedBy')
	for i = 1, 6 do -- its numbers
		meta[i] = tonumber(meta[i] or 0)
	end
	local lastNow, offset, dirty, repaired, pausedUntil, limited, pausedBy = unpack(meta)
	local time = call('TIME')
	local now = math.max(time[1] * 1000000 + time[2] + offset, lastNow)
	local pauseLeft = pausedUntil == FOREVER and -1 or math.max(0, pausedUntil - now)
	local by = pauseLeft ~= 0 and pausedBy or ''
	return format(COUNTS, whole(now), call('ZCARD', LINE), cardOf(HELD), dirty, cardOf(DELAYS), cardOf(FAILURES),
		call('ZCARD', GIVEN_UP), repaired, oldestQueued(), now < limited and 1 or 0, pauseLeft, #by, by)
end

-- LISTS are the lists: where their members are, and in which order a page has them.
local LISTS = {
	processing = { HELD, 'ZRANGE' }, queued = { LINE, 'ZRANGE' }, waiting = { DELAYS, 'ZRANGE' },
	failing = { FAILURES, 'ZREVRANGE' }, givenup = { GIVEN_UP, 'ZREVRANGE' }, states = { STATES },
}

-- page and scan return members of a list, and where to continue.
local function page(list, from, count)
	local set, command = unpack(LISTS[list])
	local members, isEnd = readSome(count, function(offset, n)
		return call(command, set, from + offset, from + offset + n - 1)
	end)
	return members, isEnd and '' or whole(from + #members)
end

local function scan(list, from, count)
	local set = LISTS[list][1]
	local reply = call(set == STATES and 'HSCAN' or 'ZSCAN', set, from, 'COUNT', count)
	local members = {}
	for i = 1, #reply[2], 2 do -- A state or score is behind each key.
		members[#members + 1] = reply[2][i]
	end
	return members, reply[1] ~= '0' and reply[1] or ''
end

-- about returns what is known of a key. Only a reply about a single key has its causes.
local function about(key, withCauses)
	local state = call('HGET', STATES, key)
	local hasHolder = isHeld(state)
	local reason, losses, failing =
		unpack(call('HMGET', TROUBLES, REASON .. key, LOSSES .. key, FAILING .. key))
	local priority = hasHolder and HELD_PRIORITY or state and NEXT_PRIORITY or WAITING_PRIORITY
	local causes = hasHolder and HELD_CAUSES or NEXT_CAUSES
	return {
		'key', key, 'state', state, 'holder', hasHolder and call('HGET', META, 'name:' .. holderOf(state)),
		'due', call('ZSCORE', DELAYS, key), 'failures', call('ZSCORE', FAILURES, key), 'failing', failing,
		'losses', losses, 'givenAt', call('ZSCORE', GIVEN_UP, key), 'reason', reason,
		'priority', call('HGET', NOTES, priority .. key), 'causes', withCauses and call('HGET', NOTES, causes .. key),
	}
end

local mode = ARGV[1]
if mode == 'counts' then return counts() end
local shard = { 'offset', tonumber(call('HGET', META, 'offset') or 0) }
if mode == 'key' then return { shard, about(ARGV[2], true) } end

local list = ARGV[2]
local members, nextFrom = (mode == 'page' and page or scan)(list, ARGV[3], tonumber(ARGV[4]))
local reply = { shard }
shard[3], shard[4] = 'next', nextFrom
for _, member in ipairs(members) do
	if member ~= FILLER then -- HELD has <session><key>.
		reply[#reply + 1] = about(list == 'processing' and sub(member, 12) or member, false)
	end
end
return reply
