package worker

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/observe"
)

// Stats are a pool's numbers at one moment. Each call of the handler that has ended is one of: succeeded, which
// is Handled - Failed - Requeued - Interrupted; requeued; interrupted; retried, which is Failed - Dropped; dropped.
type Stats struct {
	// Name is the pool's name, or empty.
	Name string `json:"name"`

	// Wanted is the number of workers that SetWorkers or Options have asked for, and 0 once Run has returned.
	Wanted int `json:"wanted"`
	// Living is the number of workers that exist. After Run they are those whose handlers were left behind.
	Living int `json:"living"`
	// Busy is the number of workers that handle a key.
	Busy int `json:"busy"`
	// Stuck is the number of those whose handler was reported as stuck.
	Stuck int `json:"stuck"`

	// Handled counts the calls of the handler that have ended, in whatever way.
	Handled uint64 `json:"handled"`
	// Failed counts the calls that have failed, those that panicked or were the last one for a key included.
	Failed uint64 `json:"failed"`
	// Panicked counts the calls that panicked.
	Panicked uint64 `json:"panicked"`
	// TimedOut counts the calls that took longer than HandlerTimeout, whatever they returned.
	TimedOut uint64 `json:"timed_out"`
	// Requeued counts the calls that asked for their key again, by Requeue or RequeueAfter.
	Requeued uint64 `json:"requeued"`
	// RequeuedAfter counts those of Requeued that asked for a delay.
	RequeuedAfter uint64 `json:"requeued_after"`
	// Interrupted counts the calls that were interrupted because their key was added again. See [UntilAdded].
	Interrupted uint64 `json:"interrupted"`
	// Dropped counts the calls that failed and whose key did not come again.
	Dropped uint64 `json:"dropped"`

	// Failing is the number of keys whose last call has failed and that are to come again. A key that was
	// removed from the queue, or that somebody else has handled, counts for up to a minute more.
	Failing int `json:"failing"`

	// Durations has the times that OnStart and the handler took together.
	Durations *workqueue.Histogram `json:"durations"`

	// Ended reports that Run has returned and no handler goes on: nothing will change any more.
	Ended bool `json:"ended"`
}

// Plus returns the sums of the numbers of two pools. Name is that of s or, if s has none, that of t. Ended is set if
// both pools have ended. So the zero Stats changes nothing but Ended, which it clears. Neither s nor t is changed.
func (s Stats) Plus(t Stats) Stats {
	if s.Name == "" {
		s.Name = t.Name
	}
	s.Wanted += t.Wanted
	s.Living += t.Living
	s.Busy += t.Busy
	s.Stuck += t.Stuck
	s.Handled += t.Handled
	s.Failed += t.Failed
	s.Panicked += t.Panicked
	s.TimedOut += t.TimedOut
	s.Requeued += t.Requeued
	s.RequeuedAfter += t.RequeuedAfter
	s.Interrupted += t.Interrupted
	s.Dropped += t.Dropped
	s.Failing += t.Failing
	s.Durations = s.Durations.Plus(t.Durations)
	s.Ended = s.Ended && t.Ended
	return s
}

// RunningKey is a key whose handler goes on.
type RunningKey[T comparable] struct {
	Key T `json:"key"`
	// Attempt is how many times in a row the key was handled, this call included.
	Attempt int `json:"attempt"`
	// Started is when the call began, and Duration how long ago.
	Started  time.Time     `json:"started"`
	Duration time.Duration `json:"duration_ns"`
	// Stuck reports that the call has taken too long. See Options.StuckAfter.
	Stuck bool `json:"stuck"`
	// Stack is that of the handler's goroutine when it was found stuck, at most 8 KiB of it. OnStuck and [Pool.SnapshotKey] have
	// it; in [Pool.Snapshot], which may list many keys, it is empty.
	Stack string `json:"stack,omitempty"`
}

// Snapshot is what a pool does at one moment, for people. It holds copies.
type Snapshot[T comparable] struct {
	// Stats count all keys, also those that the lists leave out.
	Stats Stats `json:"stats"`
	// Running are the keys that are being handled, the one that started first at the front.
	Running []RunningKey[T] `json:"running"`
	// Failing are the keys whose last call has failed, the last failure first. The pool remembers the errors of 10,000.
	Failing []FailedKey[T] `json:"failing"`
	// Dropped are the last keys that were dropped, the last one first: Options.KeepDropped at most. A key leaves
	// the list when this pool handles it and does not drop it again, and by Forget.
	Dropped []FailedKey[T] `json:"dropped"`
	// DroppedKeys is how long that list is without the limit.
	DroppedKeys int `json:"dropped_keys"`
}

// KeySnapshot is what a pool knows of a key. It holds copies.
type KeySnapshot[T comparable] struct {
	Key T `json:"key"`
	// Running is the call that goes on, or nil.
	Running *RunningKey[T] `json:"running,omitempty"`
	// Failing is set if the last call has failed and the key is to come again, Dropped if the key was dropped.
	Failing *FailedKey[T] `json:"failing,omitempty"`
	Dropped *FailedKey[T] `json:"dropped,omitempty"`
	// FailedCalls are the last five calls that have failed in a row, the last one last. The pool keeps them of the 10,000
	// failing keys that failed last and of Options.KeepDropped dropped ones, up to 16 MiB for all together; other keys have none.
	FailedCalls []FailedCall `json:"failed_calls,omitempty"`
	// Causes are why the running call came, if the queue is a [workqueue.CauseAdder].
	Causes workqueue.Causes `json:"causes,omitzero"`
	// MaxAttempts is how often the key is tried before it is dropped, or 0 without a limit.
	MaxAttempts int `json:"max_attempts,omitempty"`
}

// StatsProvider is what a [workqueue.MetricsProvider] implements, beside [workqueue.StatsProvider], to read the Stats of pools.
type StatsProvider interface {
	// WatchPool is called when Run begins, once for each pool with a name. Several pools may have the same
	// one. The function stats may be called at any time and does not block. When Ended is set, nothing
	// changes any more, and stats should be dropped: until then it keeps the pool in memory.
	WatchPool(name string, stats func() Stats)
}

// SnapshotProvider is what a provider of metrics implements to show the keys of pools, unless it is an [InspectorProvider].
type SnapshotProvider interface {
	// WatchPoolKeys is called as WatchPool is. The function snapshot is [Pool.Snapshot].
	WatchPoolKeys(name string, snapshot func(limit int) Snapshot[any])
}

// InspectorProvider is a [StatsProvider] that looks at keys, too.
type InspectorProvider interface {
	StatsProvider
	// InspectPool is called as WatchPool is. What WatchPool says of its function holds for those of i, except that Snapshot,
	// SnapshotKey and FailingKeys ask the queue, for up to a second.
	InspectPool(name string, i Inspector)
}

// Inspector shows a pool to tools that do not know the type of its keys. Its functions panic if a key is of another type.
type Inspector struct {
	// Queue is the queue whose keys the pool handles, to recognize it by.
	Queue any
	// Stats and Snapshot are those of the pool. Only this Snapshot has the stacks of stuck handlers and, if
	// limit is greater, more than 512 failing keys.
	Stats    func() Stats
	Snapshot func(limit int) Snapshot[any]
	// SnapshotKey returns what the pool knows of one key.
	SnapshotKey func(key any) KeySnapshot[any]
	// FailingKeys and DroppedKeys yield all keys that fail or were dropped and whose errors are known, the last failure first.
	FailingKeys, DroppedKeys func() iter.Seq[FailedKey[any]]
	// Cancel and Forget are those of the pool.
	Cancel func(key any) bool
	Forget func(key any)
}

// durationBuckets are those of Stats.Durations.
var durationBuckets = observe.NewBuckets([]float64{
	1e-5, 1e-4, 1e-3, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 150, 300, 600, 1800,
})

// count counts a call that has ended.
func (p *Pool[T]) count(c *call[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := &p.mu.counted
	n.Handled++
	if c.panic != nil {
		n.Panicked++
	}
	if p.options.HandlerTimeout > 0 && c.Duration >= p.options.HandlerTimeout {
		n.TimedOut++
	}
	switch c.Next {
	case NextRequeue:
		n.Requeued++
		if c.after > 0 {
			n.RequeuedAfter++
		}
	case NextInterrupted:
		n.Interrupted++
	case NextRetry:
		n.Failed++
	case NextDrop:
		n.Failed++
		n.Dropped++
	}
	p.mu.durations.Observe(c.Duration)
}

// Stats returns the pool's numbers. It takes time in proportion to the number of workers, and does not block.
func (p *Pool[T]) Stats() Stats {
	handles := p.handles.Load()
	over := handles && p.queue.ShuttingDown()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.mu.counted
	bounds, counts, sum := p.mu.durations.Read()
	s.Durations = &workqueue.Histogram{Bounds: bounds, Counts: counts, Sum: sum}
	s.Name, s.Living, s.Failing = p.options.Name, len(p.mu.workers), int(p.failures.failing.Load())
	switch {
	case handles: // Only the program knows how many workers it has.
		s.Wanted, s.Ended = s.Living, over && s.Living == 0
	case p.mu.returned:
		s.Ended = s.Living == 0
	default:
		s.Wanted = p.mu.target
	}
	for w := range p.handlingLocked() {
		s.Busy++
		if w.Stuck {
			s.Stuck++
		}
	}
	return s
}

// maxSnapshot bounds the failing keys of a Snapshot, about each of which it asks the queue.
const maxSnapshot = 512

// Snapshot returns Stats and up to limit keys of each kind, and at most 512 failing ones. It asks the queue and its limiter
// about these: those that have been removed from the queue since, or that somebody else has handled, are left out and
// forgotten. (A queue reports what was removed if it is a [KeyFinder]. What was handled is known from NumRequeues, if the
// limiter counts by key.) It also asks when they come due: each of them if the queue is a [workqueue.KeyReader], and otherwise
// the first 512 keys that wait. After a second it asks no more; of the other keys it returns what the pool knows.
func (p *Pool[T]) Snapshot(limit int) Snapshot[T] {
	s := p.snapshot(limit, maxSnapshot)
	for i := range s.Running {
		s.Running[i].Stack = ""
	}
	return s
}

// snapshot is Snapshot with stacks, and at most so many failing keys.
func (p *Pool[T]) snapshot(limit, mostFailing int) Snapshot[T] {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s := Snapshot[T]{Running: p.running(limit), Failing: []FailedKey[T]{}}
	nextTry := p.nextTries(ctx)
	for k := range keytable.Take(limit, p.failing(ctx, mostFailing)) {
		k.NextTry = nextTry(k.Key)
		s.Failing = append(s.Failing, k)
	}
	s.Dropped, s.DroppedKeys = p.failures.newest(&p.failures.mu.dropped, limit)
	s.Stats = p.Stats()
	return s
}

// failing looks at the last limit keys that have failed, the last failure first, and yields those that still fail. It asks the queue
// which are stale until ctx ends, and forgets these.
func (p *Pool[T]) failing(ctx context.Context, limit int) iter.Seq[FailedKey[T]] {
	return func(yield func(FailedKey[T]) bool) {
		keys, _ := p.failures.newest(&p.failures.mu.failing, limit)
		for _, k := range keys {
			fails := ctx.Err() != nil || p.failuresOf(ctx, k.Key).calls > 0
			if fails && !yield(k) {
				return
			}
		}
	}
}

// nextTries returns a function that asks the queue when a failing key comes due, until ctx ends.
func (p *Pool[T]) nextTries(ctx context.Context) func(key T) time.Time {
	if reader, ok := p.queue.(workqueue.KeyReader[T]); ok {
		return func(key T) (due time.Time) {
			if ctx.Err() == nil {
				if k, ok := reader.SnapshotKey(key); ok && k.State == workqueue.KeyWaiting {
					due = k.Due
				}
			}
			return due
		}
	}
	waiting := sync.OnceValue(func() map[T]time.Time {
		due := make(map[T]time.Time)
		for _, k := range p.getter.Snapshot(maxSnapshot).Waiting {
			due[k.Key] = k.Due
		}
		return due
	})
	return func(key T) time.Time { return waiting()[key] }
}

// running returns up to limit keys that are being handled, the one that started first at the front.
func (p *Pool[T]) running(limit int) []RunningKey[T] {
	keys := []RunningKey[T]{}
	p.locked(func() {
		for w := range p.handlingLocked() {
			keys = append(keys, w.RunningKey)
		}
	})
	now := p.options.Clock.Now() // After the keys were read: none of them has started since.
	for i := range keys {
		keys[i].Duration = now.Sub(keys[i].Started)
	}
	slices.SortStableFunc(keys, func(a, b RunningKey[T]) int { return a.Started.Compare(b.Started) })
	return keys[:max(0, min(limit, len(keys)))]
}

// SnapshotKey returns what the pool knows of one key. It asks the queue as [Pool.Snapshot] does, and looks through the workers.
func (p *Pool[T]) SnapshotKey(key T) KeySnapshot[T] {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.failuresOf(ctx, key) // Which forgets what is stale.
	s := p.failures.read(key)
	if p.options.MaxRetries != UnlimitedRetries {
		s.MaxAttempts = max(p.options.MaxRetries, 0) + 1 // NoRetries is negative.
	}
	if s.Failing != nil {
		s.Failing.NextTry = p.nextTries(ctx)(key)
	}
	if c, ok := p.find(func(c current[T]) bool { return c.Key == key }); ok {
		c.Duration = p.options.Clock.Since(c.Started)
		s.Running, s.Causes = &c.RunningKey, p.causesOf(key)
	}
	return s
}

// watch offers the pool to the provider of metrics.
func (p *Pool[T]) watch() {
	if p.options.Name == "" {
		return
	}
	provider := any(p.options.MetricsProvider)
	if global := observe.Global.Load(); provider == nil && global != nil {
		provider = *global
	}
	if provider, ok := provider.(StatsProvider); ok {
		provider.WatchPool(p.options.Name, p.Stats)
	}
	switch provider := provider.(type) {
	case InspectorProvider:
		provider.InspectPool(p.options.Name, Inspect(p))
	case SnapshotProvider:
		provider.WatchPoolKeys(p.options.Name, func(limit int) Snapshot[any] { return p.Snapshot(limit).anyKeys() })
	}
}

// Inspect returns an Inspector of p.
func Inspect[T comparable](p *Pool[T]) Inspector {
	return Inspector{
		Queue:       p.queue,
		Stats:       p.Stats,
		Snapshot:    func(limit int) Snapshot[any] { return p.snapshot(limit, keepErrors).anyKeys() },
		SnapshotKey: func(key any) KeySnapshot[any] { return p.SnapshotKey(typed[T](key)).anyKey() },
		FailingKeys: func() iter.Seq[FailedKey[any]] {
			return func(yield func(FailedKey[any]) bool) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				keytable.Map(p.failing(ctx, keepErrors), FailedKey[T].anyKey)(yield)
			}
		},
		DroppedKeys: func() iter.Seq[FailedKey[any]] {
			keys, _ := p.failures.newest(&p.failures.mu.dropped, p.options.KeepDropped)
			return keytable.Map(slices.Values(keys), FailedKey[T].anyKey)
		},
		Cancel: func(key any) bool { return p.Cancel(typed[T](key)) },
		Forget: func(key any) { p.Forget(typed[T](key)) },
	}
}

// typed returns key as a T. It panics if key is of another type.
func typed[T comparable](key any) T {
	k, ok := key.(T)
	if !ok && (key != nil || any(k) != nil) { // A nil interface, which may be a key, has no type that an assertion could find.
		panic(fmt.Sprintf("worker: a key of type %T in a pool whose keys are of type %T", key, k))
	}
	return k
}

// What follows returns the same with keys of no particular type.

func (s Snapshot[T]) anyKeys() Snapshot[any] {
	return Snapshot[any]{
		Stats: s.Stats, Running: converted(s.Running, RunningKey[T].anyKey), DroppedKeys: s.DroppedKeys,
		Failing: converted(s.Failing, FailedKey[T].anyKey), Dropped: converted(s.Dropped, FailedKey[T].anyKey),
	}
}

func converted[From, To any](all []From, convert func(From) To) []To {
	return slices.AppendSeq(make([]To, 0, len(all)), keytable.Map(slices.Values(all), convert))
}

func (r RunningKey[T]) anyKey() RunningKey[any] {
	return RunningKey[any]{r.Key, r.Attempt, r.Started, r.Duration, r.Stuck, r.Stack}
}

func (f FailedKey[T]) anyKey() FailedKey[any] {
	return FailedKey[any]{f.Key, f.Attempt, f.Err, f.Time, f.NextTry}
}

func (s KeySnapshot[T]) anyKey() KeySnapshot[any] {
	return KeySnapshot[any]{
		s.Key, convertedPointer(s.Running, RunningKey[T].anyKey), convertedPointer(s.Failing, FailedKey[T].anyKey),
		convertedPointer(s.Dropped, FailedKey[T].anyKey), s.FailedCalls, s.Causes, s.MaxAttempts,
	}
}

func convertedPointer[From, To any](from *From, convert func(From) To) *To {
	if from == nil {
		return nil
	}
	to := convert(*from)
	return &to
}
