package handlertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/foreign"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
)

// ErrLeaseEnded is the cause of the end of a handler's context when its key is given to another worker.
var ErrLeaseEnded = errors.New("handlertest: the lease of the key has ended")

// Perturb returns a queue that does the worst that its contract allows, for programs with a world of
// their own. What it does follows from the seed alone, and happens on the clock that the bubble of the
// caller has, or on the real one. No add is lost: a shutdown first adds what is late. A key is delayed for
// 10 s at most. No faults means Late|Again.
//
// Queue is any of ours or client-go's. Use only the returned one afterwards. It has the methods of
// queue that package workqueue names: it is a [workqueue.ExtendedRateLimiting], and a [operate.Operable]
// and [leasing.Leaser] if queue is.
func Perturb[K comparable](queue workqueue.TypedRateLimitingInterface[K], seed uint64,
	faults ...Fault) workqueue.TypedRateLimitingInterface[K] {
	var all Fault
	for _, f := range faults {
		if f == 0 || f&^(Late|Again|Leases) != 0 {
			panic(fmt.Sprintf("handlertest: Perturb with an unknown Fault: %d", f))
		}
		all |= f
	}
	if all == 0 {
		all = Late | Again
	}
	var mu sync.Mutex
	d := newDecider(nil, seed)
	p := perturb(queue, hooks[K]{
		decide: func(kind string, key K) time.Duration {
			if all&faultOf[kind] == 0 {
				return 0
			}
			text := textOf(key) // Not under mu: it may call a method of the key.
			mu.Lock()
			defer mu.Unlock()
			return d.decide(kind, text)
		},
		after: func(d time.Duration, _ K, do func()) { time.AfterFunc(d, do) },
		tell:  func(K, string) {},
		dead:  func() bool { return false },
	})
	leased := leasedQueue[K]{p, unleased[K]{}}
	below, leases := queue.(leasing.Leaser[K])
	if leases {
		leased.Leaser = below
	}
	leases = leases || all&Leases != 0
	o, isOperable := queue.(operate.Operable[K])
	switch {
	case isOperable && leases:
		return operableLeasedQueue[K]{leased, operable[K]{o, p}}
	case isOperable:
		return operableQueue[K]{p, operable[K]{o, p}}
	case leases:
		return leased
	}
	return p
}

// hooks are how a perturbed queue depends on its surroundings. No lock is held when they are called.
type hooks[K comparable] struct {
	decide func(kind string, key K) time.Duration
	after  func(d time.Duration, key K, do func())
	tell   func(key K, what string)
	dead   func() bool // The process has crashed, and nothing that it does reaches the queue.
}

// perturbed is a queue that does what decide says.
type perturbed[K comparable] struct {
	workqueue.ExtendedRateLimiting[K] // the queue
	hooks[K]

	mu struct {
		sync.Mutex
		pending []*func()       // adds that have not reached the queue yet
		leases  map[K]*keyLease // of the keys that were handed out here, and are held
		stale   map[K]int       // how many Dones are to be ignored, because their leases have ended
	}
}

// keyLease is one hand-out of a key.
type keyLease struct {
	ends time.Duration // how long after Lease; 0 means never
	lost bool
	end  context.CancelCauseFunc // or nil
}

func perturb[K comparable](queue workqueue.TypedRateLimitingInterface[K], h hooks[K]) *perturbed[K] {
	q := &perturbed[K]{ExtendedRateLimiting: foreign.RateLimiting(queue), hooks: h}
	q.mu.leases, q.mu.stale = make(map[K]*keyLease), make(map[K]int)
	return q
}

// addLate calls add, perhaps later.
func (q *perturbed[K]) addLate(key K, add func()) {
	if q.dead() {
		return
	}
	d := q.decide(late, key)
	if d <= 0 {
		add()
		return
	}
	entry := &add
	q.mu.Lock()
	q.mu.pending = append(q.mu.pending, entry)
	q.mu.Unlock()
	q.after(d, key, func() {
		q.mu.Lock()
		i := slices.Index(q.mu.pending, entry)
		if i >= 0 {
			q.mu.pending = slices.Delete(q.mu.pending, i, i+1)
		}
		q.mu.Unlock()
		if i >= 0 {
			q.tell(key, "an add reaches the queue late")
			add()
		}
	})
}

// addPending adds what is late, before a shutdown.
func (q *perturbed[K]) addPending() {
	for _, add := range q.takePending() {
		(*add)()
	}
}

// takePending returns the late adds, which do not come by themselves any more.
func (q *perturbed[K]) takePending() []*func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	pending := q.mu.pending
	q.mu.pending = nil
	return pending
}

func (q *perturbed[K]) Add(key K) { q.addLate(key, func() { q.ExtendedRateLimiting.Add(key) }) }

func (q *perturbed[K]) AddCause(key K, cause workqueue.Cause) {
	q.addLate(key, func() { q.ExtendedRateLimiting.AddCause(key, cause) })
}

func (q *perturbed[K]) AddAfter(key K, d time.Duration) {
	switch {
	case d <= 0:
		q.addLate(key, func() { q.ExtendedRateLimiting.AddAfter(key, d) })
	case !q.dead():
		q.ExtendedRateLimiting.AddAfter(key, d+q.decide(late, key))
	}
}

func (q *perturbed[K]) AddRateLimited(key K) {
	if !q.dead() {
		q.ExtendedRateLimiting.AddRateLimited(key)
	}
}

// Fail of a process that has crashed counts nothing.
func (q *perturbed[K]) Fail(ctx context.Context, key K, f workqueue.Failure) (r workqueue.Retry, err error) {
	if q.dead() {
		return r, nil
	}
	return q.ExtendedRateLimiting.Fail(ctx, key, f)
}

func (q *perturbed[K]) Forget(key K) {
	if !q.dead() {
		q.ExtendedRateLimiting.Forget(key)
	}
}

func (q *perturbed[K]) ShutDown() { q.addPending(); q.ExtendedRateLimiting.ShutDown() }

func (q *perturbed[K]) ShutDownWithDrain() {
	q.addPending()
	q.ExtendedRateLimiting.ShutDownWithDrain()
}

func (q *perturbed[K]) Stats() (s workqueue.Stats) { return q.withLate(q.ExtendedRateLimiting.Stats()) }

func (q *perturbed[K]) ShutDownContext(ctx context.Context) error {
	q.addPending()
	return q.ExtendedRateLimiting.ShutDownContext(ctx)
}

func (q *perturbed[K]) Snapshot(limit int) workqueue.Snapshot[K] {
	s := q.ExtendedRateLimiting.Snapshot(limit)
	s.Stats = q.withLate(s.Stats)
	return s
}

// withLate counts the late adds as waiting.
func (q *perturbed[K]) withLate(s workqueue.Stats) workqueue.Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.Waiting += len(q.mu.pending)
	return s
}

func (q *perturbed[K]) Get() (key K, shutdown bool) {
	if key, shutdown = q.ExtendedRateLimiting.Get(); !shutdown {
		q.handedOut(key)
	}
	return key, shutdown
}

func (q *perturbed[K]) GetContext(ctx context.Context) (key K, err error) {
	if key, err = q.ExtendedRateLimiting.GetContext(ctx); err == nil {
		q.handedOut(key)
	}
	return key, err
}

func (q *perturbed[K]) Next(ctx context.Context) (workqueue.HandOut[K], error) {
	h, err := q.ExtendedRateLimiting.Next(ctx)
	if err == nil {
		q.handedOut(h.Key)
	}
	return h, err
}

// handedOut is called for each key that a worker gets.
func (q *perturbed[K]) handedOut(key K) {
	l := &keyLease{ends: q.decide(lease, key)}
	q.mu.Lock()
	q.mu.leases[key] = l
	q.mu.Unlock()
	if q.dead() {
		// The pool also takes keys of a queue that the crash shuts down: which ones depends on the scheduler of Go.
		return
	}
	if d := q.decide(again, key); d > 0 {
		q.after(d, key, func() {
			q.tell(key, "is added once more")
			q.ExtendedRateLimiting.Add(key)
		})
	}
}

// endLeases gives the keys of a process that has crashed to others.
func (q *perturbed[K]) endLeases() {
	q.mu.Lock()
	leases := maps.Clone(q.mu.leases)
	q.mu.Unlock()
	for _, key := range sortedKeys(leases) {
		q.endLease(key, leases[key])
	}
}

// endLease gives a key to another worker, unless its worker is done with it.
func (q *perturbed[K]) endLease(key K, l *keyLease) {
	q.mu.Lock()
	held := q.mu.leases[key] == l
	if held {
		l.lost = true
		delete(q.mu.leases, key)
	}
	end := l.end
	q.mu.Unlock()
	if !held {
		return
	}
	q.tell(key, "its lease ends, and another worker may get it")
	if end != nil {
		end(ErrLeaseEnded)
	}
	q.ExtendedRateLimiting.Add(key)
	q.ExtendedRateLimiting.Done(key)
}

// PutOnHold is ignored as long as a Done of the key is to be.
func (q *perturbed[K]) PutOnHold(key K) {
	q.mu.Lock()
	stale := q.mu.stale[key] > 0
	q.mu.Unlock()
	if !stale && !q.dead() {
		q.ExtendedRateLimiting.PutOnHold(key)
	}
}

// Done is ignored once for each lease of the key that has ended.
func (q *perturbed[K]) Done(key K) {
	if q.dead() {
		return
	}
	q.mu.Lock()
	stale := q.mu.stale[key] > 0
	if stale {
		q.mu.stale[key]--
	} else {
		delete(q.mu.leases, key)
	}
	q.mu.Unlock()
	if !stale {
		q.ExtendedRateLimiting.Done(key)
	}
}
