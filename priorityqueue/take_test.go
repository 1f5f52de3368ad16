package priorityqueue_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

func TestGetBatch(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		batch := testkit.Start(func() []string { b, _ := q.GetBatch(context.Background(), 2); return b })
		batch.MustBlock(t, "GetBatch")
		q.AddAll(pq.AddOpts{}, slices.Values([]string{"a", "b", "c"}))
		if got := batch.MustReturn(t, "GetBatch"); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("GetBatch(2) = %v", got)
		}
		if got, err := q.GetBatch(context.Background(), 1000); !slices.Equal(got, []string{"c"}) || err != nil {
			t.Errorf("GetBatch(1000) = %v, %v", got, err)
		}
		testkit.WantPanic(t, "GetBatch(0)", func() { _, _ = q.GetBatch(context.Background(), 0) }, "priorityqueue: a batch")
		ctx, cancel := context.WithCancel(context.Background())
		canceled := testkit.Start(func() error { _, err := q.GetBatch(ctx, 1); return err })
		canceled.MustBlock(t, "GetBatch")
		cancel()
		if err := canceled.MustReturn(t, "GetBatch, canceled"); err != context.Canceled {
			t.Error(err)
		}
		q.ShutDown()
		if _, err := q.GetBatch(context.Background(), 1); err != workqueue.ErrShutDown {
			t.Errorf("GetBatch() after shutdown = %v", err)
		}
	})
}

func TestTake(t *testing.T) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour)
	config := pq.Config[string]{Group: byPrefix, RateLimiter: limiter}
	script(t, config, func(t *testing.T, q *pq.Queue[string]) {
		take := testkit.Start(func() pq.Info[string] { info, _ := q.Take(t.Context()); return info })
		take.MustBlock(t, "Take")
		added := time.Now()
		q.AddWithOpts(pq.AddOpts{Priority: 7, RateLimited: true}, "a/1")
		time.Sleep(time.Second)
		want := pq.Info[string]{Key: "a/1", State: pq.Processing, Priority: 7, Group: "a", Failures: 1}
		got := take.MustReturn(t, "Take")
		if want.Added = got.Added; got != want || !got.Added.Equal(added) {
			t.Errorf("Take() = %+v, want %+v, added %v", got, want, added)
		}
		q.Add("a/2")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := q.Take(ctx); err != context.Canceled || q.Len() != 1 {
			t.Errorf("Take() = %v, with %d keys left", err, q.Len())
		}
		q.AddWithOpts(pq.AddOpts{Priority: 1}, "b/1")
		batch, err := q.TakeBatch(t.Context(), 5)
		if len(batch) != 2 || batch[0].Key != "b/1" || batch[0].Priority != 1 || batch[1].Group != "a" || err != nil {
			t.Errorf("TakeBatch() = %+v, %v", batch, err)
		}
		q.ShutDown()
		if _, err := q.Take(t.Context()); err != workqueue.ErrShutDown {
			t.Errorf("Take() after shutdown = %v", err)
		}
	})
}

// fragile is a limiter whose NumRequeues panics for a key.
type fragile struct {
	fixed
	key  string
	then func() // before the panic
}

func (f *fragile) NumRequeues(key string) int {
	if key == f.key {
		if f.then != nil {
			f.then()
		}
		panic("NumRequeues")
	}
	return 0
}

// If the limiter panics, the caller does not know the keys that were taken. So they go back.
func TestTakeGivesKeysBack(t *testing.T) {
	f := &fragile{key: "b"}
	config := pq.Config[string]{RateLimiter: f, Name: "q", MetricsProvider: &reader{}}
	for _, down := range []bool{false, true} {
		script(t, config, func(t *testing.T, q *pq.Queue[string]) {
			f.key = "b"
			q.AddWithOpts(pq.AddOpts{Priority: 5}, "a", "b")
			if down {
				go q.ShutDownWithDrain()
				synctest.Wait()
			}
			testkit.WantPanic(t, "TakeBatch", func() { _, _ = q.TakeBatch(t.Context(), 3) }, "NumRequeues")
			if st := q.Stats(); st.Queued != 2 || st.Processing != 0 {
				t.Errorf("Stats() = %+v, want two queued keys", st)
			}
			if _, err := q.Take(t.Context()); err != nil {
				t.Error(err)
			}
			testkit.WantPanic(t, "Take", func() { _, _ = q.Take(t.Context()) }, "NumRequeues")
			f.key = ""
			if info, err := q.Take(t.Context()); info.Key != "b" || info.Priority != 5 || err != nil {
				t.Errorf("Take() = %+v, %v", info, err)
			}
			q.DoneBatch("a", "b")
		})
	}
}

// Keys that are not held any more when they are to go back stay as they are, and those that come again come once.
func TestTakeGivesBackWhatIsHeld(t *testing.T) {
	f := &fragile{key: "b"}
	later := pq.AddOpts{After: time.Hour}
	for name, c := range map[string]struct {
		then     func(q *pq.Queue[string])
		priority int // of a, afterwards
		want     string
	}{
		"done":               {func(q *pq.Queue[string]) { q.Done("a") }, 0, "b"},
		"done and added":     {func(q *pq.Queue[string]) { q.Done("a"); q.Add("a") }, 0, "b a"},
		"added":              {func(q *pq.Queue[string]) { q.Add("a") }, 5, "a b"},
		"added, more urgent": {func(q *pq.Queue[string]) { q.AddWithOpts(pq.AddOpts{Priority: 6}, "a") }, 6, "a b"},
		"added for later":    {func(q *pq.Queue[string]) { q.AddWithOpts(later, "a") }, 5, "a b"},
		"removed":            {func(q *pq.Queue[string]) { q.Remove("a") }, 5, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			script(t, pq.Config[string]{RateLimiter: f}, func(t *testing.T, q *pq.Queue[string]) {
				f.then = func() { c.then(q) }
				q.AddWithOpts(pq.AddOpts{Priority: 5}, "a", "b")
				testkit.WantPanic(t, "TakeBatch", func() { _, _ = q.TakeBatch(t.Context(), 3) }, "NumRequeues")
				if p := q.PriorityOf("a"); p != c.priority {
					t.Errorf("PriorityOf() = %d, want %d", p, c.priority)
				}
				if err := q.CheckInvariants(); err != nil {
					t.Error(err)
				}
				drain(t, q, c.want)
				if st := q.Stats(); st.Processing+st.Waiting+st.Again != 0 {
					t.Errorf("Stats() = %+v", st)
				}
			})
		})
	}
}

// The next worker learns why such a key came, and why it was added meanwhile.
func TestTakeGivesCausesBack(t *testing.T) {
	f := &fragile{key: "b"}
	script(t, pq.Config[string]{RateLimiter: f}, func(t *testing.T, q *pq.Queue[string]) {
		f.then = func() {
			time.Sleep(time.Second)
			for i := range 8 {
				q.AddCause("b", workqueue.Cause{Reason: fmt.Sprint("meanwhile ", i)})
			}
		}
		began := time.Now()
		q.AddCause("a", *because("1"))
		q.AddCause("b", *because("2"))
		q.Add("c")
		testkit.WantPanic(t, "TakeBatch", func() { _, _ = q.TakeBatch(t.Context(), 3) }, "NumRequeues")
		hold(t, q, "a b c")
		wantCauses(t, q, "a", "1")
		wantCauses(t, q, "c", "")
		if c := q.Causes("b"); c.Others != 1 || !c.First.Equal(began) || len(c.Last) != 8 || c.Last[0].Reason != "meanwhile 0" {
			t.Errorf("Causes(b) are %+v", c)
		}
		q.Add("a")
		q.DoneBatch("a", "b", "c")
		wantCauses(t, q, "a", "")
		drain(t, q, "a")
	})
}

func TestDoneBatch(t *testing.T) {
	q := pq.New(pq.Config[any]{})
	defer q.ShutDown()
	q.AddAll(pq.AddOpts{Priority: 3}, func(yield func(any) bool) {
		for key := 0; key < 2000 && yield(key); key++ {
		}
	})
	batch, _ := q.GetBatch(t.Context(), 5000)
	if len(batch) != 2000 {
		t.Fatalf("GetBatch() has %d keys, want 2000", len(batch))
	}
	testkit.WantPanic(t, "DoneBatch", func() { q.DoneBatch(0, []int{}) }, "unhashable")
	if st := q.Stats(); st.Processing != 2000 {
		t.Errorf("%d keys are held after a DoneBatch that panicked", st.Processing)
	}
	q.Add(0)
	q.DoneBatch(append(batch, "unknown")...)
	if st := q.Stats(); st.Processing != 0 || st.UnmatchedDones != 1 || st.Queued != 1 {
		t.Errorf("Stats() = %+v", st)
	}
	if err := q.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// A batch takes memory for the keys that it returns, whatever its limit.
func TestGetBatchAllocatesWhatItReturns(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	q := pq.New(pq.Config[int]{})
	for _, n := range []int{1, 500} {
		if a := testing.AllocsPerRun(10, func() {
			for key := range n {
				q.Add(key)
			}
			batch, _ := q.GetBatch(t.Context(), math.MaxInt)
			if len(batch) != n || cap(batch) > n+n/4+8 {
				t.Errorf("a batch of %d keys has a capacity of %d", n, cap(batch))
			}
			for _, key := range batch {
				q.Done(key)
			}
		}); a > 1 {
			t.Errorf("a batch of %d keys costs %v allocations", n, a)
		}
	}
}
