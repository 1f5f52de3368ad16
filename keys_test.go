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
)

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
