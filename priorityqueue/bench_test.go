package priorityqueue_test

import (
	"fmt"
	"testing"
	"time"

	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// objectKey is a key as controllers have it.
type objectKey struct{ namespace, name string }

func benchmarkKeys(n int) []objectKey {
	keys := make([]objectKey, n)
	for i := range keys {
		keys[i] = objectKey{fmt.Sprintf("namespace-%d", i%100), fmt.Sprintf("name-%d", i)}
	}
	return keys
}

func reportPerKey(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/key")
}

// BenchmarkCycle adds n keys and drains them.
func BenchmarkCycle(b *testing.B) {
	group := func(key objectKey) string { return key.namespace }
	for _, c := range []struct {
		name       string
		priorities int
		config     pq.Config[objectKey]
	}{
		{"plain", 1, pq.Config[objectKey]{}},
		{"aging", 1, pq.Config[objectKey]{Aging: time.Minute}},
		{"groups", 1, pq.Config[objectKey]{Group: group, Limit: limit(10)}},
		{"interval", 1, pq.Config[objectKey]{MinInterval: 1}},
		{"priorities", 10, pq.Config[objectKey]{}},
		{"all", 10, pq.Config[objectKey]{Aging: time.Minute, Group: group, Limit: limit(10), MinInterval: 1}},
	} {
		for _, n := range []int{1, 1000, 100_000} {
			b.Run(fmt.Sprintf("config=%s/keys=%d", c.name, n), func(b *testing.B) {
				keys := benchmarkKeys(n)
				q := pq.New(c.config)
				defer q.ShutDown()
				b.ReportAllocs()
				for b.Loop() {
					for i, key := range keys {
						q.AddWithOpts(pq.AddOpts{Priority: i % c.priorities}, key)
					}
					for range keys {
						key, _ := q.Get()
						q.Done(key)
					}
				}
				if st := q.Stats(); st.Adds != uint64(b.N)*uint64(n) || st.Queued+st.Processing != 0 {
					b.Fatalf("not every key came through: %+v", st)
				}
				reportPerKey(b, n)
			})
		}
	}
}
