// Command dropin uses everything that client-go's workqueue exports, and prints what it sees. The
// tests of peers/compat build it as it is and with this module's import path, and compare the output.
package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func main() {
	global := newMetrics()
	workqueue.SetProvider(global)
	layer1(os.Stdout)
	layer2(os.Stdout)
	layer3(os.Stdout)
	untyped(os.Stdout)
	limiters(os.Stdout)
	parallel(os.Stdout)
	global.print(os.Stdout)
}

// lifo hands out the key that was pushed last.
type lifo struct{ workqueue.Queue[any] }

func (l lifo) Pop() any {
	// To the last of the keys, by taking the others round.
	for range l.Len() - 1 {
		l.Queue.Push(l.Queue.Pop())
	}
	return l.Queue.Pop()
}

func (l lifo) Touch(item any) {
	fmt.Println("touched", item)
	l.Queue.Touch(item)
}

func layer1(w io.Writer) {
	base := workqueue.DefaultQueue[any]()
	base.Push("first")
	fmt.Fprintln(w, "DefaultQueue:", base.Len(), base.Pop())

	config := workqueue.QueueConfig{
		Name:            "config",
		MetricsProvider: newMetrics(),
		Clock:           clock.RealClock{},
		Queue:           lifo{base},
	}
	for _, q := range []*workqueue.Type{
		workqueue.New(),
		workqueue.NewNamed("named"),
		workqueue.NewWithConfig(config),
	} {
		var i workqueue.Interface = q
		use[any](w, i, "a", "b")
	}
	var typed *workqueue.Typed[string] = workqueue.NewTyped[string]()
	use[string](w, typed, "a", "b")
	use[string](w, workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "typed"}), "a", "b")
	typed.Add("late")
	fmt.Fprintln(w, typed.Len(), typed.ShuttingDown())
	typed.Done("late")
	typed.ShutDown()
	typed.ShutDownWithDrain()
	_, shutdown := typed.Get()
	fmt.Fprintln(w, shutdown)
}

// use takes two keys through their lives, one of them twice.
func use[T comparable](w io.Writer, q workqueue.TypedInterface[T], a, b T) {
	q.Add(a)
	q.Add(b)
	q.Add(b)
	fmt.Fprint(w, "Len ", q.Len())
	for range 2 {
		item, shutdown := q.Get()
		fmt.Fprint(w, ", ", item, " ", shutdown)
		q.Add(b)
		q.Done(item)
	}
	fmt.Fprint(w, ", Len ", q.Len())
	for q.Len() > 0 {
		item, _ := q.Get()
		q.Done(item)
	}
	q.ShutDownWithDrain()
	q.ShutDown()
	_, shutdown := q.Get()
	fmt.Fprintln(w, ", ", q.ShuttingDown(), shutdown)
}

func layer2(w io.Writer) {
	logger := logr.Discard()
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	config := workqueue.DelayingQueueConfig{
		Logger:          &logger,
		Name:            "delaying",
		MetricsProvider: newMetrics(),
		Clock:           fake,
		Queue:           workqueue.New(),
	}
	for _, q := range []workqueue.DelayingInterface{
		workqueue.NewDelayingQueue(),
		workqueue.NewDelayingQueueWithConfig(config),
		workqueue.NewDelayingQueueWithCustomClock(fake, "clock"),
		workqueue.NewDelayingQueueWithCustomQueue(workqueue.New(), "queue"),
		workqueue.NewNamedDelayingQueue("named delaying"),
	} {
		delay[any](w, q, fake, "a")
		use[any](w, q, "b", "c")
	}
	for _, q := range []workqueue.TypedDelayingInterface[int]{
		workqueue.NewTypedDelayingQueue[int](),
		workqueue.TypedNewDelayingQueue[int](),
		workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[int]{Clock: fake}),
	} {
		delay(w, q, fake, 1)
		use[int](w, q, 2, 3)
	}
}

// delay has a key wait for a millisecond, on the real clock or on fake.
func delay[T comparable](w io.Writer, q workqueue.TypedDelayingInterface[T], fake *clocktesting.FakeClock, item T) {
	q.AddAfter(item, time.Millisecond)
	for q.Len() == 0 {
		// The queue may not have seen the key yet that waits, and then sees it after the step.
		fake.Step(time.Millisecond)
		time.Sleep(time.Millisecond)
	}
	item, _ = q.Get()
	fmt.Fprintln(w, "after a while:", item)
	q.Done(item)
}

func layer3(w io.Writer) {
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	limiter := workqueue.NewItemFastSlowRateLimiter(0, 0, 1)
	config := workqueue.RateLimitingQueueConfig{
		Name:            "limiting",
		MetricsProvider: newMetrics(),
		Clock:           fake,
		DelayingQueue:   workqueue.NewDelayingQueue(),
	}
	for _, q := range []workqueue.RateLimitingInterface{
		workqueue.NewRateLimitingQueue(limiter),
		workqueue.NewRateLimitingQueueWithConfig(limiter, config),
		workqueue.NewNamedRateLimitingQueue(limiter, "named limiting"),
		workqueue.NewRateLimitingQueueWithDelayingInterface(workqueue.NewDelayingQueue(), limiter),
	} {
		limit[any](w, q, "a")
		delay[any](w, q, fake, "b")
		use[any](w, q, "c", "d")
	}
	typedLimiter := workqueue.NewTypedItemFastSlowRateLimiter[string](0, 0, 1)
	typedConfig := workqueue.TypedRateLimitingQueueConfig[string]{Clock: fake}
	for _, q := range []workqueue.TypedRateLimitingInterface[string]{
		workqueue.NewTypedRateLimitingQueue(typedLimiter),
		workqueue.NewTypedRateLimitingQueueWithConfig(typedLimiter, typedConfig),
	} {
		limit(w, q, "a")
		delay(w, q, fake, "b")
		use[string](w, q, "c", "d")
	}
}

func limit[T comparable](w io.Writer, q workqueue.TypedRateLimitingInterface[T], item T) {
	q.AddRateLimited(item)
	q.AddRateLimited(item)
	got, _ := q.Get()
	fmt.Fprint(w, got, " failed ", q.NumRequeues(item))
	q.Forget(got)
	fmt.Fprintln(w, ", forgotten:", q.NumRequeues(item))
	q.Done(got)
}

// untyped calls methods on the interfaces that have no type parameters, as old programs do.
func untyped(w io.Writer) {
	var limiter workqueue.RateLimiter = workqueue.NewItemFastSlowRateLimiter(0, 0, 1)
	fmt.Fprint(w, "untyped: ", limiter.When("a"), " ", limiter.NumRequeues("a"))
	limiter.Forget("a")
	fmt.Fprintln(w, "", limiter.NumRequeues("a"))

	var limiting workqueue.RateLimitingInterface = workqueue.NewRateLimitingQueue(limiter)
	limiting.AddRateLimited("a")
	fmt.Fprintln(w, limiting.NumRequeues("a"))
	limiting.Forget("a")

	var delaying workqueue.DelayingInterface = limiting
	delaying.AddAfter("b", -time.Second)

	var q workqueue.Interface = delaying
	q.Add("c")
	for q.Len() > 0 {
		item, shutdown := q.Get()
		fmt.Fprintln(w, item, shutdown)
		q.Done(item)
	}
	q.ShutDownWithDrain()
	q.ShutDown()
	fmt.Fprintln(w, q.ShuttingDown())
}
