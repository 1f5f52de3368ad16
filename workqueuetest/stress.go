package workqueuetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// The cases of this file run outside of bubbles, in real time, so that goroutines really run at once and the race
// detector sees them. The seed repeats the random calls, but not the order in which goroutines run.

func stressCases() []testCase {
	all := []struct {
		name, promise string
		round         func(r *run, random *rand.Rand)
	}{
		{"StressEveryAddIsProcessed", "With many producers and workers, delays, failures and retries, no two workers hold a key at once, and the last version of every key is processed.",
			func(r *run, random *rand.Rand) { r.stressVersions(random, false) }},
		{"StressShutDown", "When a shutdown comes at any moment, everything that was added before it is processed, once it is drained.",
			func(r *run, random *rand.Rand) { r.stressVersions(random, true) }},
		{"StressCancel", "When a getter gives up at the moment at which a key arrives, it has the key, or another getter gets it.", (*run).stressCancel},
		{"StressDrain", "Several drains, with and without a limit, race with workers and with ShutDown. Each returns, and says what is true.", (*run).stressDrain},
		{"StressEveryMethod", "All methods may be called at once, and in the end nothing is left.", (*run).stressEveryMethod},
		{"StressClock", "When a fake clock is stepped and set at any moment, each delayed key comes once, and not before its time.", (*run).stressClock},
	}
	var cases []testCase
	for _, c := range all {
		cases = append(cases, unbubbled(c.name, c.promise, func(r *run) {
			limit := stressTotal() / time.Duration(len(all))
			began := time.Now()
			for round := 0; !r.Failed() && (round == 0 || time.Since(began) < limit); round++ {
				c.round(r, r.rand(round))
				r.endQueues()
			}
		}))
	}
	return cases
}

// stressTotal is how long all stress cases run together.
func stressTotal() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("WORKQUEUE_STRESS")); err == nil {
		return d
	}
	return time.Second
}

// versions checks that workers see the newest version of every key.
type versions struct {
	r *run
	// written counts the versions of each key. added counts those whose Add has returned before any shutdown began.
	written, added, seen []atomic.Int64
	holders              []atomic.Int32
	ending               atomic.Bool
}

// hold is what a worker does between Get and Done. It takes some time, so that adds happen meanwhile.
func (v *versions) hold(key int, random *rand.Rand) {
	if n := v.holders[key].Add(1); n != 1 {
		v.r.Errorf("%d workers hold key %d", n, key)
	}
	v.seen[key].Store(v.written[key].Load())
	for range random.IntN(8) {
		runtime.Gosched()
	}
	v.holders[key].Add(-1)
}

// add writes a version of a key and adds the key with f.
func (v *versions) add(key int, f func(key string)) {
	version := v.written[key].Add(1)
	f(fmt.Sprint(key))
	if v.ending.Load() {
		return
	}
	for old := v.added[key].Load(); old < version && !v.added[key].CompareAndSwap(old, version); {
		old = v.added[key].Load()
	}
}

func (v *versions) check() {
	for key := range v.seen {
		if added, seen := v.added[key].Load(), v.seen[key].Load(); seen < added {
			v.r.Errorf("key %d: version %d was added, and the last one that a worker saw is %d", key, added, seen)
		}
	}
}

// stressVersions lets producers add versions of a few keys while workers process them. With early, the queue is shut
// down meanwhile; delayed adds may then be dropped, so they do not count.
func (r *run) stressVersions(random *rand.Rand, early bool) {
	// Few adds, because a lost add only shows if it was the last one of its key.
	const keys, producers, workers, adds = 5, 3, 4, 30
	q := r.queue(Config[string]{RateLimiter: workqueue.NewTypedItemFastSlowRateLimiter[string](time.Microsecond, 50*time.Microsecond, 3)})
	v := &versions{
		r: r, written: make([]atomic.Int64, keys), added: make([]atomic.Int64, keys), seen: make([]atomic.Int64, keys),
		holders: make([]atomic.Int32, keys),
	}
	var producing, working sync.WaitGroup
	var calls atomic.Int64 // of all methods that add
	for range workers {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		working.Add(1)
		r.start(func() {
			r.workOn(q, v, random)
		}, working.Done)
	}
	for range producers {
		random := rand.New(rand.NewPCG(random.Uint64(), 1))
		producing.Add(1)
		r.start(func() {
			for range adds {
				r.addVersion(q, v, random, early)
				calls.Add(1)
			}
		}, producing.Done)
	}
	if early {
		enough := random.Int64N(producers * adds)
		for deadline := time.Now().Add(patience / 3); calls.Load() < enough && time.Now().Before(deadline); {
			runtime.Gosched()
		}
	} else {
		producing.Wait()
		// Wait for the delayed keys, too.
		for deadline := time.Now().Add(patience / 3); !r.Failed(); time.Sleep(50 * time.Microsecond) {
			left := 0
			for key := range keys {
				left += int(max(0, v.added[key].Load()-v.seen[key].Load()))
			}
			if left == 0 || time.Now().After(deadline) {
				break
			}
		}
	}
	v.ending.Store(true)
	q.ShutDownWithDrain()
	producing.Wait()
	working.Wait()
	v.check()
	if !r.suite.Shared {
		r.wantLen(q, "after a drain", 0)
	}
	r.check(q)
}

// workOn is one worker of stressVersions. It fails now and then.
func (r *run) workOn(q fifo, v *versions, random *rand.Rand) {
	for {
		name, shutdown := q.Get()
		if shutdown {
			return
		}
		var key int
		_, _ = fmt.Sscan(name, &key)
		v.hold(key, random)
		if l, ok := q.(limiting); ok {
			if random.IntN(8) == 0 {
				l.AddRateLimited(name)
			} else {
				l.Forget(name)
			}
		}
		q.Done(name)
	}
}

func (r *run) addVersion(q fifo, v *versions, random *rand.Rand, early bool) {
	key := random.IntN(len(v.seen))
	d, ok := q.(delaying)
	switch n := random.IntN(8); {
	case ok && n == 0 && early:
		d.AddAfter(fmt.Sprint(key), time.Duration(random.IntN(200))*time.Microsecond)
	case ok && n <= 1:
		v.add(key, func(name string) { d.AddAfter(name, 0) })
	case ok && n == 2 && !early:
		v.add(key, func(name string) { d.AddAfter(name, time.Duration(1+random.IntN(200))*time.Microsecond) })
	default:
		v.add(key, q.Add)
	}
}

func (r *run) stressCancel(random *rand.Rand) {
	q := capable[extended](r, Config[string]{})
	handed := make(chan string, 4)
	var all sync.WaitGroup
	start := func(f func()) {
		all.Add(1)
		r.start(f, all.Done)
	}
	start(func() {
		for {
			key, shutdown := q.Get()
			if shutdown {
				return
			}
			q.Done(key)
			handed <- key
		}
	})
	for round := range 100 {
		key := fmt.Sprint(round)
		ctx, cancel := context.WithCancel(context.Background())
		for range 2 {
			start(func() {
				got, err := q.GetContext(ctx)
				if err == nil {
					q.Done(got)
					handed <- got
				} else if err != context.Canceled && err != workqueue.ErrShutDown {
					r.Errorf("GetContext() = %v", err)
				}
			})
		}
		start(cancel)
		q.Add(key)
		select {
		case got := <-handed:
			if got != key {
				r.Errorf("got key %s, want %s", got, key)
			}
		case <-time.After(patience / 3):
			r.Fatalf("no getter gets key %s: one waits and two gave up", key)
		}
	}
	q.ShutDown()
	all.Wait()
}

func (r *run) stressDrain(random *rand.Rand) {
	const keys = 50
	q := r.queue(Config[string]{})
	for key := range keys {
		q.Add(fmt.Sprint(key))
		if d, ok := q.(delaying); ok {
			d.AddAfter(fmt.Sprint(keys+key), time.Duration(random.IntN(int(200*time.Microsecond))))
		}
	}
	var all sync.WaitGroup
	start := func(f func()) {
		all.Add(1)
		r.start(f, all.Done)
	}
	var processed atomic.Int64
	for range 3 {
		start(func() {
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				processed.Add(1)
				q.Done(key)
			}
		})
	}
	withShutDown := random.IntN(2) == 0
	for range 2 {
		start(func() {
			q.ShutDownWithDrain()
			if n := q.Len(); n > 0 && !withShutDown {
				r.Errorf("Len() = %d after a drain", n)
			}
		})
		if e, ok := q.(extended); ok {
			start(func() { r.drainForEver(e, withShutDown) })
			start(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Microsecond)
				for e.ShutDownContext(ctx) != nil {
					cancel()
					ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
				}
				cancel()
			})
		}
	}
	if withShutDown {
		start(q.ShutDown)
	}
	all.Wait()
	if n := processed.Load(); n < keys || n > 2*keys {
		r.Errorf("%d keys were processed, of %d that were added and %d that were delayed", n, keys, keys)
	}
	if e, ok := q.(extended); ok && !r.suite.PartialStats {
		st := e.Stats()
		if uint64(processed.Load()) != st.Adds || st.Adds+st.Dropped != keys+st.Retries {
			r.Errorf("%d keys were processed, and Stats() = %+v", processed.Load(), st)
		}
	}
}

func (r *run) drainForEver(q extended, withShutDown bool) {
	switch err := q.ShutDownContext(context.Background()); {
	case err == nil:
		if n := q.Len(); n > 0 {
			r.Errorf("Len() = %d after a drain", n)
		}
	case err != workqueue.ErrShutDown || !withShutDown:
		r.Errorf("ShutDownContext() = %v", err)
	}
}

func (r *run) stressEveryMethod(random *rand.Rand) {
	c := Config[string]{RateLimiter: workqueue.NewTypedItemFastSlowRateLimiter[string](time.Microsecond, time.Millisecond, 3)}
	m := &testkit.Recorder{}
	if !r.suite.NoMetrics {
		c.Name, c.MetricsProvider = queueName, m
	}
	q := r.queue(c)
	var all sync.WaitGroup
	for range 4 {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		all.Add(1)
		r.start(func() {
			for range 200 {
				someCall(q, random)
			}
		}, all.Done)
	}
	all.Wait()
	all.Add(1)
	r.start(q.ShutDownWithDrain, all.Done)
	for {
		key, shutdown := q.Get()
		if shutdown {
			break
		}
		q.Done(key)
	}
	all.Wait()
	r.check(q)
	for _, gauge := range []string{"depth", "unfinished", "longest"} {
		if v := m.Value(gauge); v != 0 {
			r.Errorf("in the end gauge %s is %v", gauge, v)
		}
	}
}

// someCall makes a random call that does not wait for other goroutines.
func someCall(q fifo, random *rand.Rand) {
	key := fmt.Sprint(random.IntN(8))
	switch random.IntN(7) {
	case 0:
		if e, ok := q.(extended); ok {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(100))*time.Microsecond)
			defer cancel()
			if k, err := e.GetContext(ctx); err == nil {
				q.Done(k)
			}
		}
	case 1:
		q.Len()
		q.ShuttingDown()
		if e, ok := q.(extended); ok {
			e.Stats()
		}
	case 2:
		if l, ok := q.(limiting); ok {
			l.AddRateLimited(key)
			l.NumRequeues(key)
			l.Forget(key)
		}
	case 3:
		if d, ok := q.(delaying); ok {
			d.AddAfter(key, time.Duration(random.IntN(100))*time.Microsecond)
		}
	default:
		q.Add(key)
	}
}
