package workqueue_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// everyForeign runs f for each of our layers on top of a queue that is not ours.
func everyForeign(t *testing.T, f func(t *testing.T, q delayer[string],
	below workqueue.TypedInterface[string])) {
	t.Helper()
	over := func(below workqueue.TypedInterface[string]) workqueue.TypedDelayingInterface[string] {
		return workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Queue: below})
	}
	limiting := func(below workqueue.TypedDelayingInterface[string]) workqueue.TypedDelayingInterface[string] {
		return workqueue.NewTypedRateLimitingQueueWithConfig(nil,
			workqueue.TypedRateLimitingQueueConfig[string]{DelayingQueue: below})
	}
	for name, build := range map[string]func(*plainQueue[string]) workqueue.TypedDelayingInterface[string]{
		"delaying": func(below *plainQueue[string]) workqueue.TypedDelayingInterface[string] { return over(below) },
		"rate-limiting": func(below *plainQueue[string]) workqueue.TypedDelayingInterface[string] {
			return limiting(plainDelayingQueue[string]{below})
		},
		"rate-limiting,delaying": func(below *plainQueue[string]) workqueue.TypedDelayingInterface[string] {
			return limiting(over(below))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				below := newPlain[string]()
				f(t, endAfterFailure(t, build(below).(delayer[string])), below)
			})
		})
	}
}

func TestForeignQueue(t *testing.T) {
	everyForeign(t, func(t *testing.T, q delayer[string], below workqueue.TypedInterface[string]) {
		base := testkit.Goroutines()
		q.Add("a")
		q.AddAfter("c", time.Second)
		q.AddAfter("b", 0)
		synctest.Wait()
		if st := q.Stats(); st.Queued != 2 {
			t.Errorf("Stats() = %+v, want 2 queued", st)
		}
		process(t, below, "a", "b")
		time.Sleep(time.Second)
		synctest.Wait()
		process(t, q, "c")
		base.WantMore(t, "with nothing waiting", 0)
		q.AddAfter("d", time.Hour)
		q.ShutDown()
		if !below.ShuttingDown() {
			t.Error("the queue below is not shut down")
		}
		wantShutDown(t, q)
		time.Sleep(time.Hour) // The foreign delaying queue has a timer of its own.
		base.WantMore(t, "after shutdown", 0)
	})
}

func TestForeignShutDownContextGivesUp(t *testing.T) {
	everyForeign(t, func(t *testing.T, q delayer[string], below workqueue.TypedInterface[string]) {
		base := testkit.Goroutines()
		q.Add("a")
		hold(t, q, "a")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.ShutDownContext(gone); err != context.Canceled || !q.ShuttingDown() {
			t.Errorf("ShutDownContext() = %v of a context that is done, shutting down: %v", err, q.ShuttingDown())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		for range 2 {
			if err := q.ShutDownContext(ctx); err != context.DeadlineExceeded || time.Since(began) != time.Minute {
				t.Errorf("ShutDownContext() = %v after %v", err, time.Since(began))
			}
		}
		if !q.ShuttingDown() {
			t.Error("ShuttingDown() = false after a drain that gave up")
		}
		q.Done("a")
		if err := q.ShutDownContext(t.Context()); err != nil {
			t.Errorf("ShutDownContext() = %v", err)
		}
		base.WantMore(t, "after the drain", 0)
	})
}

func TestForeignGetContext(t *testing.T) {
	everyForeign(t, func(t *testing.T, q delayer[string], below workqueue.TypedInterface[string]) {
		base := testkit.Goroutines()
		ctx, cancel := context.WithCancel(t.Context())
		get := startGetContext(ctx, q)
		get.MustBlock(t, "GetContext of an empty queue")
		cancel()
		if g := get.MustReturn(t, "GetContext"); g.err != context.Canceled {
			t.Errorf("GetContext() = %v, want Canceled", g)
		}
		if key, err := q.GetContext(ctx); key != "" || err != context.Canceled {
			t.Errorf("GetContext() of a done context = %v, %v, want Canceled", key, err)
		}
		// The key arrives while no caller waits. The next caller gets it, by whatever method.
		q.Add("a")
		synctest.Wait()
		if g := startGetContext(t.Context(), q).MustReturn(t, "GetContext"); g.key != "a" || g.err != nil {
			t.Errorf("GetContext() = %v, want a", g)
		}
		q.Done("a")
		base.WantMore(t, "when the only call has returned", 0)

		ctx, cancel = context.WithCancel(t.Context())
		get = startGetContext(ctx, q)
		get.MustBlock(t, "GetContext of an empty queue")
		cancel()
		get.MustReturn(t, "GetContext")
		q.Add("b")
		synctest.Wait()
		if g := startGet[string](q).MustReturn(t, "Get"); g.key != "b" || g.err != nil {
			t.Errorf("Get() = %v, want b", g)
		}
		q.Done("b")
		q.ShutDown()
		wantShutDown(t, q)
		base.WantMore(t, "after shutdown", 0)
	})
}

// panickyGet is a queue whose first Get panics.
type panickyGet struct {
	workqueue.TypedRateLimitingInterface[string]
	calls atomic.Int32
}

func (q *panickyGet) Get() (string, bool) {
	if q.calls.Add(1) == 1 {
		panic("foreign")
	}
	return q.TypedRateLimitingInterface.Get()
}

// A panic of the queue's Get comes out of one GetContext, and does not end the process on the fetcher's
// goroutine. The queue stays whole.
func TestForeignGetThatPanics(t *testing.T) {
	q := workqueue.Extend[string](
		&panickyGet{TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueue[string](nil)})
	q.Add("a")
	func() {
		defer func() {
			if v := recover(); v != "foreign" {
				t.Errorf("recovered %v", v)
			}
		}()
		key, err := q.GetContext(t.Context())
		t.Errorf("GetContext() = %q, %v", key, err)
	}()
	if key, err := q.GetContext(t.Context()); key != "a" || err != nil {
		t.Errorf("GetContext() = %q, %v after the panic", key, err)
	}
	q.Done("a")
	q.ShutDown()
	wantShutDown(t, q)
}

// However many callers gave up, one goroutine waits in their place.
func TestForeignGetContextHasOneFetcher(t *testing.T) {
	everyForeign(t, func(t *testing.T, q delayer[string], below workqueue.TypedInterface[string]) {
		base := testkit.Goroutines()
		for range 20 {
			var gets []*testkit.Call[got[string]]
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			for range 3 {
				gets = append(gets, startGetContext(ctx, q))
			}
			time.Sleep(time.Second)
			for _, get := range gets {
				get.MustReturn(t, "GetContext")
			}
			cancel()
		}
		base.WantMore(t, "after 60 calls, three at once", 1)
		q.ShutDown()
		base.WantMore(t, "after shutdown", 0)
		wantShutDown(t, q)
	})
}

// Keys that arrived for callers that gave up are still handed out after shutdown.
func TestForeignGetAfterShutDown(t *testing.T) {
	everyForeign(t, func(t *testing.T, q delayer[string], below workqueue.TypedInterface[string]) {
		base := testkit.Goroutines()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			startGetContext(ctx, q)
		}
		time.Sleep(2 * time.Second)
		for _, key := range []string{"a", "b", "c", "d"} {
			q.Add(key)
		}
		synctest.Wait()
		q.ShutDown()
		synctest.Wait()
		var keys []string
		for n := range 4 {
			var key string
			if n%2 == 0 {
				key, _ = q.Get()
			} else {
				key, _ = q.GetContext(t.Context())
			}
			keys = append(keys, key)
			q.Done(key)
		}
		if slices.Sort(keys); !slices.Equal(keys, []string{"a", "b", "c", "d"}) {
			t.Errorf("got keys %q", keys)
		}
		wantShutDown(t, q)
		base.WantMore(t, "after shutdown", 0)
	})
}

// latestFirst is a queue that hands a key to the getter that came last.
type latestFirst struct {
	workqueue.TypedInterface[string]
	getters []chan string
}

func (q *latestFirst) Get() (string, bool) {
	if q.ShuttingDown() {
		return "", true
	}
	c := make(chan string)
	q.getters = append(q.getters, c)
	key, ok := <-c
	return key, !ok
}

func (q *latestFirst) Add(key string) { q.getters[len(q.getters)-1] <- key }

func (q *latestFirst) ShutDown() {
	q.TypedInterface.ShutDown()
	close(q.getters[0])
}

// A plain Get that waits below does not see the key that another goroutine fetched for a caller that gave up.
// When it sees the shutdown, it must look for such a key first.
func TestForeignGetThatSeesTheShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.Extend[string](&latestFirst{TypedInterface: newPlain[string]()})
		plain := startGet[string](q)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		gone := startGetContext(ctx, q)
		synctest.Wait()
		cancel()
		gone.MustReturn(t, "GetContext")
		q.Add("a")
		plain.MustBlock(t, "Get, while the key was fetched for another caller")
		q.ShutDown()
		if g := plain.MustReturn(t, "Get"); g.key != "a" || g.err != nil {
			t.Fatalf("Get() = %v, want a", g)
		}
		wantShutDown(t, q)
	})
}

// Without GetContext, Get is that of the queue below, without a goroutine.
func TestGetOfAnotherQueueStartsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[string]{Queue: newPlain[string]()})
		base := testkit.Goroutines()
		get := startGet[string](q)
		get.MustBlock(t, "Get of an empty queue")
		base.WantMore(t, "while one Get waits", 1)
		q.ShutDown()
		if got := get.MustReturn(t, "Get after shutdown"); got.err != workqueue.ErrShutDown {
			t.Errorf("Get() = %+v", got)
		}
	})
}

// A key that arrives when GetContext has given up is still queued: for Len, Stats, and whoever comes next.
// Its goroutine has ended.
func TestForeignKeyAfterGetContextGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := testkit.Goroutines()
		q := workqueue.Extend[string](newPlain[string]())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.GetContext(ctx); err != context.DeadlineExceeded {
			t.Fatal(err)
		}
		q.Add("a")
		synctest.Wait()
		if st := q.Stats(); st.Queued != 1 || st.Processing != 0 || q.Len() != 1 {
			t.Errorf("Stats() = %+v, Len() = %d", st, q.Len())
		}
		drained := make(chan error)
		go func() { drained <- q.ShutDownContext(t.Context()) }()
		synctest.Wait()
		hold(t, q, "a")
		if st := q.Stats(); st.Queued != 0 || st.Processing != 1 || !st.ShuttingDown {
			t.Errorf("Stats() = %+v of a held key", st)
		}
		q.Done("a")
		if err := <-drained; err != nil {
			t.Errorf("ShutDownContext() = %v", err)
		}
		base.WantMore(t, "after shutdown", 0)
		wantShutDown(t, q)
	})
}

// lateDown is a queue that reports ShuttingDown half a second late.
type lateDown struct {
	workqueue.TypedInterface[string]
	at    time.Time
	asked int
}

func (q *lateDown) ShutDown() { q.at = time.Now(); q.TypedInterface.ShutDown() }

func (q *lateDown) ShuttingDown() bool {
	q.asked++
	return !q.at.IsZero() && time.Since(q.at) > 500*time.Millisecond
}

// ShutDownContext gives up in time, whatever the queue below reports, and leaves no goroutine.
func TestForeignShutDownContextInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := testkit.Goroutines()
		below := &lateDown{TypedInterface: newPlain[string]()}
		q := workqueue.Extend[string](below)
		q.Add("a")
		for range 3 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := q.ShutDownContext(ctx); err != context.DeadlineExceeded ||
				time.Since(began) != 10*time.Millisecond {
				t.Errorf("ShutDownContext() = %v after %v", err, time.Since(began))
			}
			if !q.ShuttingDown() || below.asked > 5 {
				t.Errorf("shutting down: %v, the queue below was asked %d times", q.ShuttingDown(), below.asked)
			}
		}
		synctest.Wait()
		base.WantMore(t, "after the drains", 0)
	})
}

// busyLen is a queue in which something happens while its length is read.
type busyLen struct {
	workqueue.TypedInterface[string]
	meanwhile func()
}

func (q *busyLen) Len() int {
	if f := q.meanwhile; f != nil {
		q.meanwhile = nil
		f()
	}
	return q.TypedInterface.Len()
}

// A worker that takes the last key while a Done reads the length keeps the drain waiting.
func TestForeignDrainAwaitsLastKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &busyLen{TypedInterface: newPlain[string]()}
		q := workqueue.Extend[string](below)
		q.Add("a")
		q.Add("b")
		hold(t, q, "a")
		drain := testkit.Start(func() error { return q.ShutDownContext(t.Context()) })
		drain.MustBlock(t, "ShutDownContext, while a is held")
		below.meanwhile = func() { hold(t, q, "b") }
		q.Done("a")
		drain.MustBlock(t, "ShutDownContext, while b is held")
		q.Done("b")
		if err := drain.MustReturn(t, "ShutDownContext"); err != nil {
			t.Error(err)
		}
	})
}

// AddAfter without a delay interrupts the worker, over any delaying queue.
func TestForeignAddAfterNothingInterrupts(t *testing.T) {
	everyForeign(t, func(t *testing.T, q delayer[string], _ workqueue.TypedInterface[string]) {
		q.Add("a")
		hold(t, q, "a")
		again := q.AddedAgain("a")
		q.AddAfter("a", 0)
		select {
		case <-again:
		default:
			t.Error("the worker does not notice")
		}
		q.Done("a")
	})
}
