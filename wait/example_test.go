package wait_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue/wait"
)

// Poll until something is there, at most for a while.
func Example() {
	looks := 0
	isThere := func(context.Context) (bool, error) {
		looks++
		return looks == 3, nil // An error would end the polling.
	}
	err := wait.PollUntilContextTimeout(context.Background(), time.Millisecond, time.Minute, true, isThere)
	fmt.Println(looks, err)
	// Output: 3 <nil>
}

func ExampleBackoff_Step() {
	b := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: 5 * time.Second}
	for range 5 {
		fmt.Println(b.Step())
	}
	// Output:
	// 1s
	// 2s
	// 4s
	// 5s
	// 5s
}

func ExampleBackoff_DelayFunc() {
	patience := wait.Backoff{Duration: time.Second, Factor: 3, Steps: 2}
	first, second := patience.DelayFunc(), patience.DelayFunc()
	fmt.Println(first(), first(), first(), first())
	fmt.Println(second(), patience.Duration)
	// Output:
	// 1s 3s 9s 9s
	// 1s 1s
}

func ExampleBackoff_DelayWithReset() {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	next := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10}.DelayWithReset(clock, time.Minute)
	fmt.Println(next(), next(), next())
	clock.Step(time.Minute + time.Second)
	fmt.Println(next(), next(), next())
	// Output:
	// 1s 2s 4s
	// 1s 2s 4s
}

// To continue at the cap for as long as it takes, until the context ends or the condition
// is met.
func ExampleDelayFunc_Until() {
	b := wait.Backoff{Duration: time.Microsecond, Factor: 2, Steps: 100, Cap: 5 * time.Microsecond}
	tries := 0
	err := b.DelayFunc().Until(context.Background(), true, true, func(context.Context) (bool, error) {
		tries++
		return tries == 10, nil
	})
	fmt.Println(tries, err)
	// Output: 10 <nil>
}

// Loops that share a function share its sequence.
func ExampleDelayFunc_Concurrent() {
	next := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10}.DelayFunc().Concurrent()
	total := make(chan time.Duration)
	for range 2 {
		go func() { total <- next() + next() }()
	}
	fmt.Println(<-total + <-total) // 1 + 2 + 4 + 8
	// Output: 15s
}

func ExampleTimer() {
	timer := wait.Backoff{Duration: time.Microsecond, Factor: 2, Steps: 3}.Timer()
	defer timer.Stop()
	for range 3 {
		<-timer.C()
		fmt.Println("tick")
		timer.Next()
	}
	// Output:
	// tick
	// tick
	// tick
}

func ExampleExponentialBackoff() {
	tries := 0
	err := wait.ExponentialBackoff(wait.Backoff{Duration: time.Microsecond, Factor: 2, Steps: 5},
		func() (bool, error) {
			tries++
			fmt.Println("try", tries)
			return tries == 3, nil
		})
	fmt.Println(err)
	// Output:
	// try 1
	// try 2
	// try 3
	// <nil>
}

func ExamplePollUntilContextTimeout() {
	err := wait.PollUntilContextTimeout(context.Background(), time.Microsecond, time.Millisecond, true,
		func(context.Context) (bool, error) { return false, nil })
	fmt.Println(err, wait.Interrupted(err))
	// Output: context deadline exceeded true
}

func ExampleInterrupted() {
	again := wait.Backoff{Steps: 3}
	err := wait.ExponentialBackoff(again, func() (bool, error) { return false, nil })
	fmt.Println(wait.Interrupted(err), err)

	err = wait.ExponentialBackoff(again, func() (bool, error) { return false, errors.New("disk on fire") })
	fmt.Println(wait.Interrupted(err), err)
	// Output:
	// true timed out waiting for the condition
	// false disk on fire
}

func ExampleUntilWithContext() {
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	wait.UntilWithContext(ctx, func(context.Context) {
		n++
		fmt.Println("round", n)
		if n == 3 {
			cancel()
		}
	}, time.Microsecond)
	// Output:
	// round 1
	// round 2
	// round 3
}

// A backoff that starts again once things have gone well for a minute.
func ExampleNewExponentialBackoffManager() {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	manager := wait.NewExponentialBackoffManager(30*time.Second, 5*time.Minute, time.Minute, 2, 0, clock)
	pause := func() {
		timer := manager.Backoff()
		var length time.Duration
		for len(timer.C()) == 0 {
			clock.Step(time.Second)
			length += time.Second
		}
		<-timer.C()
		fmt.Println(length)
	}

	pause()
	pause()
	pause() // the pause before was as long as the reset duration, and no idle time
	clock.Step(time.Minute + time.Second)
	pause()
	// Output:
	// 30s
	// 1m0s
	// 2m0s
	// 30s
}

func ExampleGroup() {
	ctx, cancel := context.WithCancel(context.Background())
	var group wait.Group
	group.StartWithContext(ctx, func(ctx context.Context) {
		<-ctx.Done()
		fmt.Println("worker leaves")
	})
	cancel()
	group.Wait()
	fmt.Println("all have left")
	// Output:
	// worker leaves
	// all have left
}
