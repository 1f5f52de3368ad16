package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
)

// history is what some replicas did with a few keys. Each key has versions: a producer writes one and then
// adds the key, and a handler reads the version when it starts.
type history struct {
	t     *testing.T
	keys  []string
	began time.Time

	mu        sync.Mutex
	written   map[string]int
	confirmed map[string]int // the last version whose add was confirmed
	seen      map[string]int // the last version that a handler has read which was Done in time, or has answered
	handlings map[string][]handling
	quiet     atomic.Bool  // producers end
	short     bool         // no handler takes longer than a lease
	killer    string       // a key whose handler ends its replica
	dead      chan int     // the replicas that it has ended
	late      atomic.Int64 // answers that were said after the lease had ended

	olderScripts atomic.Int64 // how many replicas have one
}

// handling is what one handler did with a key.
type handling struct {
	replica     int
	fence       int64
	start, done time.Time
	accepted    bool // Done was called while the lease lived
}

func newHistory(t *testing.T, keys int) *history {
	return &history{
		t: t, keys: keysNamed("key", keys), began: time.Now(), written: make(map[string]int),
		confirmed: make(map[string]int),
		seen:      make(map[string]int), handlings: make(map[string][]handling), dead: make(chan int, 1000),
	}
}

// latest returns the version of a key.
func (h *history) latest(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.written[key]
}

// see notes that nobody else need handle that version.
func (h *history) see(key string, version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[key] = max(h.seen[key], version)
}

// record notes what a handler did that has read that version.
func (h *history) record(key string, did handling, version int) {
	if did.accepted {
		h.see(key, version)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handlings[key] = append(h.handlings[key], did)
}

func (h *history) write(key string) (version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written[key]++
	return h.written[key]
}

func (h *history) confirm(key string, version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirmed[key] = max(h.confirmed[key], version)
}

// work gets and handles keys until q is shut down or ctx ends, or until it gets the killer.
func (h *history) work(ctx context.Context, replica int, q *Queue[string], random *rand.Rand) (killed bool) {
	for {
		key, err := q.GetContext(ctx)
		if err != nil {
			return false
		}
		leased, release := q.Lease(ctx, key)
		if key == h.killer {
			lost := leased.Err() != nil // Then the replica has given its lease back, which counts for nothing.
			release()
			if lost {
				q.Done(key)
				continue
			}
			return true
		}
		fence, _ := Fence(leased)
		did := handling{replica: replica, fence: fence, start: time.Now()}
		version := h.latest(key)
		if causes := q.Causes(key); len(causes.Last) > 8 || len(causes.Last) > 0 &&
			!strings.HasPrefix(causes.Last[0].Reason, "version ") {
			h.t.Errorf("%s: causes %+v", key, causes)
		}
		var again <-chan struct{} // A handler that waits for it ends early.
		if random.IntN(3) == 0 {
			again = q.AddedAgain(key)
		}
		pause := time.NewTimer(time.Duration(random.IntN(20)) * time.Millisecond)
		if random.IntN(40) == 0 && !h.short {
			pause.Reset(q.config.Lease * 5 / 4) // It must be renewed.
		}
		select {
		case <-leased.Done():
		case <-again:
		case <-pause.C:
		}
		pause.Stop()
		if ctx.Err() != nil {
			release()
			return false // The replica is dead.
		}
		handsBack := false
		if isLate := context.Cause(leased) != nil; isLate {
			h.late.Add(1)
			time.Sleep(time.Duration(random.Int64N(int64(q.config.Lease))))
			h.answerAtRandom(leased, q, key, 0, random, errLate) // It counts for nothing, so it has seen nothing.
		} else if !isLate && random.IntN(10) == 0 {
			q.AddRateLimited(key)
		} else if !isLate && random.IntN(5) == 0 {
			handsBack = h.answerAtRandom(leased, q, key, version, random, errBroken)
		}
		did.done = time.Now() // before the look at the lease, which must have lived until then
		did.accepted = q.holdsForTest(key) && context.Cause(leased) == nil && !handsBack
		h.record(key, did, version)
		q.Done(key)
		release()
	}
}

// errLate is the error of an answer that counts for nothing.
var errLate = errors.New("the lease had ended before this was said")

// answerAtRandom says something of the call for a held key, and reports whether it has handed the key back.
func (h *history) answerAtRandom(ctx context.Context, q *Queue[string], key string, version int,
	random *rand.Rand, err error) (handsBack bool) {
	if random.IntN(5) == 0 {
		q.HandBack(key, 0)
		return true
	}
	// Noted before it is said: once the server has the answer, the key is not handed out again for want of its
	// Done, even if the lease or the process ends a moment later.
	h.see(key, version)
	switch random.IntN(4) {
	case 0:
		q.Succeed(key)
	case 1:
		q.Requeue(key, random.IntN(3), time.Duration(random.IntN(5))*time.Millisecond)
	case 2:
		_, _ = q.Fail(ctx, key, workqueue.Failure{Err: err, Terminal: true})
	default:
		_, _ = q.Fail(ctx, key, workqueue.Failure{Err: err, MaxRetries: 2})
	}
	return false
}

// holdsForTest reports whether the lease of key lives. If not, the key is lost from now on: a reply that is
// applied a moment later must not renew the lease for the Done that follows.
func (q *Queue[T]) holdsForTest(item T) bool {
	q.mu.Lock()
	defer q.unlock()
	held := q.mu.held[item]
	if held == nil {
		return false
	}
	held.shard.expireLocked(time.Now())
	return !held.lost
}

// produce adds versions until ctx ends, and notes which adds were confirmed.
func (h *history) produce(ctx context.Context, q *Queue[string], random *rand.Rand) {
	for ctx.Err() == nil && !h.quiet.Load() {
		key := h.keys[random.IntN(len(h.keys))]
		version := h.write(key)
		adding, cancel := context.WithTimeout(ctx, time.Second)
		add := func() error { return q.AddContext(adding, key) }
		switch random.IntN(4) {
		case 0:
			q.AddWithPriority(key, random.IntN(5)-2, 0)
			add = func() error { return q.Flush(adding) }
		case 1, 2:
			q.AddCause(key, workqueue.Cause{Reason: fmt.Sprint("version ", version), Quiet: random.IntN(2) == 0})
			add = func() error { return q.Flush(adding) }
		}
		// A replica that has ended adds nothing, and has nothing to flush.
		if add() == nil && !q.ShuttingDown() {
			h.confirm(key, version)
		}
		cancel()
		time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
	}
}

// unhandled returns the keys whose last confirmed version no handler has read that was Done in time.
func (h *history) unhandled() (keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, version := range h.confirmed {
		if h.seen[key] < version {
			keys = append(keys, fmt.Sprintf("%s: version %d of %d", key, h.seen[key], version))
		}
	}
	return keys
}

// run lets each queue have three workers and a producer while fault happens, and looks at the history.
func (h *history) run(queues []*Queue[string], fault func()) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var workers, producers sync.WaitGroup
	for n, q := range queues {
		for i := range 3 {
			workers.Go(func() { h.work(ctx, n, q, rand.New(rand.NewPCG(uint64(n), uint64(i)))) })
		}
		producers.Go(func() { h.produce(ctx, q, rand.New(rand.NewPCG(uint64(n), 9))) })
	}
	fault()
	h.quiet.Store(true)
	producers.Wait()
	h.waitUntilHandled()
	for _, q := range queues {
		if err := q.ShutDownContext(within(h.t, 30*time.Second)); err != nil {
			h.t.Errorf("shutdown: %v, %+v", err, shared(q))
		}
	}
	workers.Wait()
	h.report()
}

// waitUntilHandled waits until all is handled that was confirmed.
func (h *history) waitUntilHandled() {
	h.t.Helper()
	eventually(h.t, time.Minute, func() error {
		if left := h.unhandled(); len(left) > 0 {
			return fmt.Errorf("never handled: %q", left)
		}
		return nil
	})
}

// report says what has happened, and whether it was right.
func (h *history) report() {
	h.t.Helper()
	if err := h.check(); err != nil {
		h.log()
		h.t.Error(err)
	}
	h.t.Log(h.tally())
}

// log prints all that handlers did, for a history that failed.
func (h *history) log() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, all := range h.handlings {
		h.t.Logf("%s: written %d, confirmed %d, seen %d", key, h.written[key], h.confirmed[key], h.seen[key])
		for _, did := range all {
			h.t.Logf("%s: replica %d, fence %d, %v to %v, done in time: %v",
				key, did.replica, did.fence, did.start.Sub(h.began), did.done.Sub(h.began), did.accepted)
		}
	}
}

// check looks for two handlers that had a key at once, and for fences that do not grow.
func (h *history) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, all := range h.handlings {
		slices.SortFunc(all, func(a, b handling) int { return a.start.Compare(b.start) })
		for i, a := range all {
			for _, b := range all[i+1:] {
				if b.fence <= a.fence {
					return fmt.Errorf("%s: fence %d of replica %d comes after %d of replica %d", key, b.fence, b.replica,
						a.fence, a.replica)
				}
				if a.accepted && b.start.Before(a.done) {
					return fmt.Errorf("%s: replica %d got it %v before replica %d was Done", key, b.replica,
						a.done.Sub(b.start), a.replica)
				}
			}
		}
	}
	return nil
}

// The server's clock is set forward and back while replicas work. Leases outlive that, and fences grow.
func TestHistoryWithClockJumps(t *testing.T) {
	s := startServer(t)
	client := s.client()
	config := Config[string]{Lease: 2 * time.Second}
	config.Backoff.Base = time.Millisecond
	var queues []*Queue[string]
	for range 3 {
		queues = append(queues, newShiftedQueue(t, s.client(), config))
	}
	h := newHistory(t, 6)
	h.run(queues, func() {
		for _, shift := range []time.Duration{time.Hour, 0, -time.Hour, 400 * 24 * time.Hour, 2 * time.Second,
			-400 * 24 * time.Hour, 0} {
			time.Sleep(400 * time.Millisecond)
			shiftClock(t, client, shift)
		}
		time.Sleep(400 * time.Millisecond)
	})
	for _, q := range queues {
		if info := shared(q); info.LostLeases+info.LostDones > 0 {
			t.Errorf("leases were lost: %+v", info)
		}
	}
}
