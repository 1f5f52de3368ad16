package redisqueue

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed batch.lua
	batchPart string
	//go:embed operations.lua
	operationsPart string
	//go:embed handout.lua
	handOutPart string
	//go:embed snapshot.lua
	snapshotSource string
	//go:embed purge.lua
	purgeSource string
	//go:embed replicated.lua
	replicatedSource string
)

var (
	batchSource    = batchPart + operationsPart + handOutPart
	batchScript    = redis.NewScript(batchSource)
	snapshotScript = redis.NewScript(snapshotSource)
	purgeScript    = redis.NewScript(purgeSource)
)

// keyNames are the KEYS of the scripts: those of a shard, and the one of a session.
type keyNames struct {
	prefix string
	shard  []string
}

func newKeyNames(queue string, shard int) keyNames {
	prefix := "workqueue:{" + queue + "/" + strconv.Itoa(shard) + "}:"
	n := keyNames{prefix: prefix}
	for _, name := range []string{
		"meta", "states", "line", "delays", "failures", "expiries", "lasts", "leases", "held", "sleepers", "aside",
		"batches", "gone", "losses", "givenup", "reasons", "causes",
	} {
		n.shard = append(n.shard, prefix+name)
	}
	return n
}

func (n keyNames) aside() string { return n.shard[10] }

func (n keyNames) wake(session string) string { return n.prefix + "wake:" + session }

func (n keyNames) of(session string) []string {
	return append(n.shard[:len(n.shard):len(n.shard)], n.wake(session))
}

// filler is what batch.lua puts into hashes and sorted sets.
var filler = strings.Repeat("\x00", 80)

// Bounds on what one call asks the server to do, so that it takes no longer than a few milliseconds. batch.lua has the
// others: on the bytes that it hands out, and on what it does for other replicas.
const (
	maxWork  = 512 // see op.work; a key that is handed out is worth one
	maxWant  = 256
	maxBytes = 64 << 10
)

// opKind is what an operation is about, for what becomes of it when it could not be executed.
type opKind uint8

const (
	opAdd   opKind = iota // also later and rate-limited; a full server does not execute it
	opHeld                // is about a key that the session holds, and ends with it
	opOther               // about all else
	opKinds
)

// op is an operation of the buffer.
type op struct {
	kind opKind
	arg  string // as batch.lua reads it; that of a plain add is made when it is sent
	// seq is the operation's place among all of its shard.
	seq    uint64
	answer func(n int) // is called with the server's answer, under the lock
	// A plain add has the key, and what further adds of the key have brought; quiet, if all of them were.
	plain, quiet bool
	encoded      string
	causes       workqueue.Causes
}

// work is how much the operation costs the server, in plain adds.
func (o *op) work() int {
	switch o.arg[0] {
	case 'l', 'f':
		return 2
	case 'r', 'g', 't', 'y', 's', 'c':
		return 6
	case 'x':
		return 100 // It may look through ten thousand keys.
	}
	return 1
}

// aboutHeld returns an operation on a key that is held: d for Done, b to hand it back, u to set it aside, w to ask whether it was
// added again.
func aboutHeld(code string, key handedOut) *op {
	return &op{kind: opHeld, arg: code + key.fence + key.encoded}
}

// arguments are what batch.lua gets.
func (s *shard[T]) arguments(b *batch) []any {
	flags := "-"
	if b.asleep {
		flags += "r"
	}
	if b.wantsAll {
		flags += "o"
	}
	if b.interrupted {
		flags += "e" + b.session.lastFence
	}
	args := make([]any, 0, 8+len(b.ops))
	args = append(args, b.session.id, b.session.seq, s.q.config.Lease.Microseconds(), b.want, flags, s.q.settings, s.q.description)
	for _, o := range b.ops {
		args = append(args, o.arg)
	}
	if b.quits {
		args = append(args, "q")
	}
	return args
}

// reply is what batch.lua returned.
type reply struct {
	// status is OK; FULL if the server's memory is full, and all but the adds was done; LOST if the session is over, and
	// nothing was done; GONE if it is over, and all was done before it ended.
	status string

	now                int64           // microseconds of the queue's clock
	stats              workqueue.Stats // of the whole shard: Queued, Processing, Again, Waiting and Paused
	changed, unmatched int
	nextDue            time.Duration // negative if no key waits
	info               Info          // Failing, SetAside, GivenUp and Repaired, if the batch has asked for them
	oldest             time.Duration // how long the oldest key was queued, if the batch has asked for it
	keys               []handedOut
	numbers            []int
}

// handedOut is a key from the server.
type handedOut struct {
	encoded string
	fence   string
	since   int64  // microseconds
	causes  string // see encodeCauses
}

var errReply = errors.New("redisqueue: the server's reply makes no sense")

// parseReply parses what batch.lua has returned.
func parseReply(text string) (*reply, error) {
	first, rest, _ := strings.Cut(text, " ")
	p, r := parser{rest: rest}, &reply{status: first}
	switch first {
	case "LOST", "GONE":
		return r, nil
	case "OK", "FULL":
	case "REFUSED":
		return nil, fmt.Errorf("%w: on the server it has %s", ErrIncompatible, rest)
	default:
		return nil, errReply
	}
	r.now = p.number()
	st, info := &r.stats, &r.info
	for _, field := range []*int{&st.Queued, &st.Processing, &st.Again, &st.Waiting, &r.changed, &r.unmatched} {
		*field = int(p.number())
	}
	r.nextDue = time.Duration(min(p.number(), 1<<62/1000)) * time.Microsecond
	st.Paused = p.number() == 1
	for _, field := range []*int{&info.Failing, &info.SetAside, &info.GivenUp, &info.Repaired} {
		*field = int(p.number())
	}
	if oldest := p.number(); oldest > 0 {
		r.oldest = max(0, time.Duration(r.now-oldest)*time.Microsecond)
	}
	r.keys = make([]handedOut, 0, min(max(int(p.number()), 0), maxWant))
	for p.rest != "" && !p.bad {
		switch kind := p.take(1); kind {
		case "n":
			r.numbers = append(r.numbers, int(p.number()))
		case "k", "K":
			n := int(p.number())
			key := handedOut{fence: p.word(), since: p.number()}
			key.encoded = p.take(n)
			if kind == "K" {
				key.causes = p.take(int(p.number()))
			}
			r.keys = append(r.keys, key)
		default:
			p.bad = true
		}
	}
	if p.bad {
		return nil, errReply
	}
	return r, nil
}

type parser struct {
	rest string
	bad  bool
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
