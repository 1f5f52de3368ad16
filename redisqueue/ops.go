package redisqueue

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
)

// filler is what batch.lua puts into hashes and sorted sets.
var filler = strings.Repeat("\x00", 80)

// Bounds on what one call asks the server to do, so that it takes no longer than a few milliseconds.
const (
	maxWork  = 512 // see op.work
	maxBytes = 256 << 10
	maxWant  = 512
)

// opKind is what an operation is about, for what becomes of it when it could not be executed.
type opKind uint8

const (
	opAdd opKind = iota // also later and rate-limited; a full server refuses it
	opForget
	opNumRequeues
	opHeld // is about a key that the session holds, and ends with it
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
	number chan<- int // where NumRequeues waits
	done   bool       // a Done, and not a key that is handed back
}

// work is how much the operation costs the server, in plain adds.
func (o *op) work() int {
	switch o.arg[0] {
	case 'l':
		return 2
	case 'r':
		return 6
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

// aboutHeld returns an operation on a key that is held: d for Done, b to hand it back, u to set it aside.
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
	if s.q.ending.over {
		return 0, false
	}
	if seq, merged := s.adds[encoded]; merged {
		return seq, true
	}
	s.enqueueLocked(op{kind: opAdd, plain: true, arg: "a" + encoded, encoded: encoded})
	s.empty = false
	s.adds[encoded] = s.numbered
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

// confirmation is a call that waits for the server.
type confirmation struct {
	// target is the operation that the server must have executed, with all before it.
	target uint64
	// after is the first batch whose reply counts. A batch that was built before may have been answered before what the
	// caller wants to see, or may not have been followed by WAIT.
	after  uint64
	result chan error
}

// confirmLocked returns a confirmation of all operations up to target.
func (s *shard[T]) confirmLocked(target uint64) *confirmation {
	c := &confirmation{target: target, result: make(chan error, 1)}
	switch {
	case s.q.config.WaitReplicas == 0 && target <= s.executed:
		c.result <- nil
		return c
	case s.q.ending.over:
		c.result <- workqueue.ErrShutDown
		return c
	case s.q.config.WaitReplicas > 0:
		c.after = s.batches + 1
	}
	s.confirmations = append(s.confirmations, c)
	s.kickLocked()
	return c
}

// refreshLocked returns a confirmation of a batch that was built after the call, and so with news of the queue.
func (s *shard[T]) refreshLocked() *confirmation {
	c := &confirmation{target: s.numbered, after: s.batches + 1, result: make(chan error, 1)}
	if s.full.full {
		c.target = 0 // The server refuses what is in the buffer.
	}
	s.confirmations = append(s.confirmations, c)
	s.kickLocked()
	return c
}

func (c *confirmation) wait(ctx context.Context, s interface{ lastError() error }) error {
	select {
	case err := <-c.result:
		return err
	default:
	}
	select {
	case err := <-c.result:
		return err
	case <-ctx.Done():
		// The reason, if the server has said one, is worth more than that time is up.
		return errors.Join(ctx.Err(), s.lastError())
	}
}

// confirmedLocked answers the confirmations that batch b has reached.
func (s *shard[T]) confirmedLocked(b *batch, err error) {
	kept := s.confirmations[:0]
	for _, c := range s.confirmations {
		if c.target <= s.executed && c.after <= b.number {
			c.result <- err
		} else {
			kept = append(kept, c)
		}
	}
	clear(s.confirmations[len(kept):])
	s.confirmations = kept
}

// failConfirmationsLocked answers all, because nothing will be sent any more.
func (s *shard[T]) failConfirmationsLocked() {
	for _, c := range s.confirmations {
		c.result <- workqueue.ErrShutDown
	}
	s.confirmations = nil
}

// ErrNotReplicated is returned by AddContext and Flush if fewer replicas than WaitReplicas have confirmed in time. The
// server itself has what was added.
var ErrNotReplicated = errors.New("redisqueue: too few replicas have confirmed")
