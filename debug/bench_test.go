package debug_test

import (
	"fmt"
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
)

func BenchmarkList(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("queues=%d", n), func(b *testing.B) {
			h := debug.NewHandler(debug.Options{})
			defer h.Close()
			for n := range n {
				q := workqueue.NewTypedRateLimitingQueueWithConfig[int](nil, workqueue.TypedRateLimitingQueueConfig[int]{
					Name: fmt.Sprint("queue ", n), MetricsProvider: debug.Times{},
				})
				debug.Register(h, "", q)
				q.Add(n)
			}
			b.ReportAllocs()
			for b.Loop() {
				get(h, "")
			}
		})
	}
}
