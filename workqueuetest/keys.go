package workqueuetest

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// keyCases are about keys that are not strings.
func keyCases() []testCase {
	return []testCase{
		bubbled("UnhashableKey", "With an unhashable key every method panics with the name of the type, and the queue is unharmed.", tryUnhashableKey),
		bubbled("KeyUnequalToItself", "With a key that is not equal to itself every method panics with the name of the type, and the queue is unharmed.", tryKeyUnequalToItself),
		bubbled("KeysOfManyTypes", "Keys of an interface type are equal if their types and values are.", tryKeysOfManyTypes),
	}
}

func (r *run) newAny() workqueue.TypedInterface[any] {
	if r.suite.NewAny == nil {
		r.lacks("NewAny")
	}
	return r.suite.NewAny(Config[any]{Clock: r.clock})
}

func (r *run) anyQueue() workqueue.TypedInterface[any] {
	q := r.newAny()
	r.atEnd(q.ShutDown)
	return q
}

type structOfAny struct{ field any }

func tryUnhashableKey(r *run) {
	r.tryBadKeys(map[string]any{
		"[]int": []int{1}, "map[string]int": map[string]int{}, "func()": func() {}, "[]string": structOfAny{[]string{}},
	}, func(v any) bool {
		_, ok := v.(runtime.Error)
		return ok
	})
}

func tryKeyUnequalToItself(r *run) {
	r.tryBadKeys(map[string]any{
		"float64": math.NaN(), "float32": float32(math.NaN()), "complex128": complex(0, math.NaN()),
		"workqueuetest.structOfAny": structOfAny{math.NaN()},
	}, func(any) bool { return true })
}

// tryBadKeys calls each method with each bad key. The panic must name the type, which is the key's index in bad.
func (r *run) tryBadKeys(bad map[string]any, rightKind func(any) bool) {
	type queue = workqueue.TypedInterface[any]
	methods := map[string]func(q queue, key any){
		"Add":  func(q queue, key any) { q.Add(key) },
		"Done": func(q queue, key any) { q.Done(key) },
	}
	if _, ok := r.anyQueue().(workqueue.TypedDelayingInterface[any]); ok {
		for name, d := range map[string]time.Duration{"AddAfter(0)": 0, "AddAfter(1s)": time.Second} {
			methods[name] = func(q queue, key any) { q.(workqueue.TypedDelayingInterface[any]).AddAfter(key, d) }
		}
	}
	if _, ok := r.anyQueue().(workqueue.TypedRateLimitingInterface[any]); ok {
		methods["AddRateLimited"] = func(q queue, key any) { q.(workqueue.TypedRateLimitingInterface[any]).AddRateLimited(key) }
	}
	for name, method := range methods {
		q := r.anyQueue()
		q.Add("held")
		if key, _ := q.Get(); key != "held" {
			r.Fatalf("Get() = %v, want held", key)
		}
		q.Add("queued")
		for typeName, key := range bad {
			what := fmt.Sprintf("%s of a key of type %T", name, key)
			v := testkit.PanicOf(func() { method(q, key) })
			if v == nil {
				r.Fatalf("%s does not panic", what)
			}
			if !strings.Contains(fmt.Sprint(v), typeName) || !rightKind(v) {
				r.Fatalf("%s panics with %q, want the type %s in it", what, v, typeName)
			}
		}
		r.pass(time.Minute)
		if n := q.Len(); n != 1 {
			r.Fatalf("Len() = %d after %s of keys that cannot be kept, want 1", n, name)
		}
		q.Done("held")
		key, _ := q.Get()
		q.Done(key)
		if key != "queued" {
			r.Fatalf("Get() = %v, want queued", key)
		}
		start(r, "a drain", func() bool { q.ShutDownWithDrain(); return true }).mustReturn("of an empty queue")
	}
}

func tryKeysOfManyTypes(r *run) {
	p, s := new(int), new(int)
	keys := []any{
		1, int64(1), "1", 1.0, [1]int{1}, struct{ a, b int }{1, 2}, p, s, nil, true, 'x', complex(1, 1),
		0.0, math.Inf(1),
	}
	q := r.anyQueue()
	for range 2 {
		for _, key := range keys {
			q.Add(key)
		}
	}
	q.Add(math.Copysign(0, -1)) // is equal to 0
	var got []any
	for q.Len() > 0 {
		key, _ := q.Get()
		got = append(got, key)
		q.Done(key)
	}
	if !slices.Equal(got, keys) {
		r.Fatalf("got keys %v, want %v", got, keys)
	}
}
