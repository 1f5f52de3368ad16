package redisqueue

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua
var luaFiles embed.FS

var (
	batchLua    = lua("data batch states notes keys failures operations reclaim handout reply")
	batchScript = redis.NewScript(batchLua)
	readScript  = redis.NewScript(lua("data read"))
)

// lua returns the text of files, whose names have blanks between them, one after the other.
func lua(names string) (source string) {
	for _, name := range strings.Fields(names) {
		text, err := luaFiles.ReadFile(name + ".lua")
		if err != nil {
			panic(err)
		}
		source += string(text)
	}
	return source
}

// keyNames are the KEYS of the scripts, in the order of data.lua: those of a shard, and the one of a session.
type keyNames struct {
	prefix string
	shard  []string
}

func newKeyNames(queue string, shard int) keyNames {
	prefix := "workqueue:{" + queue + "/" + strconv.Itoa(shard) + "}:"
	n := keyNames{prefix: prefix}
	for _, name := range []string{
		"meta", "states", "line", "delays", "failures", "retries", "leases", "held", "sleepers", "batches",
		"gone", "givenup", "troubles", "notes",
	} {
		n.shard = append(n.shard, prefix+name)
	}
	return n
}

func (n keyNames) wake(session string) string { return n.prefix + "wake:" + session }

func (n keyNames) of(session string) []string {
	return append(n.shard[:len(n.shard):len(n.shard)], n.wake(session))
}

// filler is what the script puts into some hashes and sorted sets: see FILLER in data.lua.
var filler = strings.Repeat("\x00", 80)

// Bounds on what one call asks the server to do, so that it takes no longer than a few milliseconds.
// data.lua has one on the bytes that are handed out, batch.lua those on what a batch does for other replicas.
const (
	maxWork  = 512 // see code.work; a key that is handed out is worth one
	maxWant  = 256
	maxBytes = 64 << 10
)

// code is the letter of an operation. operations.lua has the same list, and says what follows each letter and
// which result there is.
type code byte

const (
	codeAdd           code = 'a'
	codeAddWhy        code = 'C' // codeAdd, encoded with its causes
	codeAddAfter      code = 'L'
	codeAddPriority   code = 'P'
	codeFail          code = 'F'
	codeForget        code = 'f'
	codeSucceed       code = 'g' // codeForget, as an answer
	codeNumRequeues   code = 'n'
	codeDone          code = 'D'
	codeDonePlain     code = 'E' // codeDone, encoded for a hand-out without causes and priority
	codeHandBack      code = 'B'
	codePutOff        code = 'O'
	codeRelease       code = 'r'
	codeCannotDecode  code = 'U'
	codeAddedAgain    code = 'W'
	codeDiscard       code = 'x'
	codeRetryGivenUp  code = 't'
	codeForgetGivenUp code = 'y'
	codePause         code = 'p'
	codeIdentify      code = 'i'
	codeEnds          code = 'e'
	codeQuit          code = 'q'

	codeByHolder code = 'H' // before another operation: see byHolder
)

// isAdd reports whether a full server does not execute the operation, unless the key's holder says it.
func (c code) isAdd() bool {
	return c == codeAdd || c == codeAddWhy || c == codeAddAfter || c == codeAddPriority || c == codeFail
}

// work is how much the operation costs the server, in adds.
func (c code) work() int {
	switch c {
	case codeAdd, codeDone, codeDonePlain, codeHandBack, codeCannotDecode, codeAddedAgain, codeNumRequeues:
		return 1
	case codeAddWhy, codeAddAfter, codeForget, codeSucceed:
		return 2
	}
	return 6
}

// aboutHeld returns an operation on a key that is held.
func aboutHeld(c code, key handedOut) *op {
	letter := c
	if c == codeDone && key.causes == "" && key.priority == 0 {
		letter = codeDonePlain // It costs the server less.
	}
	return &op{code: c, text: string(letter) + key.fence + key.encoded, fence: key.fence, key: key.encoded}
}

// newHandBack returns the operation that gives a key back with its AtOnce.
func newHandBack(key handedOut) *op {
	return newOp(codeHandBack, fmt.Sprintf("%016d%s", key.atOnce, key.encoded)).byHolder(key.fence)
}

// byHolder makes o an operation that the server executes only while the hand-out with that fence lasts, and
// also if its memory is full. With noFence only the latter. Nothing is merged into it.
func (o *op) byHolder(fence string) *op {
	o.text, o.fence, o.merges = string(codeByHolder)+fence+o.encode(), fence, false
	return o
}

// encode returns the operation as operations.lua reads it, when it is sent: until then, adds may be merged
// into it.
func (o *op) encode() string {
	switch {
	case !o.merges:
		return o.text
	case o.code == codeAddAfter && o.priority == 0:
		return fmt.Sprintf("%c%016d%s", codeAddAfter, o.micros, o.key)
	case o.code != codeAdd:
		return fmt.Sprintf("%c%016d%s%d %d", codeAddPriority, len(o.key), o.key, o.priority, o.micros)
	case o.quiet || !o.causes.IsZero():
		why := volume[o.quiet] + encodeCauses(o.causes)
		return fmt.Sprintf("%c%016d%s%s", codeAddWhy, len(o.key), o.key, why)
	}
	return string(codeAdd) + o.key
}

// argv is what batch.lua gets as ARGV. The comments there give its order and what the flags mean.
func (s *shard[T]) argv(b *batch) []any {
	var flags string
	flagIf := func(is bool, flag string) {
		if is {
			flags += flag
		}
	}
	flagIf(b.leavesSleepers, "leavesSleepers ")
	flagIf(b.allCounts, "allCounts ")
	flagIf(s.q.tool, "isTool ")
	flagIf(b.interrupted, "knownFence="+b.session.lastFence)
	args := make([]any, 0, 9+len(b.encoded))
	args = append(args, b.session.id, b.session.batchSeq, s.q.config.Lease.Microseconds(), b.want, flags,
		s.q.settings, s.q.config.description)
	if b.session.batchSeq == 1 {
		args = append(args, string(codeIdentify)+s.q.config.Replica)
	}
	args = append(args, b.encoded...)
	if b.quits {
		args = append(args, string(codeQuit))
	}
	return args
}

// reply is what batch.lua returned.
type reply struct {
	// status is OK; FULL: as OK, but full; LOST: nothing was executed, or its reply is lost with a part of the
	// data: it is sent again, and the session is over; GONE: the batch was executed, then the session ended.
	status             string
	full               bool   // the server's memory was full: the adds were not executed
	now                int64  // microseconds of the queue's clock
	counts             Counts // of the whole shard; some only if the batch has allCounts, see applyReplyLocked
	changed, unmatched int64
	callIn             time.Duration // when the replica should call, although nothing wakes it, or negative
	keys               []handedOut
	freed              []string // fences of hand-outs that an operator has ended, see Admin.Release
	opResults          []opResult
}

// opResult is what the server returns for an operation: see operations.lua.
type opResult struct {
	n       int           // how many failures it has, or 1 if it was there
	left    time.Duration // of the delay of the last failure
	same    bool          // of codeFail, see workqueue.Retry
	givenUp bool
	late    bool // the hand-out was over, and nothing was done
}

func fromMicros(n int64) time.Duration { return time.Duration(min(n, 1<<62/1000)) * time.Microsecond }

// handedOut is a key from the server.
type handedOut struct {
	encoded string
	fence   string
	since   int64 // microseconds
	// failures are those that were counted when the key was handed out, and left what was left of the delay
	// of the last one.
	failures int
	left     time.Duration
	// failingSince is when the first of them was, and err the text of the latest error.
	failingSince time.Time
	err          string
	atOnce       int // see workqueue.HandOut
	priority     int
	causes       string // see encodeCauses
	// addedAt and retryAt are since and the end of left on this process's clock.
	addedAt, retryAt time.Time
}

var errReply = errors.New("redisqueue: the server's reply makes no sense")

// parseReply parses what batch.lua returned. What follows the numbers begins with n (the result of an
// operation), k (a key that was handed out) or f (fences of hand-outs that an operator has ended).
func parseReply(text string) (*reply, error) {
	first, rest, _ := strings.Cut(text, " ")
	p, r := parser{rest: rest}, &reply{status: first, full: first == "FULL" || rest == "FULL"}
	switch first {
	case "LOST", "GONE":
		return r, nil
	case "OK", "FULL":
	case "REFUSED":
		return nil, fmt.Errorf("%w: on the server it has %s", ErrIncompatible, rest)
	default:
		return nil, errReply
	}
	r.keys = make([]handedOut, 0, min(max(int(p.number()), 0), maxWant))
	r.changed, r.unmatched, r.callIn = p.number(), p.number(), fromMicros(p.number())
	r.now, r.counts = p.counts()
	for p.rest != "" && !p.bad {
		switch kind := p.take(1); kind {
		case "n":
			a := opResult{n: int(p.number()), left: fromMicros(p.number())}
			what := p.word()
			a.same, a.givenUp = strings.Contains(what, "s"), strings.Contains(what, "g")
			a.late = strings.Contains(what, "l")
			r.opResults = append(r.opResults, a)
		case "k":
			n := int(p.number())
			key := handedOut{fence: p.word(), since: p.number(), failures: int(p.number())}
			key.left = fromMicros(p.number())
			key.atOnce, key.priority = int(p.number()), int(p.number())
			causes, failing := int(p.number()), int(p.number())
			key.encoded, key.causes = p.take(n), p.take(causes)
			key.failingSince, key.err = parseSince(p.take(failing), r.now)
			r.keys = append(r.keys, key)
		case "f":
			for fence := range slices.Chunk([]byte(p.take(int(p.number()))), 16) {
				r.freed = append(r.freed, string(fence))
			}
		default:
			p.bad = true
		}
	}
	if p.bad {
		return nil, errReply
	}
	return r, nil
}

// parseSince parses since when a key fails and its latest error, or since when a queue is paused and by whom,
// in a reply that was made at now. The server may have lost either.
func parseSince(text string, now int64) (since time.Time, what string) {
	at, what, found := strings.Cut(text, " ")
	if micros, bad := strconv.ParseInt(at, 10, 64); found && bad == nil {
		since = time.Now().Add(-fromMicros(now - micros))
	}
	return since, strings.ToValidUTF8(what, "") // The server has cut an error.
}

type parser struct {
	rest string
	bad  bool
}

// counts takes the numbers of a shard, and the time that they are of: COUNTS in data.lua.
func (p *parser) counts() (now int64, c Counts) {
	now = p.number()
	for _, field := range []*int{
		&c.Queued, &c.Processing, &c.Again, &c.Waiting, &c.Failing, &c.GivenUp, &c.Repaired,
	} {
		*field = int(p.number())
	}
	if oldest := p.number(); oldest > 0 {
		c.OldestQueued = max(0, fromMicros(now-oldest))
	}
	c.Limited = p.number() == 1
	left := p.number()
	c.Paused = left != 0
	if left > 0 {
		c.PausedUntil = time.Now().Add(fromMicros(left))
	}
	c.PausedSince, c.PausedBy = parseSince(p.take(int(p.number())), now)
	return now, c
}

func (p *parser) word() string {
	word, rest, ok := strings.Cut(p.rest, " ")
	p.rest, p.bad = rest, p.bad || !ok
	return word
}

func (p *parser) number() int64 { return p.parse(p.word()) }

// digits takes a number of that many digits.
func (p *parser) digits(n int) int64 { return p.parse(p.take(n)) }

func (p *parser) parse(number string) int64 {
	n, err := strconv.ParseInt(number, 10, 64)
	p.bad = p.bad || err != nil
	return n
}

func (p *parser) take(n int) string {
	if n < 0 || n > len(p.rest) {
		p.bad = true
		return ""
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}
