package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

func limiters(w io.Writer) {
	exponential := workqueue.NewItemExponentialFailureRateLimiter(time.Millisecond, time.Second)
	for _, l := range []workqueue.RateLimiter{
		workqueue.DefaultControllerRateLimiter(),
		workqueue.DefaultItemBasedRateLimiter(),
		exponential,
		workqueue.NewItemFastSlowRateLimiter(time.Second, time.Minute, 2),
		workqueue.NewMaxOfRateLimiter(exponential, workqueue.DefaultItemBasedRateLimiter()),
		workqueue.NewWithMaxWaitRateLimiter(exponential, 3*time.Millisecond),
		&workqueue.BucketRateLimiter{Limiter: rate.NewLimiter(rate.Inf, 1)},
	} {
		fmt.Fprint(w, kind(l), ": ")
		fail[any](w, l, "a")
	}
	for _, l := range []workqueue.TypedRateLimiter[string]{
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.DefaultTypedItemBasedRateLimiter[string](),
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Second),
		workqueue.NewTypedItemFastSlowRateLimiter[string](time.Second, time.Minute, 2),
		workqueue.NewTypedMaxOfRateLimiter(workqueue.DefaultTypedItemBasedRateLimiter[string]()),
		workqueue.NewTypedWithMaxWaitRateLimiter(workqueue.DefaultTypedItemBasedRateLimiter[string](), 3*time.Millisecond),
		&workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(rate.Inf, 1)},
	} {
		fail(w, l, "a")
	}
}

// fail has a key fail four times.
func fail[T comparable](w io.Writer, l workqueue.TypedRateLimiter[T], item T) {
	for range 4 {
		fmt.Fprint(w, l.When(item), " ")
	}
	fmt.Fprint(w, l.NumRequeues(item))
	l.Forget(item)
	fmt.Fprintln(w, "", l.NumRequeues(item))
}

func kind(l workqueue.RateLimiter) string {
	switch l.(type) {
	case *workqueue.BucketRateLimiter:
		return "bucket"
	case *workqueue.ItemExponentialFailureRateLimiter:
		return "exponential"
	case *workqueue.ItemFastSlowRateLimiter:
		return "fast and slow"
	case *workqueue.MaxOfRateLimiter:
		return "the longest of several"
	case *workqueue.WithMaxWaitRateLimiter:
		return "cut"
	}
	return "another"
}

// Programs that store methods, for a table of handlers or a mock, name them by their concrete types.
var _ = []any{
	(*workqueue.Typed[string]).Add,
	(*workqueue.Typed[string]).Len,
	(*workqueue.Typed[string]).Get,
	(*workqueue.Typed[string]).Done,
	(*workqueue.Typed[string]).ShutDown,
	(*workqueue.Typed[string]).ShutDownWithDrain,
	(*workqueue.Typed[string]).ShuttingDown,

	(*workqueue.TypedBucketRateLimiter[string]).When,
	(*workqueue.TypedBucketRateLimiter[string]).Forget,
	(*workqueue.TypedBucketRateLimiter[string]).NumRequeues,
	(*workqueue.TypedItemExponentialFailureRateLimiter[string]).When,
	(*workqueue.TypedItemExponentialFailureRateLimiter[string]).Forget,
	(*workqueue.TypedItemExponentialFailureRateLimiter[string]).NumRequeues,
	(*workqueue.TypedItemFastSlowRateLimiter[string]).When,
	(*workqueue.TypedItemFastSlowRateLimiter[string]).Forget,
	(*workqueue.TypedItemFastSlowRateLimiter[string]).NumRequeues,
	(*workqueue.TypedMaxOfRateLimiter[string]).When,
	(*workqueue.TypedMaxOfRateLimiter[string]).Forget,
	(*workqueue.TypedMaxOfRateLimiter[string]).NumRequeues,
	workqueue.TypedWithMaxWaitRateLimiter[string].When,
	workqueue.TypedWithMaxWaitRateLimiter[string].Forget,
	workqueue.TypedWithMaxWaitRateLimiter[string].NumRequeues,
}

func parallel(w io.Writer) {
	var sum atomic.Int64
	var piece workqueue.DoWorkPieceFunc = func(piece int) { sum.Add(int64(piece)) }
	options := []workqueue.Options{workqueue.WithChunkSize(3)}
	workqueue.ParallelizeUntil(context.Background(), 4, 100, piece, options...)
	workqueue.ParallelizeUntil(context.Background(), 4, 10, func(piece int) { sum.Add(int64(piece)) })
	fmt.Fprintln(w, "sum", sum.Load())
}
