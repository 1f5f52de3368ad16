package priorityqueue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// stressTime is how long one test runs: its share of WORKQUEUE_STRESS, a duration.
func stressTime(t *testing.T) time.Duration {
	s := os.Getenv("WORKQUEUE_STRESS")
	if s == "" {
		return 300 * time.Millisecond
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("WORKQUEUE_STRESS: %v", err)
	}
	return d / 3
}

// stressLimit is the Limit of all groups.
const stressLimit = 2

var stressConfigs = map[string]pq.Config[int]{
	"plain":    {},
	"aging":    {Aging: time.Microsecond},
	"groups":   {Group: func(key int) string { return fmt.Sprint(key % 2) }, Limit: limit(stressLimit)},
	"all":      {Group: func(key int) string { return fmt.Sprint(key % 3) }, Limit: limit(stressLimit), Aging: time.Microsecond, MinInterval: time.Microsecond, Name: "q", MetricsProvider: &reader{}},
	"interval": {MinInterval: 50 * time.Microsecond},
}

// everyConfigStressed runs f with each config, again and again until the test's time is over. It runs
// outside of bubbles, so that the race detector sees goroutines that really run at once.
func everyConfigStressed(t *testing.T, f func(t *testing.T, config pq.Config[int])) {
	for name, config := range stressConfigs {
		t.Run(name, func(t *testing.T) {
			limit := stressTime(t) / time.Duration(len(stressConfigs))
			rounds := 0
			for began := time.Now(); !t.Failed() && (rounds == 0 || time.Since(began) < limit); rounds++ {
				f(t, config)
			}
			t.Log(rounds, "rounds")
		})
	}
}

// Many workers and producers on few keys, in every way there is: no key is held by two workers, nor more of a
// group than may be, and no version of a key is missed.
func TestStress(t *testing.T) {
	const keys, producers, workers, adds = 6, 3, 4, 200
	everyConfigStressed(t, func(t *testing.T, config pq.Config[int]) {
		config.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Nanosecond, time.Microsecond)
		q := pq.New(config)
		var holders [keys]atomic.Int32
		var version, seen [keys]atomic.Int64
		var groups sync.Map
		process := func(key int) {
			if n := holders[key].Add(1); n != 1 {
				t.Errorf("%d workers hold key %d", n, key)
			}
			if config.Group != nil {
				counter, _ := groups.LoadOrStore(config.Group(key), new(atomic.Int32))
				if n := counter.(*atomic.Int32).Add(1); n > stressLimit {
					t.Errorf("%d keys of group %s are held", n, config.Group(key))
				}
				defer counter.(*atomic.Int32).Add(-1)
			}
			seen[key].Store(version[key].Load())
			if rand.IntN(3) == 0 {
				q.AddRateLimited(key)
			}
			holders[key].Add(-1)
		}
		var working, producing sync.WaitGroup
		working.Go(func() {
			for key, err := q.GetContext(context.Background()); err == nil; key, err = q.GetContext(context.Background()) {
				process(key)
				q.Done(key)
			}
		})
		for worker := range workers {
			working.Go(func() {
				for {
					batch, err := q.GetBatch(context.Background(), 1+worker%2)
					if err != nil {
						return
					}
					for _, key := range batch {
						process(key)
						q.Done(key)
					}
				}
			})
		}
		for range producers {
			producing.Go(func() {
				for range adds {
					key := rand.IntN(keys)
					version[key].Add(1)
					q.AddWithOpts(pq.AddOpts{
						Priority: rand.IntN(3),
						After:    time.Duration(rand.IntN(3)) * time.Microsecond,
						Delay:    pq.DelayPolicy(rand.IntN(4)),
						MaxDelay: 5 * time.Microsecond,
					}, key)
					switch rand.IntN(20) {
					case 0:
						q.Pause()
						q.Resume()
					case 1:
						for range q.All() {
						}
					case 2:
						q.Inspect(key)
					case 3:
						q.Done(1000) // not held
					}
				}
			})
		}
		producing.Wait()
		for end := time.Now().Add(30 * time.Second); q.Stats().Waiting > 0; time.Sleep(time.Microsecond) {
			if time.Now().After(end) {
				t.Fatalf("keys still wait: %+v", q.Stats())
			}
		}
		q.ShutDownWithDrain()
		working.Wait()
		for key := range keys {
			if v, s := version[key].Load(), seen[key].Load(); v != s {
				t.Errorf("key %d: version %d was added, and the last one seen is %d", key, v, s)
			}
		}
		if err := q.CheckInvariants(); err != nil {
			t.Error(err)
		}
	})
}

// A getter is cancelled, and a key removed, at the moment at which a key arrives. Either it has the key, or
// another getter gets it: one that already sleeps, and would sleep forever if the wake-up were lost.
func TestStressCancel(t *testing.T) {
	everyConfigStressed(t, func(t *testing.T, config pq.Config[int]) {
		q := pq.New(config)
		handed := make(chan int, 4)
		var all sync.WaitGroup
		get := func(ctx context.Context) bool {
			key, err := q.GetContext(ctx)
			if err == nil {
				q.Done(key)
				handed <- key
			}
			return err == nil
		}
		all.Go(func() {
			for get(context.Background()) {
			}
		})
		for key := range 50 {
			ctx, cancel := context.WithCancel(context.Background())
			for range 2 {
				all.Go(func() { get(ctx) })
			}
			all.Go(cancel)
			q.AddAfter(key, time.Duration(rand.IntN(2)))
			q.AddWithOpts(pq.AddOpts{After: time.Hour}, -1)
			q.Remove(-1)
			select {
			case got := <-handed:
				if got != key {
					t.Errorf("got key %d, want %d", got, key)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("no getter gets key %d", key)
			}
		}
		q.ShutDown()
		all.Wait()
	})
}

// Everything is called at once, Remove and Pause too. When it is over, every getter that waits gets what is left, nothing is
// remembered, and the numbers are right.
func TestStressEveryMethod(t *testing.T) {
	const keys, callers, workers, calls = 6, 3, 4, 200
	everyConfigStressed(t, func(t *testing.T, config pq.Config[int]) {
		config.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Nanosecond, time.Microsecond)
		q := pq.New(config)
		var taken, done atomic.Int64
		var calling, working sync.WaitGroup
		for range workers {
			working.Go(func() {
				for {
					ctx, cancel := context.Background(), func() {}
					if rand.IntN(4) == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(50))*time.Microsecond)
					}
					batch, err := q.GetBatch(ctx, 1+rand.IntN(3))
					cancel()
					if err == workqueue.ErrShutDown {
						return
					}
					taken.Add(int64(len(batch)))
					for _, key := range batch {
						someCall(q, key)
						done.Add(1)
						q.Done(key)
					}
				}
			})
		}
		for range callers {
			calling.Go(func() {
				for range calls {
					someCall(q, rand.IntN(keys))
				}
			})
		}
		calling.Wait()
		q.Resume()
		drained := make(chan struct{})
		go func() {
			q.ShutDownWithDrain()
			working.Wait()
			close(drained)
		}()
		select {
		case <-drained:
		case <-time.After(30 * time.Second):
			t.Fatalf("a call waits forever: %+v", q.Stats())
		}
		if err := q.CheckInvariants(); err != nil {
			t.Error(err)
		}
		if keys, groups, _ := q.Remembered(); keys+groups != 0 {
			t.Errorf("%d keys and %d groups are remembered", keys, groups)
		}
		st := q.Stats()
		if st.Latency != nil && (st.Latency.Count() != uint64(taken.Load()) || st.WorkDuration.Count() != uint64(done.Load())) {
			t.Errorf("%d keys were taken, and %d done: %+v", taken.Load(), done.Load(), st)
		}
		if st.Queued+st.Processing+st.Waiting+st.Again != 0 || st.UnmatchedDones != 0 {
			t.Errorf("Stats() = %+v", st)
		}
	})
}

func someCall(q *pq.Queue[int], key int) {
	switch rand.IntN(14) {
	case 0:
		q.Remove(key)
	case 1:
		q.AddRateLimited(key)
	case 2:
		q.Pause()
	case 3, 4:
		q.Resume()
	case 5:
		q.AddAll(pq.AddOpts{}, func(yield func(int) bool) { _ = yield(key) && yield(key+1) })
	case 6:
		q.Snapshot(2)
	case 7:
		for range q.All() {
		}
		for range q.SnapshotKeys() {
		}
	case 8:
		if group := fmt.Sprint(key % 2); q.PausedGroups() != nil {
			q.PauseGroup(group)
			q.ResumeGroup(group)
		}
	case 9:
		q.AddCause(key, workqueue.Cause{Reason: "1", Quiet: rand.IntN(2) == 0})
		q.AddedAgain(key)
	default:
		q.AddWithOpts(pq.AddOpts{
			Priority: rand.IntN(3), SetPriority: rand.IntN(2) == 0, RateLimited: rand.IntN(4) == 0,
			After: time.Duration(rand.IntN(3)) * time.Microsecond, Delay: pq.DelayPolicy(rand.IntN(4)),
		}, key)
	}
}
