package workqueue_test

import (
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
	"golang.org/x/time/rate"
	testingclock "k8s.io/utils/clock/testing"
)

// A key waits longer after each failure. Once it has not failed for a while, it starts afresh, even if
// nobody has called Forget.
func ExampleNewTypedItemBackoffRateLimiter() {
	clock := testingclock.NewFakeClock(time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC))
	limiter := workqueue.NewTypedItemBackoffRateLimiter[string](workqueue.BackoffConfig{
		Base:        100 * time.Millisecond,
		Max:         time.Second,
		Factor:      3,
		Jitter:      workqueue.NoJitter, // a fleet takes FullJitter
		ForgetAfter: time.Minute,
		Clock:       clock, // real programs leave it out
	})
	for range 4 {
		fmt.Println(limiter.When("orders/42"))
	}
	fmt.Println(limiter.NumRequeues("orders/42"), "failures")

	clock.Step(time.Second + time.Minute) // its last delay, and ForgetAfter
	fmt.Println(limiter.NumRequeues("orders/42"), "failures")
	fmt.Println(limiter.When("orders/42"))
	// Output:
	// 100ms
	// 300ms
	// 900ms
	// 1s
	// 4 failures
	// 0 failures
	// 100ms
}

// All keys together come no faster than the bucket allows, on a clock that the test steps.
func ExampleNewTypedBucketRateLimiter() {
	clock := testingclock.NewFakeClock(time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC))
	limiter := workqueue.NewTypedBucketRateLimiter[string](rate.NewLimiter(10, 2), clock)
	for _, key := range []string{"a", "b", "c", "d"} {
		fmt.Println(key, limiter.When(key))
	}
	clock.Step(time.Minute)
	fmt.Println("e", limiter.When("e"))
	// Output:
	// a 0s
	// b 0s
	// c 100ms
	// d 200ms
	// e 0s
}

// Each key may come twice at once, and once in 10 seconds in the long run. Keys do not wait for each other.
func ExampleNewTypedItemBucketRateLimiter() {
	clock := testingclock.NewFakeClock(time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC))
	limiter := workqueue.NewTypedItemBucketRateLimiter[string](rate.Every(10*time.Second), 2, clock)
	for _, key := range []string{"a", "a", "a", "b"} {
		fmt.Println(key, limiter.When(key))
	}
	clock.Step(4 * time.Second)
	fmt.Println("a", limiter.When("a"))
	// Output:
	// a 0s
	// a 0s
	// a 10s
	// b 0s
	// a 16s
}
