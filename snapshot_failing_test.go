package workqueue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/failures"
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
		"backoff":     workqueue.NewTypedItemBackoffRateLimiter(hurried(workqueue.NoJitter)),
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
	keys, complete := list.Requeued()
	if !complete {
		t.Errorf("the list of %T is not complete", l)
	}
	s := ""
	for _, k := range failures.Most(max(limit, 0), keys) {
		s += fmt.Sprintf(" %d:%d", k.Key, k.N)
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
		l := workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[int]{
			Base: time.Second, Max: time.Second, ForgetAfter: time.Minute,
		})
		for key := range 100 {
			l.When(key)
		}
		time.Sleep(time.Second)
		for key := range 100 {
			l.When(key)
		}
		time.Sleep(29 * time.Second)
		l.When(5)
		if got, want := mostRequeued(t, l, 1), " 5:3"; got != want {
			t.Errorf("listed are%s, want%s", got, want)
		}
		time.Sleep(33 * time.Second)
		if got, want := mostRequeued(t, l, 10), " 5:3"; got != want {
			t.Errorf("after the others have expired, listed are%s, want%s", got, want)
		}
	})
}
