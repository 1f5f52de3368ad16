-- Reads a shard for people and tools, and writes nothing: EVAL_RO runs it, also for a user who may not write,
-- and on a read-only replica. data.lua stands before it. ARGV says what to read:
--
--   counts                      the numbers of all states
--   key, the key                what is known of one key
--   page, list, from, count     up to count keys of a sorted set, in order. When other clients remove keys in
--                               between, the next page misses as many.
--   scan, list, from, count     about count keys of a list, in no order. A scan misses no key that is in the
--                               list from its first call to its last.
--
-- from is 0 at first, and then the `next` of the last reply.
--
-- The reply to counts is text, as batch.lua replies to an empty batch with allCounts. All others are lists of lists of names
-- and values: first `next` and the offset, then one for each key.
local LISTS = {
	processing = HELD, queued = LINE, waiting = DELAYS, failing = FAILURES, givenup = GIVEN_UP, states = STATES,
}
local what, list, from, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

if what == 'counts' then
	local meta = call('HMGET', META, 'dirty', 'repaired', 'pausedUntil', 'limited', 'offset', 'time', 'pausedBy')
	local time, head = call('TIME'), call('ZRANGE', LINE, 0, 0)[1]
	local now = math.max(time[1] * 1000000 + time[2] + (meta[5] or 0), meta[6] or 0)
	local pauseLeft, by = math.max(0, (meta[3] or 0) - now), meta[7] or ''
	local state = head and call('HGET', STATES, head) or ''
	if state ~= '' and not makesSense(state) then
		return redis.error_reply('ERR another program has written the state of ' .. head)
	end
	local function count(set) return math.max(0, call('ZCARD', set) - 1) end -- without the filler
	return { format('OK %.0f %d %d %s %d ', now, call('ZCARD', LINE), count(HELD), meta[1] or '0', count(DELAYS)) ..
		format('0 0 -1 %.0f ', meta[3] == whole(FOREVER) and -1 or pauseLeft) ..
		format('%d %d %d ', now < (meta[4] or 0) + 0 and 1 or 0, count(FAILURES), call('ZCARD', GIVEN_UP)) ..
		format('%s %s 0 ', meta[2] or '0', isQueued(state) and state or '0') ..
		(pauseLeft > 0 and 'p' .. #by .. ' ' .. by or '') }
end

local members, nextFrom = {}, '' -- nextFrom is empty at the end of the list.
if what == 'scan' then
	local reply = call(list == 'states' and 'HSCAN' or 'ZSCAN', LISTS[list], from, 'COUNT', count)
	nextFrom = reply[1] ~= '0' and reply[1] or ''
	for i = 1, #reply[2], 2 do -- A state or score is behind each key.
		members[#members + 1] = reply[2][i]
	end
elseif what == 'page' then
	local newestFirst = list == 'failing' or list == 'givenup'
	local command, isEnd = newestFirst and 'ZREVRANGE' or 'ZRANGE', false
	members, isEnd = readSome(count, function(offset, n)
		return call(command, LISTS[list], from + offset, from + offset + n - 1)
	end)
	nextFrom = isEnd and '' or whole(from + #members)
end
local keys = what == 'key' and { ARGV[2] } or {}
for _, member in ipairs(members) do
	if member ~= FILLER then
		keys[#keys + 1] = list == 'processing' and sub(member, 12) or member -- HELD has <session><key>.
	end
end

-- The queue's clock is ahead of the server's by offset.
local reply = { { 'next', nextFrom, 'offset', call('HGET', META, 'offset') } }
if #keys > 0 then
	local states, failures = call('HMGET', STATES, unpack(keys)), call('ZMSCORE', FAILURES, unpack(keys))
	local dues, given = call('ZMSCORE', DELAYS, unpack(keys)), call('ZMSCORE', GIVEN_UP, unpack(keys))
	local isSingle = what == 'key'
	for i, key in ipairs(keys) do
		local state, troubles = states[i], call('HMGET', TROUBLES, REASON .. key, LOSSES .. key, FAILING .. key)
		local hasHolder = isHeld(state)
		local priority = (hasHolder and HELD_PRIORITY or state and NEXT_PRIORITY or WAITING_PRIORITY) .. key
		local causes = (hasHolder and HELD_CAUSES or NEXT_CAUSES) .. key
		reply[#reply + 1] = {
			'key', key, 'state', state, 'failures', failures[i], 'due', dues[i], 'givenAt', given[i], 'reason', troubles[1],
			'losses', troubles[2], 'failing', troubles[3],
			'holder', hasHolder and call('HGET', META, 'name:' .. holderOf(state)),
			'priority', call('HGET', NOTES, priority), 'causes', isSingle and call('HGET', NOTES, causes),
		}
	end
end
return reply
