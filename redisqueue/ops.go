package redisqueue

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"
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

// op is an operation as batch.lua reads it.
type op struct {
	kind opKind
	arg  string
	// encoded is the key of a plain add, which further adds of the key are merged into.
	encoded string
	plain   bool
	// seq is the operation's place among all of its shard.
	seq    uint64
	answer func(n int) // is called with the server's answer, under the lock
	done   bool        // a Done, and not a key that is handed back
	why    *why        // of an add with causes, from which arg is made
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

func addLater(encoded string, delay time.Duration) op {
	micros := (uint64(delay) + 999) / 1000
	return op{kind: opAdd, arg: fmt.Sprintf("l%016d%s", micros, encoded)}
}

func addRateLimited(encoded string) op {
	// The server's own random numbers are the same in every script.
	return op{kind: opAdd, arg: fmt.Sprintf("r%.14f%s", min(mathrand.Float64(), 0.99999999999999), encoded)}
}

// giveUp returns the operation that keeps a key that was given up.
func giveUp(encoded string, attempts int, reason string) op {
	return op{kind: opOther, arg: fmt.Sprintf("g%016d%s%d %s", len(encoded), encoded, max(attempts, 0), reason)}
}

// aboutHeld returns an operation on a key that is held: d for Done, b to hand it back, u to set it aside, w to ask whether it was
// added again.
func aboutHeld(code, fence, encoded string) op {
	return op{kind: opHeld, arg: code + fence + encoded, done: code == "d"}
}

func newSession() string {
	var random [8]byte
	_, _ = rand.Read(random[:])
	return base64.RawURLEncoding.EncodeToString(random[:])
}

// addLocked puts an add into the buffer, unless one of the same key is there. It returns the seq of the one that is there,
// and false after shutdown.
//
// The older add need not move to the end. The server has executed nothing of the buffer, so no worker has the key because of
// that add; and if a worker has the key, its Done, which may stand behind the add, queues the key again.
func (s *shard[T]) addLocked(encoded string) (seq uint64, ok bool) {
	return s.addWhyLocked(encoded, nil)
}

// addWhyLocked is addLocked with causes, if w is not nil.
func (s *shard[T]) addWhyLocked(encoded string, w *why) (seq uint64, ok bool) {
	if s.q.mu.ending.over {
		return 0, false
	}
	if len(s.watched) > 0 && (w == nil || !w.quiet) {
		s.addedAgainLocked(encoded)
	}
	if seq, merged := s.adds[encoded]; merged {
		if w != nil || s.withCauses > 0 {
			s.mergeLocked(seq, w)
		}
		return seq, true
	}
	s.enqueueLocked(op{kind: opAdd, plain: true, arg: "a" + encoded, encoded: encoded, why: w})
	s.drained = false
	s.adds[encoded] = s.numbered
	if w != nil {
		s.withCauses++
	}
	return s.numbered, true
}

func (s *shard[T]) addAfterLocked(encoded string, duration time.Duration) (seq uint64, ok bool) {
	if s.q.mu.ending.over {
		return 0, false
	}
	s.q.mu.totals.retries++
	if duration <= 0 {
		return s.addLocked(encoded)
	}
	s.enqueueLocked(addLater(encoded, duration))
	return s.numbered, true
}

func (s *shard[T]) addRateLimitedLocked(encoded string) (seq uint64, ok bool) {
	if s.q.mu.ending.over {
		return 0, false
	}
	s.q.mu.totals.retries++
	s.enqueueLocked(addRateLimited(encoded))
	return s.numbered, true
}

// enqueueLocked numbers an operation and sends it, now or after the call in flight.
func (s *shard[T]) enqueueLocked(o op) {
	s.numbered++
	o.seq = s.numbered
	s.pending[o.kind]++
	s.ops = append(s.ops, o)
	s.kickLocked()
}

// takeLocked moves operations into b, within the bounds of a batch and without adds if b has none.
func (s *shard[T]) takeLocked(b *batch) {
	size, work := 0, b.want
	var kept []op
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
		if o.why != nil {
			o.arg = o.why.arg(o.encoded)
			s.withCauses--
		}
		work += o.work()
		size += len(o.arg)
		b.ops = append(b.ops, o)
		if o.plain {
			delete(s.adds, o.encoded)
		}
		s.pending[o.kind]--
	}
	clear(s.ops[:seen])
	s.ops = s.ops[seen:]
	if len(kept) > 0 {
		s.ops = append(kept, s.ops...)
	}
}

// putBackLocked undoes takeLocked, for operations that were not executed.
func (s *shard[T]) putBackLocked(ops []op) {
	merged := make([]op, 0, len(ops)+len(s.ops))
	rest := s.ops
	for _, o := range ops {
		for len(rest) > 0 && rest[0].seq < o.seq {
			merged, rest = append(merged, rest[0]), rest[1:]
		}
		merged = append(merged, o)
		if o.plain {
			// An add of the key may have come meanwhile. That it is executed twice does no harm.
			s.adds[o.encoded] = max(o.seq, s.adds[o.encoded])
		}
		if o.why != nil {
			s.withCauses++
		}
		s.pending[o.kind]++
	}
	s.ops = append(merged, rest...)
}
