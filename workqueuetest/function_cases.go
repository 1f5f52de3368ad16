package workqueuetest

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// orderCase runs first, because most others rely on it.
var orderCase = bubbled("Order", "Keys come in the order in which they became queued.", tryOrder)

// functionCases are too long or too unusual for a script.
var functionCases = []testCase{
	bubbled("ManyDelays", "Keys come in the order of their times, not of the adds.",
		tryManyDelays),
	bubbled("UnhashableKey",
		"With an unhashable key every method panics with the name of the type, and the queue is unharmed.",
		func(r *run) {
			r.tryBadKeys(true, map[string]any{
				"[]int": []int{1}, "map[string]int": map[string]int{}, "func()": func() {},
				"[]string": structOfAny{[]string{}},
			})
		}),
	bubbled("KeyUnequalToItself",
		"With a key that is not equal to itself every method panics with the name of the type, and the queue is "+
			"unharmed.",
		func(r *run) {
			r.tryBadKeys(false, map[string]any{
				"float64": math.NaN(), "float32": float32(math.NaN()), "complex128": complex(0, math.NaN()),
				"workqueuetest.structOfAny": structOfAny{math.NaN()},
			})
		}),
	bubbled("KeysOfManyTypes", "Keys of an interface type are equal if their types and values are.",
		tryKeysOfManyTypes),

	unbubbled("IdleQueueIsGarbage",
		"A queue without references is garbage, with its keys, even if it was not shut down.",
		tryIdleQueueIsGarbage),
	unbubbled("ProcessedKeysAreGarbage",
		"A queue does not keep alive what the keys that have left it point to.", tryProcessedKeysAreGarbage),
	unbubbled("MemoryIsGivenBack", "After a burst of keys a queue gives memory back.", tryMemoryIsGivenBack),
}

func tryOrder(r *run) {
	q := r.queue(Config[string]{})
	var queued []string
	// Waves of different sizes, so that buffers grow, shrink and wrap around.
	for wave := range 30 {
		for n := range wave * 5 {
			key := fmt.Sprintf("%d of wave %d", n, wave)
			q.Add(key)
			queued = append(queued, key)
		}
		for range wave * 4 {
			r.hold(q, queued[0])
			q.Done(queued[0])
			queued = queued[1:]
		}
		r.wantLen(q, fmt.Sprintf("after wave %d", wave), len(queued))
	}
	r.check(q)
	r.hold(q, queued...)
	r.wantLen(q, "with every key held", 0)
	r.check(q)
}

// process gets and finishes the keys that are queued, which must be want and nothing else.
func (r *run) process(q fifo, when string, want ...string) {
	for _, key := range want {
		r.hold(q, key)
		q.Done(key)
	}
	r.wantLen(q, when, 0)
}

func tryManyDelays(r *run) {
	const n = 300
	q := need[delaying](r, r.queue(Config[string]{}), Delays)
	order := r.rand(0).Perm(n)
	want := make([]string, n)
	for key, place := range order {
		// No two at the same time; AddAfterTies is about those.
		q.AddAfter(fmt.Sprint(key), time.Duration(place+1)*time.Second)
		want[place] = fmt.Sprint(key)
	}
	r.pass(100 * time.Second)
	r.process(q, "the first 100 come due at once", want[:100]...)
	for _, key := range want[100:110] {
		r.pass(time.Second)
		r.process(q, "one by one", key)
	}
	r.pass(time.Hour)
	r.process(q, "the rest comes due at once", want[110:]...)
}

type anyQueue = workqueue.TypedInterface[any]

// newAny builds a queue, which is not shut down at the end of the case.
func (r *run) newAny() anyQueue {
	if r.suite.NewAny == nil {
		r.lacks(AnyKeys)
	}
	return r.suite.NewAny(Config[any]{Clock: r.clock})
}

type structOfAny struct{ field any }

// tryBadKeys calls each method with each bad key. The panic must name the type, which is the key's index in
// bad.
func (r *run) tryBadKeys(wantRuntimeError bool, bad map[string]any) {
	q := r.newAny()
	r.atEnd(q.ShutDown)
	methods := map[string]func(key any){"Add": q.Add, "Done": q.Done}
	if d, ok := q.(workqueue.TypedDelayingInterface[any]); ok {
		methods["AddAfter(0)"] = func(key any) { d.AddAfter(key, 0) }
		methods["AddAfter(1s)"] = func(key any) { d.AddAfter(key, time.Second) }
	}
	if l, ok := q.(workqueue.TypedRateLimitingInterface[any]); ok {
		methods["AddRateLimited"] = l.AddRateLimited
	}
	for name, method := range methods {
		q.Add("held")
		if key, _ := q.Get(); key != "held" {
			r.Fatalf("Get() = %v, want held", key)
		}
		q.Add("queued")
		for typeName, key := range bad {
			what := fmt.Sprintf("%s of a key of type %T", name, key)
			v := testkit.WantPanic(r, what, func() { method(key) }, typeName)
			if _, ok := v.(runtime.Error); v != nil && !ok && wantRuntimeError {
				r.Errorf("%s panics with %v, want a runtime.Error", what, v)
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
	}
	start(r, "a drain", func() bool { q.ShutDownWithDrain(); return true }).mustReturn("of an empty queue")
}

func tryKeysOfManyTypes(r *run) {
	p, s := new(int), new(int)
	keys := []any{
		1, int64(1), "1", 1.0, [1]int{1}, struct{ a, b int }{1, 2}, p, s, nil, true, 'x', complex(1, 1),
		0.0, math.Inf(1),
	}
	q := r.newAny()
	r.atEnd(q.ShutDown)
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

func tryIdleQueueIsGarbage(r *run) {
	const n = 20
	var c testkit.Garbage
	for i := range n {
		q := r.newAny()
		if d, ok := q.(workqueue.TypedDelayingInterface[any]); ok && i%2 == 0 {
			d.AddAfter(c.Object(), time.Microsecond) // the goroutine that it starts must end by itself
			processAll(q, 1)
		} else {
			q.Add(c.Object()) // is still queued when the queue is dropped
		}
	}
	c.Want(r, "dropped queues with their keys", n)
}

func tryProcessedKeysAreGarbage(r *run) {
	const n = 3000 // more than the initial capacity of any buffer
	q := r.newAny()
	r.atEnd(q.ShutDown)
	var c testkit.Garbage
	for range n {
		q.Add(c.Object())
	}
	processAll(q, n)
	c.Want(r, "processed keys", n)
	if d, ok := q.(workqueue.TypedDelayingInterface[any]); ok {
		d.AddAfter("keeper", time.Hour) // so that the loop keeps running, with everything that it refers to
		for range n {
			d.AddAfter(c.Object(), time.Microsecond)
		}
		processAll(q, n)
		c.Want(r, "processed keys, delayed ones too", 2*n)
		for range n {
			d.AddAfter(c.Object(), time.Hour)
		}
		q.ShutDown()
		c.Want(r, "processed and dropped keys", 3*n)
	}
	runtime.KeepAlive(q)
}

func processAll[T comparable](q workqueue.TypedInterface[T], n int) {
	for range n {
		key, _ := q.Get()
		q.Done(key)
	}
}

func tryMemoryIsGivenBack(r *run) {
	// At most a quarter of what the keys took may be kept.
	const n, most = 200_000, 4 << 20
	if testkit.RaceEnabled {
		r.skip("the race detector takes memory of its own")
	}
	if testing.Short() {
		r.skip("a short run")
	}
	q := r.queue(Config[string]{})
	keys := testkit.Keys(n)
	before := testkit.Heap()
	adds := []func(key string){q.Add, q.Add}
	if d, ok := q.(delaying); ok {
		adds = append(adds, func(key string) { d.AddAfter(key, time.Millisecond) })
	}
	for round, add := range adds {
		for _, key := range keys {
			add(key)
		}
		processAll(q, n)
		if kept := testkit.Heap() - before; kept > most {
			r.Fatalf("round %d: %d KiB are kept after %d keys were processed, at most %d are allowed", round,
				kept>>10, n, most>>10)
		}
	}
	runtime.KeepAlive(q)
	runtime.KeepAlive(keys)
}
