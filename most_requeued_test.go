package workqueue_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"golang.org/x/time/rate"
)

// countingLimiters are all that list keys.
func countingLimiters() map[string]workqueue.TypedRateLimiter[int] {
	exponential := func() workqueue.TypedRateLimiter[int] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Second, time.Hour)
	}
	bucket := &workqueue.TypedBucketRateLimiter[int]{Limiter: rate.NewLimiter(10, 100)}
	return map[string]workqueue.TypedRateLimiter[int]{
		"exponential": exponential(),
		"fast-slow":   workqueue.NewTypedItemFastSlowRateLimiter[int](time.Second, time.Hour, 3),
		"backoff":     workqueue.NewTypedItemBackoffRateLimiter[int](workqueue.BackoffConfig{}),
		"default":     workqueue.DefaultTypedControllerRateLimiter[int](),
		"max of two":  workqueue.NewTypedMaxOfRateLimiter(bucket, exponential(), exponential()),
		"max wait":    workqueue.NewTypedWithMaxWaitRateLimiter(exponential(), time.Minute),
	}
}

func mostRequeued(t *testing.T, l workqueue.TypedRateLimiter[int], limit int) string {
	t.Helper()
	list, ok := l.(workqueue.RequeueLister[int])
	if !ok {
		t.Fatalf("%T is no RequeueLister", l)
	}
	s := ""
	for _, k := range list.MostRequeued(limit) {
		s += fmt.Sprintf(" %d:%d", k.Key, k.Requeues)
	}
	return s
}

func TestMostRequeued(t *testing.T) {
	for name, l := range countingLimiters() {
		t.Run(name, func(t *testing.T) {
			want := func(when string, limit int, want string) {
				t.Helper()
				if got := mostRequeued(t, l, limit); got != want {
					t.Errorf("%s: the first %d are%s, want%s", when, limit, got, want)
				}
			}
			want("at first", 3, "")
			// Many slabs of keys, and those that have failed most all over them.
			for key := range 5000 {
				for range 1 + key%7/6 {
					l.When(key)
				}
			}
			for i, key := range []int{4999, 0, 777, 2500, 513} {
				for range 10 + i {
					l.When(key)
				}
			}
			want("with many keys", 3, " 513:15 2500:14 777:13")
			want("with many keys", 5, " 513:15 2500:14 777:13 0:12 4999:11")
			want("with many keys", 0, "")
			want("with many keys", -1, "")
			if list := l.(workqueue.RequeueLister[int]).MostRequeued(math.MaxInt); len(list) != 5000 || list[4999].Requeues != 1 {
				t.Errorf("all of them are %d", len(list))
			}
			l.Forget(513)
			l.Forget(777)
			want("after Forget", 2, " 2500:14 0:12")
		})
	}
}

// A key that several limiters count is listed once, with the largest of their numbers.
func TestMostRequeuedOfSeveral(t *testing.T) {
	a := workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Second, time.Hour)
	b := workqueue.NewTypedItemFastSlowRateLimiter[int](time.Second, time.Hour, 3)
	both := workqueue.NewTypedMaxOfRateLimiter(a, b)
	for i := range 3 {
		a.When(1)
		both.When(2)
		if i > 0 {
			b.When(1)
			b.When(2)
		}
	}
	if got, want := mostRequeued(t, both, 10), " 2:5 1:3"; got != want {
		t.Errorf("listed are%s, want%s", got, want)
	}
}

func TestMostRequeuedLeavesOutWhatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := workqueue.NewTypedItemBackoffRateLimiter[int](workqueue.BackoffConfig{
			Base: time.Second, Max: time.Second, ForgetAfter: time.Minute,
		})
		for key := range 100 {
			l.When(key)
			l.When(key)
		}
		time.Sleep(30 * time.Second)
		l.When(5)
		if got, want := mostRequeued(t, l, 1), " 5:3"; got != want {
			t.Errorf("listed are%s, want%s", got, want)
		}
		time.Sleep(31 * time.Second)
		if got, want := mostRequeued(t, l, 10), " 5:3"; got != want {
			t.Errorf("after the others have expired, listed are%s, want%s", got, want)
		}
	})
}

// The keys that fail most wait longest, so they are not among the first that wait.
func TestSnapshotOfFailingKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Second, time.Hour)
		q := workqueue.NewTypedRateLimitingQueue(limiter).(delayerOfSnapshots)
		defer q.ShutDown()
		for range 5 {
			limiter.When(7)
			limiter.When(8)
		}
		for key := range 3 {
			q.AddRateLimited(key)
		}
		q.Add(8)
		q.AddRateLimited(7)
		began := time.Now()
		time.Sleep(500 * time.Millisecond)
		s := q.Snapshot(2)
		if len(s.Waiting) != 2 || s.Waiting[0].Key != 0 || len(s.Failing) != 2 {
			t.Fatalf("waiting %v, failing %v", s.Waiting, s.Failing)
		}
		first, second := s.Failing[0], s.Failing[1]
		if first.Key != 7 || first.Requeues != 6 || !first.Since.Equal(began) || !first.Due.Equal(began.Add(32*time.Second)) {
			t.Errorf("failing most: %+v", first)
		}
		if second.Key != 8 || second.Requeues != 5 || !second.Since.IsZero() || !second.Due.IsZero() {
			t.Errorf("failing next: %+v", second)
		}
		if s := q.Snapshot(-1); s.Failing != nil {
			t.Errorf("of no keys, failing are %v", s.Failing)
		}
	})
}

type delayerOfSnapshots interface {
	workqueue.TypedRateLimitingInterface[int]
	workqueue.Extended[int]
}

func TestMostRequeuedWhileKeysFail(t *testing.T) {
	for name, l := range countingLimiters() {
		t.Run(name, func(t *testing.T) {
			var wg sync.WaitGroup
			for w := range 3 {
				wg.Go(func() {
					for i := range 3000 {
						l.When(i % 1000)
						l.Forget((i + w*300) % 1000)
					}
				})
			}
			for range 50 {
				seen := map[int]bool{}
				last := 1 << 30
				for _, k := range l.(workqueue.RequeueLister[int]).MostRequeued(100) {
					if seen[k.Key] || k.Requeues > last || k.Requeues < 1 {
						t.Errorf("key %d with %d requeues after %d, seen before: %t", k.Key, k.Requeues, last, seen[k.Key])
					}
					seen[k.Key], last = true, k.Requeues
				}
			}
			wg.Wait()
		})
	}
}
