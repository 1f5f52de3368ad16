package workqueue_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

func TestStatsOfUnnamedQueue(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		if st := q.Stats(); st != (workqueue.Stats{}) {
			t.Errorf("Stats() of a new queue = %+v", st)
		}
		q.Add("a")
		q.Add("b")
		hold(t, q, "a")
		time.Sleep(time.Hour)
		want := workqueue.Stats{Queued: 1, Processing: 1, Adds: 2}
		if st := q.Stats(); st != want {
			t.Errorf("Stats() = %+v, want %+v", st, want)
		}
	})
}

// The constructors without Typed in their names, and those without config, build the same queues.
func TestQueueConstructors(t *testing.T) {
	for name, q := range map[string]workqueue.TypedInterface[any]{
		"New":                workqueue.New(),
		"NewNamed":           workqueue.NewNamed("name"),
		"NewWithConfig":      workqueue.NewWithConfig(workqueue.QueueConfig{}),
		"NewTyped":           workqueue.NewTyped[any](),
		"NewTypedWithConfig": workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[any]{}),
	} {
		t.Run(name, func(t *testing.T) {
			defer q.ShutDown()
			q.Add(1)
			q.Add("a")
			q.Add(1)
			q.Add(struct{ int }{1})
			process[any](t, q, 1, "a", struct{ int }{1})
			wantName := ""
			if name == "NewNamed" {
				wantName = "name"
			}
			if got := q.(workqueue.Extended[any]).Stats().Name; got != wantName {
				t.Errorf("Stats().Name = %q, want %q", got, wantName)
			}
		})
	}
}

type badStruct struct{ field any }

// badKeys are keys that no queue can keep, and the type that the panic must name.
var badKeys = []struct {
	key      any
	typeName string
	hashable bool
}{
	{[]int{1}, "[]int", false},
	{map[string]int{}, "map[string]int", false},
	{func() {}, "func()", false},
	{badStruct{[]string{}}, "[]string", false},
	{math.NaN(), "float64", true},
	{float32(math.NaN()), "float32", true},
	{complex(0, math.NaN()), "complex128", true},
	{badStruct{math.NaN()}, "workqueue_test.badStruct", true},
}

func TestBadKeys(t *testing.T) {
	type limiting = workqueue.TypedRateLimitingInterface[any]
	methods := map[string]func(q workqueue.Extended[any], key any){
		"Add":          func(q workqueue.Extended[any], key any) { q.Add(key) },
		"Done":         func(q workqueue.Extended[any], key any) { q.Done(key) },
		"AddAfter(0)":  func(q workqueue.Extended[any], key any) { q.(delayer[any]).AddAfter(key, 0) },
		"AddAfter(1s)": func(q workqueue.Extended[any], key any) { q.(delayer[any]).AddAfter(key, time.Second) },
		"AddRateLimited": func(q workqueue.Extended[any], key any) {
			q.(limiting).AddRateLimited(key)
		},
		"Forget":      func(q workqueue.Extended[any], key any) { q.(limiting).Forget(key) },
		"NumRequeues": func(q workqueue.Extended[any], key any) { q.(limiting).NumRequeues(key) },
	}
	for name, method := range methods {
		t.Run(name, func(t *testing.T) {
			everyLayer(t, func(t *testing.T, build builder[any]) {
				q := build(options[any]{})
				if _, ok := q.(delayer[any]); !ok && strings.HasPrefix(name, "AddAfter") {
					return
				}
				if _, ok := q.(limiting); !ok && strings.Contains("AddRateLimited Forget NumRequeues", name) {
					return
				}
				base := testkit.Goroutines()
				q.Add("held")
				hold[any](t, q, "held")
				q.Add("queued")
				for _, bad := range badKeys {
					what := fmt.Sprintf("%s of a %T", name, bad.key)
					switch v := testkit.WantPanic(t, what, func() { method(q, bad.key) }).(type) {
					case nil:
					case runtime.Error:
						if !strings.Contains(v.Error(), bad.typeName) || bad.hashable {
							t.Errorf("%s: panics with %q", what, v)
						}
					case string:
						if !strings.HasPrefix(v, "workqueue: ") || !strings.Contains(v, bad.typeName) || !bad.hashable {
							t.Errorf("%s: panics with %q", what, v)
						}
					default:
						t.Errorf("%s: panics with %v", what, v)
					}
				}
				// The queue is as it was.
				if st := q.Stats(); st.Queued != 1 || st.Processing != 1 || st.Waiting != 0 || st.Adds != 2 {
					t.Errorf("Stats() = %+v, want 1 queued, 1 processing, 2 adds", st)
				}
				if err := workqueue.CheckInvariants[any](q); err != nil {
					t.Error(err)
				}
				base.WantMore(t, "after the panics", 0)
				q.Done("held")
				time.Sleep(time.Minute)
				synctest.Wait()
				process[any](t, q, "queued")
			})
		})
	}
}

// The same with key types that are no interfaces, which have no unhashable values but NaN.
func TestNaN(t *testing.T) {
	everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[float64]) {
		q := build(options[float64]{})
		for range 100 { // many, so that nothing of them must pile up
			testkit.WantPanic(t, "Add", func() { q.Add(math.NaN()) })
			testkit.WantPanic(t, "AddAfter", func() { q.AddAfter(math.NaN(), time.Second) })
		}
		if st := q.Stats(); st.Queued+st.Waiting != 0 {
			t.Errorf("Stats() = %+v", st)
		}
		// Zeros of both signs are equal, and so one key.
		q.Add(0)
		q.Add(math.Copysign(0, -1))
		q.Add(math.Inf(1))
		process(t, q, 0, math.Inf(1))
	})
}

// nosyKey is not equal to itself, and looks at its queue when it is printed.
type nosyKey struct {
	x float64
	q *workqueue.Typed[nosyKey]
}

func (k nosyKey) String() string { return fmt.Sprint(k.q.Len()) }

func TestPanicDoesNotPrintTheKey(t *testing.T) {
	q := workqueue.NewTyped[nosyKey]()
	testkit.WantPanic(t, "Add", func() { q.Add(nosyKey{math.NaN(), q}) })
	q.Add(nosyKey{1, q})
	if q.Len() != 1 {
		t.Errorf("Len() = %d after a panic", q.Len())
	}
}

// optionsOf makes options of what the conformance suite wants of a layer.
func optionsOf[T comparable](layer string, c workqueuetest.Config[T]) options[T] {
	o := options[T]{name: c.Name, provider: c.MetricsProvider, clock: c.Clock, limiter: c.RateLimiter}
	if strings.HasSuffix(layer, ",custom") {
		// Our listQueue needs quadratic time, which is too much for a burst of keys.
		o.order = workqueue.DefaultQueue[T]()
	}
	return o
}

// Every queue of this package keeps the whole contract, at every layer.
func TestConformance(t *testing.T) {
	forAny := make(map[string]builder[any])
	for _, l := range layers[any]() {
		forAny[l.name] = l.build
	}
	for _, l := range layers[string]() {
		t.Run(l.name, func(t *testing.T) {
			workqueuetest.Suite{
				New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
					return l.build(optionsOf(l.name, c))
				},
				NewAny: func(c workqueuetest.Config[any]) workqueue.TypedInterface[any] {
					return forAny[l.name](optionsOf(l.name, c))
				},
				Check:  workqueue.CheckInvariants[string],
				Strict: l.name == "rate-limiting",
			}.Run(t)
		})
	}
}

// A delaying queue on top of one that is not ours keeps what its lower layer does not decide.
func TestConformanceOverForeignQueue(t *testing.T) {
	workqueuetest.Suite{
		New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
			return workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter, workqueue.TypedRateLimitingQueueConfig[string]{
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
					Clock: c.Clock, Queue: &plainQueue[string]{},
				}),
			})
		},
		NoMetrics:    true,
		PartialStats: true,
		Known: map[string]string{
			"MemoryIsGivenBack": "the queue below keeps its maps",
		},
		Skip: map[string]string{
			"ShutDownContextGivesUp":        "a drain of an empty queue whose context is done already may give up before it has looked",
			"Linearizable":                  "a key that was fetched for a getter that gave up has left the queue below, and no worker holds it",
			"LinearizableWithUnmatchedDone": "the same",
			"StressCancel":                  "a Get that waits below does not see the key that was fetched for a getter that gave up; the next one does",
		},
	}.Run(t)
}
