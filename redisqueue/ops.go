package redisqueue

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
)

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

func addRateLimited(encoded string) *op {
	// The server's own random numbers are the same in every script.
	return &op{kind: opAdd, arg: fmt.Sprintf("r%.14f%s", min(mathrand.Float64(), 0.99999999999999), encoded)}
}

// aboutHeld returns an operation on a key that is held: d for Done, b to hand it back, u to set it aside, w to ask whether it was
// added again.
func aboutHeld(code string, key handedOut) *op {
	return &op{kind: opHeld, arg: code + key.fence + key.encoded}
}

func newSession() string {
	var random [8]byte
	_, _ = rand.Read(random[:])
	return base64.RawURLEncoding.EncodeToString(random[:])
}

// addLocked puts an add into the buffer, unless one of the same key is there. It returns the seq of the one that is there.
//
// The older add need not move to the end. The server has executed nothing of the buffer, so no worker has the key because of
// that add; and if a worker has the key, its Done, which may stand behind the add, queues the key again.
func (s *shard[T]) addLocked(encoded string) (seq uint64) { return s.addCauseLocked(encoded, nil) }

// addCauseLocked is addLocked with a cause, if that is not nil.
func (s *shard[T]) addCauseLocked(encoded string, cause *workqueue.Cause) (seq uint64) {
	quiet := cause != nil && cause.Quiet
	if len(s.watched) > 0 && !quiet {
		s.addedAgainLocked(encoded)
	}
	o := s.adds[encoded]
	if o == nil {
		o = &op{kind: opAdd, plain: true, encoded: encoded, quiet: true}
		s.adds[encoded] = o
		s.enqueueLocked(o)
		s.drained = false
	}
	o.quiet = o.quiet && quiet
	if cause != nil {
		o.causes = o.causes.Plus(*cause)
	}
	return o.seq
}

// after returns an add with a delay, for enqueue and confirm.
func after[T comparable](delay time.Duration) func(s *shard[T], encoded string) (seq uint64) {
	return func(s *shard[T], encoded string) uint64 {
		s.q.mu.totals.stats.Retries++
		if delay <= 0 {
			return s.addLocked(encoded)
		}
		micros := (uint64(delay) + 999) / 1000
		return s.enqueueLocked(&op{kind: opAdd, arg: fmt.Sprintf("l%016d%s", micros, encoded)})
	}
}

func (s *shard[T]) addRateLimitedLocked(encoded string) (seq uint64) {
	s.q.mu.totals.stats.Retries++
	return s.enqueueLocked(addRateLimited(encoded))
}

// enqueueLocked numbers an operation and sends it, now or after the call in flight.
func (s *shard[T]) enqueueLocked(o *op) (seq uint64) {
	s.numbered++
	o.seq = s.numbered
	s.pending[o.kind]++
	s.ops = append(s.ops, o)
	s.kickLocked()
	return o.seq
}

// takeLocked moves operations into b, within the bounds of a batch and without adds if b has none.
func (s *shard[T]) takeLocked(b *batch) {
	size, work := 0, b.want
	var kept []*op
	seen := 0
	for _, o := range s.ops {
		if work >= maxWork || size >= maxBytes {
			break
		}
		seen++
		if b.noAdds && o.kind == opAdd {
			kept = append(kept, o)
			continue
		}
		if o.plain {
			o.arg = o.plainArg()
			delete(s.adds, o.encoded)
		}
		work += o.work()
		size += len(o.arg)
		b.ops = append(b.ops, o)
		s.pending[o.kind]--
	}
	clear(s.ops[:seen])
	s.ops = s.ops[seen:]
	if len(kept) > 0 {
		s.ops = append(kept, s.ops...)
	}
}

// putBackLocked undoes takeLocked, for operations that were not executed.
func (s *shard[T]) putBackLocked(ops []*op) {
	merged := make([]*op, 0, len(ops)+len(s.ops))
	rest := s.ops
	for _, o := range ops {
		for len(rest) > 0 && rest[0].seq < o.seq {
			merged, rest = append(merged, rest[0]), rest[1:]
		}
		merged = append(merged, o)
		if o.plain && s.adds[o.encoded] == nil {
			s.adds[o.encoded] = o // Otherwise an add of the key has come meanwhile. That it is executed twice does no harm.
		}
		s.pending[o.kind]++
	}
	s.ops = append(merged, rest...)
}
