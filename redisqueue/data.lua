-- The data of a shard, and how scripts read them: the first part of the script of batch.lua and of that of
-- read.lua.
--
-- STATES keeps the state of a key (of the queue, not of Redis) as a string. A key that waits is in DELAYS,
-- in any state:
--
--   absent              queued    <added>                           16 characters
--   processing          p<session><fence>                           28
--   processing+dirty    d<session><fence><added>                    44; e while all adds since were quiet, as
--                                                                       that of a retry is: see isAddedByRetryAlone
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

-- A long entry in META, STATES, HELD, DELAYS, FAILURES and RETRIES, which is not counted. Redis keeps small
-- hashes and sorted sets as lists, and scans those at each look-up, unless an entry is long. (Without it
-- batches of 64 keys take up to a third longer.)
local FILLER = string.rep('\0', 80)

local FOREVER = 2 ^ 53 -- the largest time

-- COUNTS are the numbers of a shard, as protocol.go reads them: the time; how many keys are queued, held, held
-- and added again, waiting, failing, given up; how many entries were repaired; since when the oldest key is
-- queued; 1 if the start limit holds keys back; what is left of a pause, -1 if it has no end; the length of its
-- pausedBy, and that.
local COUNTS = '%s %d %d %d %d %d %d %d %s %d %.0f %d %s'

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

-- oldestQueued returns since when the head of the line is queued, 0 for an empty line.
local function oldestQueued()
	local head = call('ZRANGE', LINE, 0, 0)[1]
	local state = head and call('HGET', STATES, head)
	return isQueued(state) and state or '0'
end

-- cardOf returns how many entries a sorted set has, without its filler.
local function cardOf(set) return math.max(0, call('ZCARD', set) - 1) end

-- readSome returns up to limit keys from page(offset, count), fewer if they are long, and true if these are
-- surely all. Redis walks through a long list to each offset, so there are few pages.
local MAX_BYTES = 65536 -- how much is read or handed out at a time
local function readSome(limit, page)
	local keys, bytes, count = {}, 0, math.min(8, limit)
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
