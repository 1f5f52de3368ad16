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
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/operate"
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
	return d / 2
}

const (
	stressKeys  = 6
	stressLimit = 2 // is the Limit of all groups
)

var stressConfigs = map[string]pq.Config[int]{
	"plain":  {},
	"aging":  {Aging: time.Microsecond},
	"groups": {Group: func(key int) string { return fmt.Sprint(key % 2) }, Limit: limit(stressLimit)},
	"all": {Group: func(key int) string { return fmt.Sprint(key % 3) }, Limit: limit(stressLimit),
		Aging: time.Microsecond, MinInterval: time.Microsecond, Name: "q", MetricsProvider: &reader{}},
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

// Many workers and callers on few keys, in every way there is: no key is held by two workers, nor more of a
// group than may be, and no version of a key is missed unless it is removed. Handlers that wait for the next
// add do not wait forever. When it is over, nothing is remembered, and the numbers are right.
func TestStress(t *testing.T) {
	for _, removes := range []bool{false, true} {
		t.Run(fmt.Sprint("removes=", removes), func(t *testing.T) {
			everyConfigStressed(t, func(t *testing.T, config pq.Config[int]) { stress(t, config, removes) })
		})
	}
}

func stress(t *testing.T, config pq.Config[int], removes bool) {
	const callers, workers, calls = 3, 5, 200
	config.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Nanosecond,
		time.Microsecond)
	q := pq.New(config)
	var holders [stressKeys]atomic.Int32
	var version, seen [stressKeys]atomic.Int64
	var taken, done atomic.Int64
	var groups sync.Map
	var calling, working sync.WaitGroup
	stop := make(chan struct{})
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
		if rand.IntN(8) == 0 {
			select {
			case <-q.AddedAgain(key): // A caller adds every key now and then.
			case <-stop:
			}
		}
		someCall(q, key, removes)
		holders[key].Add(-1)
		done.Add(1)
	}
	for range workers {
		working.Go(func() {
			for {
				ctx, cancel := context.Background(), func() {}
				if rand.IntN(4) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(50))*time.Microsecond)
				}
				batch, err := q.GetBatch(ctx, 1+rand.IntN(2))
				cancel()
				if err == workqueue.ErrShutDown {
					return
				}
				taken.Add(int64(len(batch)))
				for _, k := range batch {
					process(k.Key)
					q.Done(k.Key)
				}
			}
		})
	}
	for range callers {
		calling.Go(func() {
			for range calls {
				key := rand.IntN(stressKeys)
				version[key].Add(1)
				q.AddWithOpts(pq.AddOpts{After: time.Duration(rand.IntN(3)) * time.Microsecond, Priority: rand.IntN(3)},
					key)
				someCall(q, rand.IntN(stressKeys), removes)
			}
		})
	}
	calling.Wait()
	close(stop)
	q.Resume()
	testkit.Eventually(t, "no key waits", func() bool { q.Resume(); return q.Stats().Waiting == 0 })
	ended := make(chan struct{})
	go func() {
		q.ShutDownWithDrain()
		working.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(testkit.Patience):
		t.Fatalf("a call waits forever: %+v", q.Stats())
	}
	for key := range stressKeys {
		if v, s := version[key].Load(), seen[key].Load(); v != s && !removes {
			t.Errorf("key %d: version %d was added, and the last one seen is %d", key, v, s)
		}
	}
	if err := q.CheckInvariants(); err != nil {
		t.Error(err)
	}
	if keys, groups, _ := q.Remembered(); keys+groups != 0 {
		t.Errorf("%d keys and %d groups are remembered", keys, groups)
	}
	st := q.Stats()
	if st.Latency != nil && (st.Latency.Count() != uint64(taken.Load()) ||
		st.WorkDuration.Count() != uint64(done.Load())) {
		t.Errorf("%d keys were taken, and %d done: %+v", taken.Load(), done.Load(), st)
	}
	if st.Queued+st.Processing+st.Waiting+st.Again != 0 || st.UnmatchedDones != 0 {
		t.Errorf("Stats() = %+v", st)
	}
}

func someCall(q *pq.Queue[int], key int, removes bool) {
	switch rand.IntN(14) {
	case 0:
		if removes {
			q.Remove(key)
		}
	case 1:
		q.AddRateLimited(key)
	case 2:
		q.Pause(operate.UntilResumed)
	case 3, 4:
		q.Resume()
	case 5:
		q.AddWithOpts(pq.AddOpts{}, key, (key+1)%stressKeys)
	case 6:
		q.Snapshot(2)
	case 7:
		for range q.SnapshotKeys() {
		}
		for range q.SnapshotKeys() {
		}
	case 8:
		if group := fmt.Sprint(key % 2); q.PausedGroups() != nil {
			q.PauseGroup(group, operate.UntilResumed)
			q.ResumeGroup(group)
		}
	case 9:
		q.AddCause(key, workqueue.Cause{Reason: "1", Quiet: rand.IntN(2) == 0})
		q.Causes(key)
	default:
		q.AddWithOpts(pq.AddOpts{
			Priority: rand.IntN(3), SetPriority: rand.IntN(2) == 0, RateLimited: rand.IntN(4) == 0,
			After: time.Duration(rand.IntN(3)) * time.Microsecond, Delay: pq.DelayPolicy(rand.IntN(4)),
			MaxDelay: 5 * time.Microsecond,
		}, key)
	}
}
