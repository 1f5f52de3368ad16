package workqueue_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"k8s.io/utils/clock"
)

// hookedContext calls a function before each of two methods.
type hookedContext struct {
	context.Context
	onErr, onDone func()
}

func (c *hookedContext) Err() error {
	c.onErr()
	return c.Context.Err()
}

func (c *hookedContext) Done() <-chan struct{} {
	c.onDone()
	return c.Context.Done()
}

// A context's methods run without the lock: they may call the queue, and if they panic nothing has changed.
func TestContextIsForeignCode(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		q.Add("a")
		q.Add("b")
		hold(t, q, "a")
		bad := func() { panic("context") }
		fine := func() { q.Len() }
		for name, ctx := range map[string]context.Context{
			"nil":  nil,
			"Err":  &hookedContext{Context: t.Context(), onErr: bad, onDone: fine},
			"Done": &hookedContext{Context: t.Context(), onErr: fine, onDone: bad},
		} {
			testkit.PanicOf(func() { _, _ = q.GetContext(ctx) })
			testkit.PanicOf(func() { _, _ = q.DoneAndGet(ctx, "a") })
			if !workqueue.FreeLock[string](q) {
				t.Fatalf("%s: the lock is held after a panic", name)
			}
			if st := q.Stats(); st.Processing != 1 || st.Queued != 1 || st.UnmatchedDones != 0 {
				t.Errorf("%s: Stats() = %+v after a panic", name, st)
			}
		}
		ctx := &hookedContext{Context: t.Context(), onErr: fine, onDone: fine}
		if key, err := q.DoneAndGet(ctx, "a"); key != "b" || err != nil {
			t.Errorf("DoneAndGet() = %q, %v with a context that calls the queue", key, err)
		}
		q.Done("b")
		q.ShutDown()
	})
}

// A getter whose context panics at its end takes no wake-up with it.
func TestContextPanicsAtItsEnd(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		for range 20 { // A select between the end and the wake-up chooses at random.
			q := build(options[string]{})
			base, cancel := context.WithCancel(t.Context())
			var ended atomic.Bool
			ctx := &hookedContext{Context: base, onDone: func() {}, onErr: func() {
				if ended.Load() {
					panic("context")
				}
			}}
			go testkit.PanicOf(func() { _, _ = q.GetContext(ctx) })
			synctest.Wait()
			other := startGet[string](q)
			synctest.Wait()
			ended.Store(true)
			cancel()
			q.Add("a")
			if g := other.MustReturn(t, "Get"); g.key != "a" {
				t.Fatalf("Get() = %q, %v", g.key, g.err)
			}
			q.Done("a")
			q.ShutDown()
		}
	})
}

// ShutDown is complete before a logger may panic.
func TestLoggerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := funcr.New(func(string, string) { panic("logger") }, funcr.Options{})
		for name, shutDown := range map[string]func(workqueue.Extended[int]){
			"ShutDown":          func(q workqueue.Extended[int]) { q.ShutDown() },
			"ShutDownWithDrain": func(q workqueue.Extended[int]) { q.ShutDownWithDrain() },
			"ShutDownContext":   func(q workqueue.Extended[int]) { _ = q.ShutDownContext(t.Context()) },
		} {
			q := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{Logger: &logger}).(delayer[int])
			q.AddAfter(1, time.Hour)
			get := startGet[int](q)
			get.MustBlock(t, "Get")
			if v := testkit.PanicOf(func() { shutDown(q) }); v != "logger" {
				t.Errorf("%s panics with %v", name, v)
			}
			if g := get.MustReturn(t, "Get"); g.err == nil || !q.ShuttingDown() {
				t.Errorf("%s: Get() = %v, shutting down: %v", name, g.err, q.ShuttingDown())
			}
		}
	})
}

// A key whose Get is cut short by a metric comes again, also if the custom Queue takes no key any more.
func TestMetricAndQueuePanicInGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		fail := func(string) {
			if broken.Load() {
				panic("out of order")
			}
		}
		r := &testkit.Recorder{On: func(metric string) {
			if metric == "latency" {
				fail(metric)
			}
		}}
		list := &testkit.ListQueue[string]{On: func(method string) {
			if method == "Push" {
				fail(method)
			}
		}}
		q := options[string]{name: "q", provider: r, order: list}.typed()
		q.Add("a")
		broken.Store(true)
		testkit.WantPanic(t, "Get", func() { q.Get() }, "out of order")
		broken.Store(false)
		if st := q.Stats(); st.Queued != 1 || st.Processing != 0 || q.Len() != 1 {
			t.Errorf("Stats() = %+v, Len() = %d", st, q.Len())
		}
		if err := workqueue.CheckInvariants(q); err != nil {
			t.Error(err)
		}
		process(t, q, "a")
		q.ShutDown()
	})
}

// The waiting loop goes on after foreign code has ended its goroutine, with the keys that it had taken already.
func TestGoexitOnTheWaitingLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := testkit.NewFakeClock()
		var armed atomic.Bool
		end := func() {
			if armed.CompareAndSwap(true, false) {
				runtime.Goexit()
			}
		}
		below := &plainQueue[int]{}
		for name, q := range map[string]workqueue.TypedDelayingInterface[int]{
			"clock": workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{
				Clock: &testkit.HookedClock{WithTicker: fake, OnNow: end},
			}),
			"queue": workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{Clock: fake, Queue: below}),
		} {
			for key := range 3 {
				q.AddAfter(key, time.Second)
			}
			q.AddAfter(3, time.Minute)
			synctest.Wait()
			below.beforeAdd = end
			armed.Store(true)
			fake.Step(time.Second)
			synctest.Wait()
			if armed.Load() || q.Len() != 3 {
				t.Errorf("%s: %d keys have come due, want 3; armed: %v", name, q.Len(), armed.Load())
			}
			fake.Step(time.Minute)
			synctest.Wait()
			if q.Len() != 4 {
				t.Errorf("%s: %d keys have come due, want 4", name, q.Len())
			}
			q.ShutDown()
		}
	})
}

// A queue of several layers asks for the global provider once: all of it is watched, or nothing.
func TestGlobalProviderIsReadOnce(t *testing.T) {
	workqueue.WithoutProvider(func() {
		build := []func(){
			func() { workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "q"}) },
			func() {
				workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{Name: "q"})
			},
			func() {
				workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[int]{Name: "q"})
			},
		}
		for layer, build := range build {
			var late reader
			first := &swappingReader{swap: func() { setGlobalProvider(&late) }}
			setGlobalProvider(first)
			build()
			if n := len(first.stats); n != 1 || len(late.stats) != 0 {
				t.Errorf("layer %d: %d parts are watched by the first provider, %d by a later one", layer+1, n, len(late.stats))
			}
		}
	})
}

func setGlobalProvider(p workqueue.MetricsProvider) {
	boxed := any(p)
	observe.Global.Store(&boxed)
}

// swappingReader sets another global provider as soon as it is used.
type swappingReader struct {
	reader
	swap func()
}

func (r *swappingReader) HistogramBounds() []float64 {
	r.swap()
	return nil
}

// blockingTicker is a clock with tickers whose Stop waits.
type blockingTicker struct {
	clock.WithTicker
	release chan struct{}
}

func (c *blockingTicker) NewTicker(d time.Duration) clock.Ticker {
	return tickerToStop{c.WithTicker.NewTicker(d), c.release}
}

type tickerToStop struct {
	clock.Ticker
	release chan struct{}
}

func (t tickerToStop) Stop() {
	<-t.release
	t.Ticker.Stop()
}

// ShutDown waits for the goroutine that refreshes metrics.
func TestShutDownWaitsForTheTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &blockingTicker{testkit.NewFakeClock(), make(chan struct{})}
		q := options[string]{name: "q", provider: &testkit.Recorder{}, clock: c}.typed()
		down := make(chan struct{})
		go func() { q.ShutDown(); close(down) }()
		synctest.Wait()
		select {
		case <-down:
			t.Error("ShutDown returned before the goroutine has ended")
		default:
		}
		close(c.release)
		<-down
	})
}

// dropper is a Queue that takes no keys.
type dropper struct{}

func (dropper) Touch(int) {}
func (dropper) Push(int)  {}
func (dropper) Len() int  { return 0 }
func (dropper) Pop() int  { panic("Pop of an empty Queue") }

// Keys that a custom Queue drops do not make a drain wait. (client-go's drain does not wait for them either.)
func TestQueueThatDropsKeysCanBeDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := options[int]{order: dropper{}}.typed()
		q.Add(1)
		q.ShutDownWithDrain()
		if st := q.Stats(); st.Queued != 0 || !st.ShuttingDown {
			t.Errorf("Stats() = %+v", st)
		}
	})
}

// endingQueue is a queue whose Get ends its goroutine once.
type endingQueue struct {
	plainQueue[int]
	armed atomic.Bool
}

func (q *endingQueue) Get() (int, bool) {
	if q.armed.CompareAndSwap(true, false) {
		runtime.Goexit()
	}
	return q.plainQueue.Get()
}

// A getter waits for a key, although the Get of the queue below has ended the goroutine that fetches one.
func TestGoexitInForeignGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &endingQueue{}
		below.armed.Store(true)
		q := workqueue.Extend[int](below)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		below.Add(1)
		if key, err := q.GetContext(ctx); key != 1 || err != nil {
			t.Errorf("GetContext() = %d, %v", key, err)
		}
		q.Done(1)
		q.ShutDown()
	})
}
