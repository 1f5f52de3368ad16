package priorityqueue_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

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
