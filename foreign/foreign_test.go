package foreign_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/foreign"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

// plain has client-go's methods and no others.
type plain struct {
	workqueue.TypedRateLimitingInterface[string]
}

func newPlain(limiter workqueue.TypedRateLimiter[string]) plain {
	return plain{workqueue.NewTypedRateLimitingQueue(limiter)}
}

// dropping hands out nothing after ShutDown, as controller-runtime's queue, and keeps what it has in Len. It
// also has priorities.
type dropping struct{ plain }

// A second ShutDown panics, as controller-runtime's does.
func (q dropping) ShutDown() {
	if q.ShuttingDown() {
		panic("a second ShutDown")
	}
	q.plain.ShutDown()
}

func (q dropping) Get() (string, bool) {
	key, _, shutdown := q.GetWithPriority()
	return key, shutdown
}

func (q dropping) GetWithPriority() (key string, priority int, shutdown bool) {
	if key, shutdown = q.plain.Get(); q.ShuttingDown() {
		return "", 0, true
	}
	return key, 7, shutdown
}

// asksLater asks its limiter when a key comes due, as controller-runtime's queue does: NumRequeues has not
// changed when AddRateLimited returns.
type asksLater struct{ plain }

func (q asksLater) AddRateLimited(key string) {
	time.AfterFunc(time.Millisecond, func() { q.plain.AddRateLimited(key) })
}

func get(t *testing.T, q workqueue.TypedInterface[string], want string) {
	t.Helper()
	if key, shutdown := q.Get(); key != want || shutdown {
		t.Fatalf("Get() = %q, %v, want %q", key, shutdown, want)
	}
}

func TestConformance(t *testing.T) {
	workqueuetest.Suite{
		New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
			inner := workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter,
				workqueue.TypedRateLimitingQueueConfig[string]{
					DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
						Clock: c.Clock, Queue: struct {
							workqueue.TypedInterface[string]
						}{workqueue.NewTyped[string]()},
					}),
				})
			q := foreign.RateLimiting(inner)
			workqueuetest.Wraps(t, q, inner)
			return q
		},
		NoMetrics:    true,
		PartialStats: true,
		// Client-go's methods do not say what these cases ask for.
		Known: map[string]string{
			"AddedAt":           "an add may go past the wrapper, so the first one is unknown",
			"AddedAtOfDelays":   "nothing says when a key came due",
			"WorkOfAKeyOnHold":  "the queue below measures until its Done",
			"SnapshotsOfKeys":   "the queue below cannot list its queued and waiting keys",
			"Fail":              "AddRateLimited does not return the delay, so Retry has none",
			"FailWithinDelay":   "without the delay each failing call counts",
			"FailGivesUp":       "Retry has no delay; a retry that waits below cannot be taken back",
			"RetryDueWhileHeld": "the same, also when it has come due",
			"ModelWithFailures": "the same",
			"FailAfterShutDown": "Retry has no delay; MaxRetries of foreign queues has tests below",
			"NextOfAFailingKey": "Failures.Left is unknown without the delay",
			"FailingKeys":       "Retry has no delay; the counts have tests below",
		},
		Lacks: map[string]string{workqueuetest.AnyKeys: "it is built for strings"},
		Skip: map[string]string{
			"Linearizable": "the moment at which the Get below takes a key is unknown: " +
				"an add at that moment may bring the key once more",
			"LinearizableWithUnmatchedDone": "the same",
		},
	}.Run(t)
}

// A key that was fetched for a getter whose context has ended is queued, so an add of it changes nothing.
func TestAddOfAFetchedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := newPlain(nil)
		q := foreign.RateLimiting(below)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.GetContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("GetContext returned %v", err)
		}
		q.AddCause("a", workqueue.Cause{Reason: "once"})
		synctest.Wait() // The goroutine that waits below has got the key.
		q.AddCause("a", workqueue.Cause{Reason: "again"})
		get(t, q, "a")
		if c := q.Causes("a"); len(c.Last) != 2 {
			t.Errorf("the key has causes %+v, want both adds", c)
		}
		q.Done("a")
		if n := q.Len(); n != 0 {
			t.Errorf("%d keys are queued after Done, want none", n)
		}
		q.ShutDown()
	})
}

// MaxRetries gives a key up after as many calls, although the queue's limiter is asked later.
func TestMaxRetriesOverAQueueThatAsksLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := foreign.RateLimiting(asksLater{newPlain(nil)})
		defer q.ShutDown()
		q.Add("a")
		for attempt := 1; ; attempt++ {
			h, err := q.Next(t.Context())
			if err != nil || h.Failures.Count != attempt-1 {
				t.Fatalf("attempt %d: %+v, %v", attempt, h, err)
			}
			r, _ := q.Fail(t.Context(), "a", workqueue.Failure{MaxRetries: 3, Err: errors.New("broken")})
			q.Done("a")
			if r.Attempt != attempt || r.GivenUp != (attempt == 4) {
				t.Fatalf("%+v at attempt %d", r, attempt)
			}
			if r.GivenUp {
				break
			}
			if f := q.Failures("a"); f.Count != attempt || f.Err != "broken" {
				t.Errorf("%+v after attempt %d", f, attempt)
			}
		}
		if f := q.Failures("a"); f.Count != 0 || q.NumRequeues("a") != 0 {
			t.Errorf("%+v, %d requeues of a key that was given up", f, q.NumRequeues("a"))
		}
	})
}

// With AtLeast the wrapper knows how long the key waits: what fails before is the same failure.
func TestFailAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := foreign.RateLimiting(newPlain(nil))
		defer q.ShutDown()
		for _, want := range []workqueue.Retry{
			{Attempt: 1, Delay: time.Minute}, {Attempt: 1, Delay: time.Minute, Same: true},
		} {
			q.Add("a")
			get(t, q, "a")
			if r, _ := q.Fail(t.Context(), "a", workqueue.Failure{AtLeast: time.Minute}); r != want {
				t.Errorf("%+v, want %+v", r, want)
			}
			q.Done("a")
		}
		if s := q.Snapshot(9); len(s.Failing) != 1 || s.Failing[0].Requeues != 1 {
			t.Errorf("Snapshot has the failing keys %+v", s.Failing)
		}
	})
}

// Keys that the queue drops when it is shut down are still handed out, and a drain waits for them and no longer:
// also for a key that was added while a worker held it.
func TestQueueThatDropsAtShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := testkit.Goroutines()
		q := foreign.RateLimiting(dropping{newPlain(nil)})
		for _, key := range []string{"a", "b", "c"} {
			q.Add(key)
		}
		get(t, q, "a")
		q.Add("a")
		drain := testkit.Start(func() error { return q.ShutDownContext(t.Context()) })
		drain.MustBlock(t, "ShutDownContext")
		var keys []string
		for range 2 {
			key, err := q.GetContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key)
			q.Done(key)
		}
		q.Done("a")
		get(t, q, "a")
		drain.MustBlock(t, "ShutDownContext, while a is held")
		q.Done("a")
		if err := drain.MustReturn(t, "ShutDownContext"); err != nil {
			t.Error(err)
		}
		if slices.Sort(keys); !slices.Equal(keys, []string{"b", "c"}) {
			t.Errorf("got %q", keys)
		}
		if _, err := q.GetContext(t.Context()); err != workqueue.ErrShutDown || q.Len() != 0 {
			t.Errorf("%v, %d keys are left", err, q.Len())
		}
		base.WantMore(t, "after the drain", 0)
	})
}

// The same keys are returned by DropQueued, counted, and not handed out.
func TestDropQueuedOfAQueueThatDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := foreign.RateLimiting(dropping{newPlain(nil)})
		q.Add("a")
		get(t, q, "a")
		q.Add("a")
		q.Add("b")
		if keys := q.DropQueued(); keys != nil {
			t.Errorf("before the shutdown DropQueued() = %q", keys)
		}
		q.ShutDown()
		q.ShutDown()
		if keys := q.DropQueued(); !slices.Equal(keys, []string{"b"}) {
			t.Errorf("DropQueued() = %q", keys)
		}
		q.Done("a")
		if _, shutdown := q.Get(); !shutdown || q.Stats().Dropped != 2 {
			t.Errorf("shutdown: %v, %+v", shutdown, q.Stats())
		}
	})
}

// A Done beside DropQueued leaves nothing queued: what one of them does not see, the other drops.
func TestDropQueuedBesideDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 2000 {
			q := foreign.RateLimiting(newPlain(nil))
			q.Add("a")
			get(t, q, "a")
			q.Add("a")
			q.ShutDown()
			go q.Done("a")
			q.DropQueued()
			_, shutdown := q.Get()
			synctest.Wait()
			if st := q.Stats(); !shutdown || st.Queued != 0 || st.Dropped != 1 {
				t.Fatalf("shutdown: %v, %+v", shutdown, st)
			}
		}
	})
}

// A drain without workers returns after 10 s.
func TestDrainWithoutWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, began := foreign.RateLimiting(newPlain(nil)), time.Now()
		q.Add("a")
		q.Add("b")
		q.ShutDownWithDrain()
		if d := time.Since(began); d < 10*time.Second || d > 11*time.Second || q.Stats().Dropped != 2 {
			t.Errorf("after %v, %+v", d, q.Stats())
		}
	})
}

// Next has the queue's priority, failures and causes.
func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := foreign.RateLimiting(dropping{newPlain(nil)})
		defer q.ShutDown()
		q.AddCause("a", workqueue.Cause{Reason: "why"})
		h, err := q.Next(t.Context())
		if h != (workqueue.HandOut[string]{Key: "a", Priority: 7, HasCauses: true}) || err != nil {
			t.Errorf("Next() = %+v, %v", h, err)
		}
		if c := q.Causes("a"); c.String() != "why" || q.Stats().Processing != 1 {
			t.Errorf("causes %v, %+v", c, q.Stats())
		}
		q.Done("a")
		if c := q.Causes("a"); !c.IsZero() {
			t.Errorf("causes %v after Done", c)
		}
	})
}

// However many callers gave up, one goroutine waits in their place, and its key goes to whoever comes next, also
// after a shutdown.
func TestCallersThatGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := testkit.Goroutines()
		q := foreign.RateLimiting(newPlain(nil))
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := q.GetContext(ctx); err != context.DeadlineExceeded {
				t.Fatal(err)
			}
			cancel()
		}
		base.WantMore(t, "after 20 calls", 1)
		q.Add("a")
		q.Add("b")
		synctest.Wait()
		if q.Len() != 2 || q.Stats().Processing != 0 {
			t.Errorf("%+v", q.Stats())
		}
		q.ShutDown()
		get(t, q, "a")
		get(t, q, "b")
		q.Done("a")
		q.Done("b")
		if _, shutdown := q.Get(); !shutdown {
			t.Error("a key after shutdown")
		}
		base.WantMore(t, "after shutdown", 0)
	})
}

// lateWorker is a queue that runs come after its next Done.
type lateWorker struct {
	plain
	come func()
}

func (q *lateWorker) Done(key string) {
	q.plain.Done(key)
	if come := q.come; come != nil {
		q.come = nil
		come()
	}
}

// A drain waits for a Done that takes long: it may queue the key again.
func TestDrainDuringALongDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &lateWorker{plain: newPlain(nil), come: func() { time.Sleep(time.Minute) }}
		q, began := foreign.RateLimiting(below), time.Now()
		q.Add("a")
		get(t, q, "a")
		go q.Done("a")
		q.ShutDownWithDrain()
		if d := time.Since(began); d != time.Minute {
			t.Errorf("the drain took %v, want a minute", d)
		}
	})
}

// A drain that drops keys because nobody took one for 10 s stops when a worker comes after all.
func TestDrainWithALateWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &lateWorker{plain: newPlain(nil)}
		q := foreign.RateLimiting(below)
		below.come = func() { get(t, q, "b") }
		for _, key := range []string{"a", "b", "c"} {
			q.Add(key)
		}
		drain := testkit.Start(func() bool { q.ShutDownWithDrain(); return true })
		time.Sleep(11 * time.Second)
		drain.MustBlock(t, "ShutDownWithDrain")
		if st := q.Stats(); st.Dropped != 1 || st.Queued != 1 {
			t.Errorf("Stats() = %+v, want one key dropped and one queued", st)
		}
		get(t, q, "c")
		q.Done("b")
		q.Done("c")
		drain.MustReturn(t, "ShutDownWithDrain")
	})
}
