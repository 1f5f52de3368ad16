package priorityqueue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

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
