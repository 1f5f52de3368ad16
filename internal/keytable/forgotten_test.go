package keytable_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"golang.org/x/time/rate"
)

// A code path that deletes a key and forgets what stands beside the table has no wrong result: the queue only
// keeps the memory of each burst. So these tests make bursts that end in every way in which a key can leave a
// queue, and measure what is left. They find all tables, columns, heaps, maps and slices by reflection, and
// fail if one was never full: who adds a column adds what fills it.

const (
	burst       = 20_000
	keptSlabs   = 17       // what a table of the smallest entries keeps for the next burst
	keptBuckets = 1 << 11  // of an index
	keptBytes   = 64 << 10 // in slices
)

// memory has the size of each part of a queue, by the fields that lead to it.
type memory struct {
	columns map[string]int // slabs
	maps    map[string]int // elements
	slices  int            // bytes
	wrong   []string       // what is larger than its keys need
}

// memoryOf measures everything that can be reached from q.
func memoryOf(q any) memory {
	m := memory{columns: map[string]int{}, maps: map[string]int{}}
	m.add("", reflect.ValueOf(q), map[uintptr]bool{})
	return m
}

func (m *memory) add(path string, v reflect.Value, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.Interface:
		m.add(path, v.Elem(), seen)
	case reflect.Pointer:
		if strings.Contains(v.Type().Elem().PkgPath(), "keyedqueue") && !v.IsNil() && !seen[v.Pointer()] {
			seen[v.Pointer()] = true
			m.add(path, v.Elem(), seen)
		}
	case reflect.Map:
		m.maps[path] = v.Len()
	case reflect.Slice:
		m.slices += v.Cap() * int(v.Type().Elem().Size())
	case reflect.Struct:
		m.addStruct(path, v, seen)
	}
}

func (m *memory) addStruct(path string, v reflect.Value, seen map[uintptr]bool) {
	switch kind, _, _ := strings.Cut(v.Type().Name(), "["); kind {
	case "Table":
		slabs, buckets := slabsOf(v.FieldByName("slots")), v.FieldByName("index").FieldByName("buckets").Len()
		if n := int(v.FieldByName("count").Int()); n > 100 || slabs > keptSlabs || buckets > keptBuckets {
			m.wrong = append(m.wrong, fmt.Sprintf("table %s: %d keys, %d slabs, %d buckets", path, n, slabs, buckets))
		}
	case "Column":
		m.columns[path] = slabsOf(v)
	case "Heap":
		m.columns[path+".positions"] = slabsOf(v.FieldByName("positions"))
		slabs, n := slabsOf(v.FieldByName("families")), int(v.FieldByName("n").Int())
		if slabs > n/(4*512)+2 { // An entry is four in a family, and a family one of 512 in a slab.
			m.wrong = append(m.wrong, fmt.Sprintf("heap %s: %d slabs for %d entries", path, slabs, n))
		}
	default:
		for i := range v.NumField() {
			m.add(strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), v.Field(i), seen)
		}
	}
}

// slabsOf returns how many slabs of a column, or of an arena, have memory.
func slabsOf(v reflect.Value) (n int) {
	all := v.FieldByName("slabs")
	for i := range all.Len() {
		slab := all.Index(i)
		if slab.Kind() == reflect.Struct {
			slab = slab.FieldByName("entries")
		}
		if !slab.IsNil() {
			n++
		}
	}
	return n
}

// meter compares the memory of queues of one kind, when a burst is over, with what their tables keep.
type meter struct {
	most map[string]int // the largest numbers of each column and map
}

// full notes what a burst takes.
func (w *meter) full(q any) {
	m := memoryOf(q)
	for _, parts := range []map[string]int{m.columns, m.maps} {
		for part, n := range parts {
			w.most[part] = max(w.most[part], n)
		}
	}
}

// empty asserts that nothing is left of a burst.
func (w *meter) empty(t *testing.T, q any, burst string) {
	t.Helper()
	m := memoryOf(q)
	for part, n := range m.columns {
		if n > keptSlabs {
			t.Errorf("%s: the column %s keeps %d slabs: who deletes a slot must Release it", burst, part, n)
		}
	}
	for part, n := range m.maps {
		if n > 100 {
			t.Errorf("%s: the map %s keeps %d elements", burst, part, n)
		}
	}
	if m.slices > keptBytes {
		t.Errorf("%s: slices keep %d bytes", burst, m.slices)
	}
	for _, wrong := range m.wrong {
		t.Errorf("%s: %s", burst, wrong)
	}
}

// wasFull asserts that some burst has filled each column and map.
func (w *meter) wasFull(t *testing.T) {
	t.Helper()
	for part, n := range w.most {
		if n <= keptSlabs {
			t.Errorf("no burst fills %s, so what keeps its memory is not found", part)
		}
	}
}

type queue = workqueue.ExtendedRateLimiting[string]

// bursts are the ways in which keys leave any queue. Each calls full when the queue has many keys.
var bursts = map[string]func(q queue, keys []string, full func()){
	"Done": func(q queue, keys []string, full func()) {
		for _, key := range keys {
			q.AddCause(key, workqueue.Cause{Reason: "test"})
		}
		full()
		finish(q, len(keys), nil)
	},
	"Done, one by one, the last first": func(q queue, keys []string, full func()) {
		held := takeAll(q, keys)
		full()
		for i := range held {
			q.Done(held[len(held)-1-i])
		}
	},
	"added again while held": func(q queue, keys []string, full func()) {
		for _, key := range takeAll(q, keys) {
			q.AddedAgain(key)
			q.AddCause(key, workqueue.Cause{Reason: "test"})
		}
		full()
		for _, key := range keys {
			q.Done(key)
		}
		finish(q, len(keys), nil)
	},
	"on hold": func(q queue, keys []string, full func()) {
		for i, key := range takeAll(q, keys) {
			q.PutOnHold(key)
			if i%2 == 0 {
				q.Add(key)
			}
		}
		full()
		for _, key := range keys {
			q.Done(key)
		}
		finish(q, len(keys)/2, nil)
	},
	"waits": func(q queue, keys []string, full func()) {
		for i, key := range keys {
			q.AddAfter(key, time.Duration(i)*time.Microsecond)
		}
		full()
		time.Sleep(time.Second)
		finish(q, len(keys), nil)
	},
	"fails, and succeeds": func(q queue, keys []string, full func()) {
		failAll(q, keys)
		full()
		time.Sleep(time.Hour)
		finish(q, len(keys), q.Forget)
	},
	"fails, and is given up": func(q queue, keys []string, full func()) {
		failAll(q, keys)
		for _, key := range keys {
			q.Add(key)
		}
		finish(q, len(keys), func(key string) {
			q.Fail(context.Background(), key, workqueue.Failure{Terminal: true})
		})
		time.Sleep(time.Hour)
	},
	"fails, and nobody asks any more": func(q queue, keys []string, full func()) {
		failAll(q, keys)
		time.Sleep(time.Hour)
		finish(q, len(keys), nil)
		time.Sleep(30 * time.Hour)
		failAll(q, []string{"other"})
		for range 100 {
			q.Forget("other")
			q.NumRequeues("other")
		}
		time.Sleep(time.Hour)
		finish(q, 1, nil)
	},
	"fails in a loop of its own": func(q queue, keys []string, full func()) {
		for _, key := range keys {
			q.AddRateLimited(key)
		}
		full()
		time.Sleep(time.Hour)
		finish(q, len(keys), q.Forget)
	},
}

// lastBursts end with a shutdown.
var lastBursts = map[string]func(q queue, keys []string, full func()){
	"waits at the shutdown": func(q queue, keys []string, full func()) {
		for _, key := range keys {
			q.AddAfter(key, time.Hour)
		}
		full()
		q.ShutDown()
	},
	"is dropped": func(q queue, keys []string, full func()) {
		for _, key := range keys {
			q.AddCause(key, workqueue.Cause{Reason: "test"})
		}
		full()
		q.ShutDown()
		q.DropQueued()
	},
	"is dropped while held": func(q queue, keys []string, full func()) {
		for _, key := range takeAll(q, keys) {
			q.AddCause(key, workqueue.Cause{Reason: "test"})
		}
		q.ShutDown()
		q.DropQueued()
		for _, key := range keys {
			q.Done(key)
		}
	},
	"is left by a drain": func(q queue, keys []string, full func()) {
		for _, key := range keys {
			q.AddCause(key, workqueue.Cause{Reason: "test"})
		}
		q.ShutDownWithDrain()
	},
}

func takeAll(q queue, keys []string) (held []string) {
	for _, key := range keys {
		q.Add(key)
	}
	for range keys {
		key, _ := q.Get()
		held = append(held, key)
	}
	return held
}

func failAll(q queue, keys []string) {
	for _, key := range takeAll(q, keys) {
		q.Fail(context.Background(), key, workqueue.Failure{Err: errors.New("test")})
		q.Done(key)
	}
}

// finish hands out n keys, and calls before, unless it is nil, before each Done.
func finish(q queue, n int, before func(key string)) {
	for range n {
		key, _ := q.Get()
		if before != nil {
			before(key)
		}
		q.Done(key)
	}
}

// run lets each burst pass over a queue that build makes.
func run[Q queue](t *testing.T, kind string, w *meter, build func() Q, more map[string]func(q Q, keys []string, full func())) {
	if testkit.RaceEnabled {
		t.Skip("20,000 keys in each burst take long, and no two goroutines use them")
	}
	keys := testkit.Keys(burst)
	settle := func(q queue) { // What needs no goroutine is given back by later calls.
		time.Sleep(time.Hour)
		for range burst / 200 {
			q.Len()
		}
	}
	synctest.Test(t, func(t *testing.T) {
		q := build()
		for name, b := range bursts {
			b(q, keys, func() { w.full(q) })
			settle(q)
			w.empty(t, q, kind+", "+name)
		}
		for name, b := range more {
			b(q, keys, func() { w.full(q) })
			settle(q)
			w.empty(t, q, kind+", "+name)
		}
		q.ShutDown()
		for name, b := range lastBursts {
			q := build()
			b(q, keys, func() { w.full(q) })
			settle(q)
			w.empty(t, q, kind+", "+name)
		}
	})
}

func TestMemoryThatAQueueForgets(t *testing.T) {
	w := &meter{most: map[string]int{}}
	config := workqueue.TypedRateLimitingQueueConfig[string]{Name: "test", MetricsProvider: testkit.Times{}}
	run(t, "metrics", w, func() queue {
		limiter := workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{ForgetAfter: 2 * time.Hour})
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config).(queue)
	}, nil)
	run(t, "bucket", w, func() queue {
		limiter := workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{
			Bucket: rate.NewLimiter(1000, 1)})
		return workqueue.NewTypedRateLimitingQueue(limiter).(queue)
	}, nil)
	run(t, "a custom Queue", w, func() queue {
		fifo := workqueue.TypedQueueConfig[string]{Queue: workqueue.DefaultQueue[string]()}
		delaying := workqueue.TypedDelayingQueueConfig[string]{Queue: workqueue.NewTypedWithConfig(fifo)}
		config := workqueue.TypedRateLimitingQueueConfig[string]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(delaying)}
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config).(queue)
	}, nil)
	w.wasFull(t)
}

func TestMemoryThatAPriorityQueueForgets(t *testing.T) {
	type pq = *priorityqueue.Queue[string]
	more := map[string]func(q pq, keys []string, full func()){
		"a priority each": func(q pq, keys []string, full func()) {
			for i, key := range keys {
				q.AddWithPriority(key, i, 0)
			}
			full()
			finish(q, len(keys), nil)
		},
		"Remove": func(q pq, keys []string, full func()) {
			takeAll(q, keys[:burst/3])
			for i, key := range keys {
				q.AddCause(key, workqueue.Cause{Reason: "test"})
				if i%3 == 0 {
					q.AddAfter(key, time.Hour)
				}
			}
			for _, key := range keys {
				q.Remove(key)
			}
			for _, key := range keys[:burst/3] {
				q.Done(key)
			}
		},
		"pauses": func(q pq, keys []string, full func()) {
			for i, key := range keys {
				q.PauseGroup(key, time.Minute+time.Duration(i%2)*operate.UntilResumed/2)
				q.Add(key)
			}
			full()
			time.Sleep(time.Hour)
			for _, key := range keys {
				q.ResumeGroup(key)
			}
			finish(q, len(keys), nil)
		},
	}
	w := &meter{most: map[string]int{}}
	provider := testkit.Times{}
	build := func(c priorityqueue.Config[string]) func() pq {
		return func() pq { return priorityqueue.New(c) }
	}
	run(t, "plain", w, build(priorityqueue.Config[string]{}), more)
	run(t, "interval", w, build(priorityqueue.Config[string]{
		Name: "test", MetricsProvider: provider, MinInterval: time.Second, Aging: time.Second,
	}), more)
	run(t, "groups", w, build(priorityqueue.Config[string]{
		Name: "test", MetricsProvider: provider,
		Group: func(key string) string { return key }, Limit: func(string) int { return 1 },
	}), more)
	w.wasFull(t)
}
