-- Reads a shard for people and tools, and writes nothing: EVAL_RO runs it, also for a user who may not write, and on a read-only
-- replica. KEYS are those of batch.lua, without the last; batch.lua, notes.lua and failures.lua describe them. ARGV says what to read:
--
--   counts                      the numbers of all states
--   key, the key                what is known of one key
--   page, list, from, count     up to count keys of a list, in its order. from is 0 at first, and then the `next` of the last reply.
--                               When other clients remove keys in between, the next page misses as many.
--   scan, list, cursor, count   about count keys of a list, in no order. The cursor is 0 at first, and then the `next` of the last
--                               reply. A scan misses no key that is in the list from its first call to its last.
--
-- A reply is a list of names and values. For a list it is followed by one such list for each key.
local META, STATES, LINE, DELAYS, FAILURES, HELD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[8]
local ASIDE, GIVEN_UP, TROUBLES, NOTES = KEYS[10], KEYS[13], KEYS[14], KEYS[15]
local LISTS = {
	processing = HELD, queued = LINE, waiting = DELAYS, failing = FAILURES, givenup = GIVEN_UP, aside = ASIDE, states = STATES,
}
local what, list, from, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local call, FILLER, BYTES = redis.call, string.rep('\0', 80), 65536 -- BYTES of keys fill a page.

if what == 'counts' then
	local meta = call('HMGET', META, 'dirty', 'repaired', 'pausedUntil', 'offset', 'time', 'pausedBy', 'limitedAt')
	local time, head = call('TIME'), call('ZRANGE', LINE, 0, 0)[1]
	return {
		'queued', call('ZCARD', LINE), 'held', call('ZCARD', HELD), 'delays', call('ZCARD', DELAYS), 'failures', call('ZCARD', FAILURES),
		'givenUp', call('ZCARD', GIVEN_UP), 'aside', call('SCARD', ASIDE), 'dirty', meta[1], 'repaired', meta[2], 'pausedUntil', meta[3],
		'offset', meta[4], 'pausedBy', meta[6], 'limitedAt', meta[7], 'head', head and call('HGET', STATES, head) or false,
		'now', string.format('%.0f', math.max(time[1] * 1000000 + time[2] + (meta[4] or 0), meta[5] or 0)),
	}
end

local keys, next = {}, '' -- next is empty at the end of the list.
local function append(member)
	if member ~= FILLER then
		keys[#keys + 1] = list == 'processing' and string.sub(member, 12) or member -- HELD has <session><key>.
	end
end
if what == 'key' then
	keys = { ARGV[2] }
elseif what == 'scan' then
	local command = list == 'aside' and 'SSCAN' or list == 'states' and 'HSCAN' or 'ZSCAN'
	local reply = call(command, LISTS[list], from, 'COUNT', count)
	next = reply[1] ~= '0' and reply[1] or ''
	for i = 1, #reply[2], list == 'aside' and 1 or 2 do -- The others have a value or score behind each key.
		append(reply[2][i])
	end
else
	-- Redis walks through a long list to the place of a read. So there are few reads: each is larger than the last, unless keys are long.
	local command = (list == 'failing' or list == 'givenup') and 'ZREVRANGE' or 'ZRANGE'
	local first, at, bytes, size, isEnd = tonumber(from), tonumber(from), 0, math.min(8, count), false
	repeat
		local members = call(command, LISTS[list], at, at + size - 1)
		for _, member in ipairs(members) do
			append(member)
			bytes = bytes + #member
		end
		at = at + #members
		isEnd = #members < size
		size = math.min(count - (at - first), 4 * size, math.floor((BYTES - bytes) * (at - first) / (bytes + 1)))
	until isEnd or size <= 0
	next = isEnd and '' or string.format('%.0f', at)
end

local function isHeld(state) return state and #state > 16 end
local reply = { { 'next', next, 'offset', call('HGET', META, 'offset') } } -- The queue's clock is ahead of the server's by offset.
if #keys > 0 then
	local states, failures = call('HMGET', STATES, unpack(keys)), call('ZMSCORE', FAILURES, unpack(keys))
	local dues, given = call('ZMSCORE', DELAYS, unpack(keys)), call('ZMSCORE', GIVEN_UP, unpack(keys))
	for i, key in ipairs(keys) do
		local state, alone = states[i], what == 'key'
		local held, troubles = isHeld(state), call('HMGET', TROUBLES, 'r' .. key, 'l' .. key)
		reply[#reply + 1] = {
			'key', key, 'state', state, 'failures', failures[i], 'due', dues[i], 'givenAt', given[i], 'reason', troubles[1],
			'losses', troubles[2], 'holder', held and call('HGET', META, 'name:' .. string.sub(state, 2, 12)),
			'priority', call('HGET', NOTES, (held and 'q' or state and 'p' or 'w') .. key),
			'causes', alone and call('HGET', NOTES, (held and 'h' or 'n') .. key), 'aside', alone and call('SISMEMBER', ASIDE, key),
		}
	end
end
return reply
