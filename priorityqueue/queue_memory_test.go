package priorityqueue_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// The limits of this test are promises. They are about a million keys; what the keys' strings point to is
// there before and counts for nothing.
func TestMemoryOfAMillionKeys(t *testing.T) {
	if testkit.RaceEnabled || !testkit.Long {
		t.Skip("a million keys take seconds: set WORKQUEUE_LONG; and the race detector takes memory of its own")
	}
	const million = 1_000_000
	keys := testkit.Keys(million)
	tests := []struct {
		name   string
		limit  int64 // for a key
		config pq.Config[string]
		opts   func(i int) pq.AddOpts
	}{
		{"queued", 80, pq.Config[string]{}, func(int) pq.AddOpts { return pq.AddOpts{} }},
		{"queued, ten priorities", 80, pq.Config[string]{},
			func(i int) pq.AddOpts { return pq.AddOpts{Priority: i % 10} }},
		{"queued, a million priorities", 220, pq.Config[string]{},
			func(i int) pq.AddOpts { return pq.AddOpts{Priority: i} }},
		{"queued, a million groups", 330, pq.Config[string]{Group: func(key string) string { return key }},
			func(int) pq.AddOpts { return pq.AddOpts{} }},
		{"queued, aging", 112, pq.Config[string]{Aging: time.Second}, func(int) pq.AddOpts { return pq.AddOpts{} }},
		{"waiting", 150, pq.Config[string]{}, func(int) pq.AddOpts { return pq.AddOpts{After: time.Minute} }},
		{"interval", 112, pq.Config[string]{MinInterval: time.Second},
			func(int) pq.AddOpts { return pq.AddOpts{} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// In a bubble, so that all waiting keys come due at once.
			synctest.Test(t, func(t *testing.T) {
				q := pq.New(tt.config)
				before := testkit.Heap()
				for i, key := range keys {
					q.AddWithOpts(tt.opts(i), key)
				}
				full := testkit.Heap() - before
				t.Logf("%d bytes a key", full/million)
				if full > tt.limit*million {
					t.Errorf("%d bytes a key, at most %d are promised", full/million, tt.limit)
				}
				time.Sleep(time.Hour)
				for q.Len() > 0 {
					key, _ := q.Get()
					q.Done(key)
				}
				time.Sleep(time.Hour)
				for range million / 200 {
					q.Len() // sweeps
				}
				kept := testkit.Heap() - before
				t.Logf("%d KiB kept", kept>>10)
				if kept > 1<<20 {
					t.Errorf("%d KiB kept, at most 1024 are promised", kept>>10)
				}
				q.ShutDown()
			})
		})
	}
	runtime.KeepAlive(keys)
}

func TestMemoryOfAnIdleQueue(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	const n = 1000
	queues := make([]*pq.Queue[string], n)
	limiter := fixed(0)
	before := testkit.Heap()
	for i := range queues {
		queues[i] = pq.New(pq.Config[string]{RateLimiter: limiter})
	}
	size := (testkit.Heap() - before) / n
	t.Logf("%d bytes", size)
	if size > 2560 {
		t.Errorf("an idle queue takes %d bytes, at most 2560 are promised", size)
	}
	runtime.KeepAlive(queues)
}

func TestWarmOperationsDoNotAllocate(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	group := func(key string) string { return key[:2] }
	for name, config := range map[string]pq.Config[string]{
		"plain":  {},
		"aging":  {Aging: time.Second},
		"groups": {Group: group, Limit: limit(3)},
		"all":    {Group: group, Limit: limit(3), Aging: time.Second, MinInterval: 1},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 100
			var keys [n]string
			for i := range keys {
				keys[i] = fmt.Sprintf("%02d/key", i)
			}
			config.RateLimiter = fixed(time.Hour)
			q := pq.New(config)
			defer q.ShutDown()
			// A key waits, or else the loop starts each time one does. It has a cause, which must cost the others
			// nothing.
			q.AddWithOpts(pq.AddOpts{After: time.Hour, Cause: because("it is Monday")}, "xx/waits")
			zero := func(what string, f func()) {
				t.Helper()
				f()
				f()
				if a := testing.AllocsPerRun(100, f); a != 0 {
					t.Errorf("%s: %v allocations", what, a)
				}
			}
			all := func(yield func(string) bool) {
				for _, key := range keys {
					yield(key)
				}
			}
			zero("Fail", func() {
				q.Add(keys[0])
				key, _ := q.Get()
				q.Fail(t.Context(), key, workqueue.Failure{})
				q.Done(key)
			})
			q.Remove(keys[0])
			zero("Add, Get, Done", func() {
				for i, key := range keys {
					q.AddWithOpts(pq.AddOpts{Priority: i % 10}, key)
				}
				for q.Len() > 0 {
					key, _ := q.Get()
					q.Add(key)
					q.Remove(key)
					q.Done(key)
				}
			})
			zero("AddAfter, Add, Remove", func() {
				for key := range all {
					q.AddAfter(key, time.Hour)
					q.AddWithOpts(pq.AddOpts{After: 2 * time.Hour, Delay: pq.Latest}, key)
					q.AddRateLimited(key)
					q.SnapshotKey(key)
				}
				for key := range all {
					q.Add(key)
				}
				for key := range all {
					q.AddWithOpts(pq.AddOpts{Priority: 1}, key)
					q.Remove(key)
				}
			})
			zero("AddRateLimited of a held key", func() {
				for key := range all {
					q.Remove(key)
					q.AddWithOpts(pq.AddOpts{Delay: pq.Replace}, key)
				}
				for q.Len() > 0 {
					key, _ := q.Get()
					q.AddRateLimited(key)
					q.Done(key)
				}
			})
			zero("Done of a key that is not held, Len", func() {
				q.Done("xx/unknown")
				q.Len()
			})
		})
	}
}
