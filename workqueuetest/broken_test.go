package workqueuetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
)

// whole is everything that a queue can have.
type whole interface {
	limiting
	extended
}

// sound builds a correct queue.
func sound(c Config[string]) whole {
	return workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter, workqueue.TypedRateLimitingQueueConfig[string]{
		Name: c.Name, MetricsProvider: c.MetricsProvider, Clock: c.Clock,
	}).(whole)
}

func soundAny(c Config[any]) workqueue.TypedInterface[any] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter, workqueue.TypedRateLimitingQueueConfig[any]{
		Name: c.Name, MetricsProvider: c.MetricsProvider, Clock: c.Clock,
	})
}

// holding is a correct queue that knows which keys workers hold. The queues below wrap a correct one, and add one bug
// each.
type holding struct {
	whole
	mu   sync.Mutex
	held map[string]bool
}

func newHolding(c Config[string]) *holding {
	return &holding{whole: sound(c), held: make(map[string]bool)}
}

func (q *holding) note(key string, held bool) (before bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before = q.held[key]
	if held {
		q.held[key] = true
	} else {
		delete(q.held, key)
	}
	return before
}

func (q *holding) holds(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held[key]
}

func (q *holding) Get() (string, bool) {
	key, err := q.GetContext(context.Background())
	return key, err != nil
}

func (q *holding) GetContext(ctx context.Context) (string, error) {
	key, err := q.whole.GetContext(ctx)
	if err == nil {
		q.note(key, true)
	}
	return key, err
}

func (q *holding) Done(key string) {
	q.note(key, false)
	q.whole.Done(key)
}

// losesAdds forgets adds of keys that workers hold.
type losesAdds struct{ *holding }

func (q losesAdds) Add(key string) {
	if !q.holds(key) {
		q.holding.Add(key)
	}
}

// forgetsHolders hands a key to a second worker when it is added while one holds it.
type forgetsHolders struct{ *holding }

func (q forgetsHolders) Add(key string) {
	if q.note(key, false) {
		q.whole.Done(key)
	}
	q.whole.Add(key)
}

// requeues queues a key whose Done is called although no worker holds it.
type requeues struct{ *holding }

func (q requeues) Done(key string) {
	if !q.holds(key) {
		q.whole.Add(key)
	}
	q.holding.Done(key)
}

// lastInFirstOut is an order for correct queues.
type lastInFirstOut struct{ keys []string }

func (l *lastInFirstOut) Touch(string)    {}
func (l *lastInFirstOut) Push(key string) { l.keys = append(l.keys, key) }
func (l *lastInFirstOut) Len() int        { return len(l.keys) }
func (l *lastInFirstOut) Pop() string {
	last := len(l.keys) - 1
	key := l.keys[last]
	l.keys = l.keys[:last]
	return key
}

// addsLater leaves the adding to a goroutine.
type addsLater struct{ whole }

func (q addsLater) Add(key string) { go q.whole.Add(key) }

// panicsOnAdd has a bug in its simplest method.
type panicsOnAdd struct{ whole }

func (panicsOnAdd) Add(string) { panic("index out of range") }

// drainsEarly waits for nothing.
type drainsEarly struct{ whole }

func (q drainsEarly) ShutDownWithDrain()                    { q.ShutDown() }
func (q drainsEarly) ShutDownContext(context.Context) error { q.ShutDown(); return nil }

// drainsOne lets one of several drains return.
type drainsOne struct {
	whole
	one chan struct{}
}

func (q drainsOne) ShutDownWithDrain() {
	q.whole.ShutDownWithDrain()
	q.one <- struct{}{}
}

// locksDuringDrain holds a mutex for as long as it drains.
type locksDuringDrain struct {
	whole
	mu sync.Mutex
}

func (q *locksDuringDrain) ShutDownWithDrain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.whole.ShutDownWithDrain()
}

func (q *locksDuringDrain) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.whole.Len()
}

// shutsDownOnce panics when it is shut down a second time.
type shutsDownOnce struct {
	whole
	down chan struct{}
}

func (q shutsDownOnce) ShutDown() {
	close(q.down)
	q.whole.ShutDown()
}

// abandons hands out nothing after shutdown.
type abandons struct{ whole }

func (q abandons) Get() (string, bool) {
	if q.ShuttingDown() {
		return "", true
	}
	return q.whole.Get()
}

// takesKeysAlong leaves a goroutine behind when GetContext gives up, which takes the next key.
type takesKeysAlong struct{ whole }

func (q takesKeysAlong) GetContext(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	type result struct {
		key string
		err error
	}
	ch := make(chan result, 1)
	go func() {
		key, err := q.whole.GetContext(context.Background())
		ch <- result{key, err}
	}()
	select {
	case r := <-ch:
		return r.key, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// ignoresContext waits for a key even after its context has ended.
type ignoresContext struct{ whole }

func (q ignoresContext) GetContext(context.Context) (string, error) {
	return q.whole.GetContext(context.Background())
}

// shifts changes delays.
type shifts struct {
	whole
	by time.Duration
}

func (q shifts) AddAfter(key string, d time.Duration) {
	if d > 0 {
		d = max(1, d+q.by)
	}
	q.whole.AddAfter(key, d)
}

// addsEach adds a key once for every call of AddAfter, in goroutines of its own, until ShutDown.
type addsEach struct {
	whole
	clock clock.WithTicker
	stop  chan struct{}
	once  *sync.Once
}

func (q addsEach) AddAfter(key string, d time.Duration) {
	timer := q.clock.NewTimer(d)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			q.Add(key)
		case <-q.stop:
		}
	}()
}

func (q addsEach) ShutDown() {
	q.once.Do(func() { close(q.stop) })
	q.whole.ShutDown()
}

// remembers does not pass Forget on to its limiter.
type remembers struct{ whole }

func (remembers) Forget(string) {}

// alwaysRuns has a goroutine and a ticker from the start.
type alwaysRuns struct {
	whole
	stop chan struct{}
	once *sync.Once
}

func newAlwaysRuns(c Config[string]) alwaysRuns {
	q := alwaysRuns{sound(c), make(chan struct{}), new(sync.Once)}
	ticker := c.Clock.NewTicker(time.Minute)
	go func() {
		defer ticker.Stop()
		<-q.stop
	}()
	return q
}

func (q alwaysRuns) ShutDown() {
	q.once.Do(func() { close(q.stop) })
	q.whole.ShutDown()
}

// hoards keeps every key.
type hoards struct {
	*holding
	keys map[string]bool
}

func (q hoards) Done(key string) {
	q.mu.Lock()
	q.keys[key] = true
	q.mu.Unlock()
	q.holding.Done(key)
}

// hoardsAny is hoards for keys of any type. It also accepts unhashable keys.
type hoardsAny struct {
	workqueue.TypedRateLimitingInterface[any]
	keys *[]any
}

func (q hoardsAny) Add(key any) {
	defer func() { _ = recover() }()
	*q.keys = append(*q.keys, key)
	q.TypedRateLimitingInterface.Add(key)
}

// looks considers keys equal if they print the same.
type looks struct {
	workqueue.TypedInterface[any]
	seen map[string]bool
}

func (q looks) Add(key any) {
	if s := fmt.Sprint(key); !q.seen[s] {
		q.seen[s] = true
		q.TypedInterface.Add(key)
	}
}

// countsAll counts every Add in its Stats, even one that changes nothing.
type countsAll struct {
	whole
	adds *atomic.Uint64
}

func (q countsAll) Add(key string) {
	q.adds.Add(1)
	q.whole.Add(key)
}

func (q countsAll) Stats() workqueue.Stats {
	st := q.whole.Stats()
	st.Adds = q.adds.Load()
	return st
}

// neverSinks is a metrics provider whose depth only grows.
type neverSinks struct{ workqueue.MetricsProvider }

type onlyUp struct{ workqueue.GaugeMetric }

func (onlyUp) Dec() {}

func (p neverSinks) NewDepthMetric(name string) workqueue.GaugeMetric {
	return onlyUp{p.MetricsProvider.NewDepthMetric(name)}
}

// jitters adds a few nanoseconds to delays.
type jitters struct{ whole }

func (q jitters) AddAfter(key string, d time.Duration) {
	if d > 0 {
		d += time.Duration(len(key)*int(key[0])) % 7
	}
	q.whole.AddAfter(key, d)
}

// latestWins ignores an AddAfter that is due before the waiting entry.
type latestWins struct {
	whole
	mu    sync.Mutex
	due   map[string]time.Time
	clock clock.WithTicker
}

func (q *latestWins) AddAfter(key string, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	if due, ok := q.due[key]; ok && due.After(now.Add(d)) && d > 0 {
		return
	}
	q.due[key] = now.Add(d)
	q.whole.AddAfter(key, d)
}

func (q *latestWins) AddRateLimited(key string) { q.AddAfter(key, time.Hour) }

// unlimited treats every retry as the first.
type unlimited struct{ whole }

func (q unlimited) AddRateLimited(key string) { q.AddAfter(key, time.Millisecond) }

// tolerant recovers from panics that its callers should see.
type tolerant struct{ whole }

func (q tolerant) AddRateLimited(key string) {
	defer func() { _ = recover() }()
	q.whole.AddRateLimited(key)
}

// patient ignores the context of ShutDownContext.
type patient struct{ whole }

func (q patient) ShutDownContext(context.Context) error {
	return q.whole.ShutDownContext(context.Background())
}

// alwaysDelays delays keys that should be queued at once.
type alwaysDelays struct{ whole }

func (q alwaysDelays) AddAfter(key string, d time.Duration) { q.whole.AddAfter(key, max(d, 1)) }

func (q alwaysDelays) AddRateLimited(key string) { q.AddAfter(key, 0) }
