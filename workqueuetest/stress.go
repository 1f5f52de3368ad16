package workqueuetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// The cases of this file run outside of bubbles, in real time, so that goroutines really run at once and the
// race detector sees them. The seed repeats the random calls, but not the order in which goroutines run.

var stressCases = []testCase{
	stress("StressEveryAddIsProcessed",
		"With many producers and workers, delays, failures and retries, no two workers hold a key at once, and "+
			"the last version of every key is processed.",
		func(r *run, random *rand.Rand) { r.stressVersions(random, false) }),
	stress("StressShutDown",
		"When a shutdown comes at any moment, everything that was added before it is processed, once it is "+
			"drained.",
		func(r *run, random *rand.Rand) { r.stressVersions(random, true) }),
	stress("StressCancel",
		"When a getter gives up at the moment at which a key arrives, it has the key, or another getter gets it.",
		(*run).stressCancel),
	stress("StressDrain",
		"Several drains, with and without a limit, race with workers, keys that come due, and ShutDown. Each "+
			"returns, and its result is true.",
		(*run).stressDrain),
	stress("StressEveryMethod", "All methods may be called at once, and in the end nothing is left.",
		(*run).stressEveryMethod),
	stress("StressClock",
		"When a fake clock is stepped at any moment, each delayed key comes once, and not before its time.",
		(*run).stressClock),
}

// stress is a case whose rounds are repeated for its part of the time of all stress cases.
func stress(name, promise string, round func(r *run, random *rand.Rand)) testCase {
	return unbubbled(name, promise, func(r *run) {
		const cases = 6 // len(stressCases), which share the time
		began := time.Now()
		for n := 0; !r.Failed() && (n == 0 || time.Since(began) < stressTotal()/cases); n++ {
			round(r, r.rand(n))
			r.endQueues()
		}
	})
}

// stressTotal is how long all stress cases run together.
func stressTotal() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("WORKQUEUE_STRESS")); err == nil {
		return d
	}
	return time.Second
}

func work(q fifo, handle func(key string)) {
	for {
		key, shutdown := q.Get()
		if shutdown {
			return
		}
		handle(key)
		q.Done(key)
	}
}

func fork(random *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(random.Uint64(), 0)) }

// versions checks that workers see the newest version of every key.
type versions struct {
	r *run
	q fifo
	// dropsDelayed is set if delayed adds may be dropped by a shutdown. Then they do not count.
	dropsDelayed bool
	ending       atomic.Bool
	keys         [5]struct {
		// written counts the versions. added counts those whose Add has returned before any shutdown began.
		written, added, seen atomic.Int64
		holders              atomic.Int32
	}
}

// handle is what a worker does between Get and Done. It takes some time, so that adds happen meanwhile, and
// fails now and then.
func (v *versions) handle(name string, random *rand.Rand) {
	n, _ := strconv.Atoi(name)
	key := &v.keys[n]
	if n := key.holders.Add(1); n != 1 {
		v.r.Errorf("%d workers hold key %s", n, name)
	}
	key.seen.Store(key.written.Load())
	for range random.IntN(8) {
		runtime.Gosched()
	}
	key.holders.Add(-1)
	if l, ok := v.q.(limiting); ok {
		if random.IntN(8) == 0 {
			l.AddRateLimited(name)
		} else {
			l.Forget(name)
		}
	}
}

// add writes a version of a key and adds the key.
func (v *versions) add(random *rand.Rand) {
	n := random.IntN(len(v.keys))
	key, name := &v.keys[n], strconv.Itoa(n)
	version := key.written.Add(1)
	d, delays := v.q.(delaying)
	switch n := random.IntN(8); {
	case delays && n == 0:
		d.AddAfter(name, 0)
	case delays && n == 1:
		d.AddAfter(name, time.Duration(1+random.IntN(200))*time.Microsecond)
		if v.dropsDelayed {
			return
		}
	default:
		v.q.Add(name)
	}
	if v.ending.Load() {
		return
	}
	for old := key.added.Load(); old < version && !key.added.CompareAndSwap(old, version); {
		old = key.added.Load()
	}
}

// allSeen reports whether workers have seen the last version that was added of every key.
func (v *versions) allSeen() bool {
	for n := range v.keys {
		if v.keys[n].seen.Load() < v.keys[n].added.Load() {
			return false
		}
	}
	return true
}

// stressVersions lets producers add versions of a few keys while workers process them. With early, the queue
// is shut down meanwhile.
func (r *run) stressVersions(random *rand.Rand, early bool) {
	// Few adds, because a lost add only shows if it was the last one of its key.
	const producers, workers, adds = 3, 4, 30
	q := r.queue(Config[string]{RateLimiter: workqueue.NewTypedItemFastSlowRateLimiter[string](time.Microsecond,
		50*time.Microsecond, 3)})
	v := &versions{r: r, q: q, dropsDelayed: early}
	producing, working := group{r: r}, group{r: r}
	for range workers {
		random := fork(random)
		working.start(func() { work(q, func(key string) { v.handle(key, random) }) })
	}
	for range producers {
		random := fork(random)
		producing.start(func() {
			for range adds {
				v.add(random)
			}
		})
	}
	if early {
		for range random.IntN(producers * adds) {
			runtime.Gosched()
		}
	} else {
		producing.Wait()
		testkit.Eventually(r, "workers see the last version of every key, also of delayed ones",
			func() bool { return r.Failed() || v.allSeen() })
	}
	v.ending.Store(true)
	q.ShutDownWithDrain()
	producing.Wait()
	working.Wait()
	if !v.allSeen() {
		r.Errorf("workers have not seen the last version of every key")
	}
	if !r.suite.Shared {
		r.wantLen(q, "after a drain", 0)
	}
	r.check(q)
}

func (r *run) stressCancel(*rand.Rand) {
	q := need[extended](r, r.queue(Config[string]{}), Extended)
	handed := make(chan string, 4)
	all := group{r: r}
	all.start(func() { work(q, func(key string) { handed <- key }) })
	for round := range 100 {
		ctx, cancel := context.WithCancel(context.Background())
		for range 2 {
			all.start(func() {
				key, err := q.GetContext(ctx)
				if err == nil {
					handed <- key
					q.Done(key)
				} else if err != context.Canceled && err != workqueue.ErrShutDown {
					r.Errorf("GetContext() = %v", err)
				}
			})
		}
		all.start(cancel)
		key := fmt.Sprint(round)
		q.Add(key)
		select {
		case got := <-handed:
			if got != key {
				r.Errorf("got key %s, want %s", got, key)
			}
		case <-time.After(testkit.Patience / 3):
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
	all := group{r: r}
	var processed atomic.Int64
	for range 3 {
		all.start(func() { work(q, func(string) { processed.Add(1) }) })
	}
	withShutDown := random.IntN(2) == 0
	for _, e := range enders(q)[1:] {
		for range 2 {
			all.start(func() {
				err := e.end()
				if err != nil && (err != workqueue.ErrShutDown || !withShutDown) {
					r.Errorf("%s = %v", e.name, err)
				}
				if n := q.Len(); err == nil && n > 0 && !withShutDown {
					r.Errorf("Len() = %d after %s", n, e.name)
				}
			})
		}
	}
	if e, ok := q.(extended); ok {
		all.start(func() {
			for limit := 50 * time.Microsecond; ; limit = time.Millisecond {
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				err := e.ShutDownContext(ctx)
				cancel()
				if err == nil {
					return
				}
			}
		})
	}
	if withShutDown {
		all.start(q.ShutDown)
	}
	all.Wait()
	n := processed.Load()
	if n < keys || n > 2*keys {
		r.Errorf("%d keys were processed, of %d that were added and %d that were delayed", n, keys, keys)
	}
	if e, ok := q.(extended); ok && !r.suite.PartialStats {
		if st := e.Stats(); uint64(n) != st.Adds || st.Adds+st.Dropped != keys+st.Retries {
			r.Errorf("%d keys were processed, and Stats() = %+v", n, st)
		}
	}
}

// randomCalls are calls of all methods that never wait for other goroutines, except Done.
func randomCalls(q fifo, random *rand.Rand) map[string]func(key string) {
	delay := func() time.Duration { return time.Duration(random.IntN(100)) * time.Microsecond }
	all := map[string]func(key string){
		"Add":          q.Add,
		"Len":          func(string) { q.Len() },
		"ShuttingDown": func(string) { q.ShuttingDown() },
	}
	if d, ok := q.(delaying); ok {
		all["AddAfter"] = func(key string) { d.AddAfter(key, delay()) }
	}
	if l, ok := q.(limiting); ok {
		all["AddRateLimited"] = l.AddRateLimited
		all["Forget"] = l.Forget
		all["NumRequeues"] = func(key string) { l.NumRequeues(key) }
	}
	if e, ok := q.(extended); ok {
		all["Stats"] = func(string) { e.Stats() }
		all["GetContext"] = func(string) {
			ctx, cancel := context.WithTimeout(context.Background(), delay())
			defer cancel()
			if key, err := e.GetContext(ctx); err == nil {
				q.Done(key)
			}
		}
	}
	return all
}

func (r *run) stressEveryMethod(random *rand.Rand) {
	c := Config[string]{RateLimiter: workqueue.NewTypedItemFastSlowRateLimiter[string](time.Microsecond,
		time.Millisecond, 3)}
	m := &testkit.Recorder{}
	if !r.suite.NoMetrics {
		c.Name, c.MetricsProvider = queueName, m
	}
	q := r.queue(c)
	all := group{r: r}
	for range 4 {
		random := fork(random)
		methods := randomCalls(q, random)
		names := append(slices.Sorted(maps.Keys(methods)), "Add", "Add") // Adds are more frequent than all else.
		all.start(func() {
			for range 200 {
				methods[names[random.IntN(len(names))]](fmt.Sprint(random.IntN(8)))
			}
		})
	}
	all.Wait()
	all.start(q.ShutDownWithDrain)
	work(q, func(string) {})
	all.Wait()
	r.check(q)
	for _, gauge := range []string{"depth", "unfinished", "longest"} {
		if v := m.Value(gauge); v != 0 {
			r.Errorf("in the end gauge %s is %v", gauge, v)
		}
	}
}

func (r *run) stressClock(random *rand.Rand) {
	const keys = 40
	if r.suite.IgnoresClock {
		r.skip("the queue only uses the real clock")
	}
	c := testkit.NewFakeClock()
	q := need[delaying](r, r.queue(Config[string]{Clock: c}), Delays)
	// steps is held while the clock is stepped, so that the times in due are right. The queue does not use it:
	// for the queue the clock may change at any moment.
	var steps sync.Mutex
	var due [keys]time.Time
	var came atomic.Int32
	working, stepping := group{r: r}, group{r: r}
	working.start(func() {
		var seen [keys]bool
		work(q, func(name string) {
			key, _ := strconv.Atoi(name)
			if now := c.Now(); now.Before(due[key]) {
				r.Errorf("key %d came %v before its time", key, due[key].Sub(now))
			}
			if seen[key] {
				r.Errorf("key %d came twice", key)
			}
			seen[key] = true
			came.Add(1)
		})
	})
	for range 2 {
		random := fork(random)
		stepping.start(func() {
			for range 20 {
				steps.Lock()
				c.Step(time.Duration(random.IntN(1000)) * time.Millisecond)
				steps.Unlock()
				for range random.IntN(20) {
					runtime.Gosched()
				}
			}
		})
	}
	latest := c.Now()
	for key := range keys {
		d := time.Duration(1+random.IntN(20_000)) * time.Millisecond
		steps.Lock()
		due[key] = c.Now().Add(d)
		q.AddAfter(fmt.Sprint(key), d)
		steps.Unlock()
		if due[key].After(latest) {
			latest = due[key]
		}
	}
	stepping.Wait()
	// Step to the last due time and no further: a queue that started its timer while the clock was stepped, and
	// therefore sleeps too long, would never wake.
	c.Step(max(0, latest.Sub(c.Now())))
	testkit.Eventually(r, "every key comes once the clock reads the last one's time",
		func() bool { return came.Load() >= keys })
	q.ShutDown()
	working.Wait()
}
