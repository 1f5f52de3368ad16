package sharding

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
	"github.com/keyedqueue/workqueue/workqueuetest"
)

// holdingAll returns a member that holds all slots, without a group.
func holdingAll(slots int) *Member {
	config, err := Config{Group: "g", Slots: slots}.withDefaults()
	if err != nil {
		panic(err)
	}
	m := &Member{config: config, logger: memberLog{to: config.Logger}, start: time.Now(), slots: make([]ownSlot, slots),
		states: make([]atomic.Uint32, slots), toWork: make(chan struct{}, 1)}
	m.ctx, m.end = context.WithCancel(context.Background())
	m.queues.Store(&[]memberQueue{})
	forever := moment{math.MaxInt64 / 2, math.MaxInt64 / 2}
	m.mu.self = ownRecord{id: "a", alive: true, follows: "t", renewed: forever}
	m.mu.view = view{table: emptyTable("t", slots, 1), confirmed: forever}
	m.mu.wasValid = m.updateValidityLocked()
	for s := range m.slots {
		m.mu.view.table.give(s, "a")
		m.slots[s].tenure.Store(&tenure{epoch: 1})
		m.setState(s, serving)
	}
	return m
}

func noKeys[T any](context.Context) (iter.Seq[T], error) { return nil, nil }

func listOf[T any](keys ...T) func(context.Context) (iter.Seq[T], error) {
	return func(context.Context) (iter.Seq[T], error) { return slices.Values(keys), nil }
}

func rootQueue[T comparable](c workqueuetest.Config[T]) workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(c.RateLimiter,
		workqueue.TypedRateLimitingQueueConfig[T]{Name: c.Name, Clock: c.Clock, MetricsProvider: c.MetricsProvider})
}

// Over a queue of package workqueue the whole contract holds for keys of slots that are held.
func TestConformance(t *testing.T) {
	workqueuetest.Suite{
		New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
			return mustQueue(rootQueue(c), holdingAll(16), QueueConfig[string]{Keys: noKeys[string]})
		},
		NewAny: func(c workqueuetest.Config[any]) workqueue.TypedInterface[any] {
			return mustQueue(rootQueue(c), holdingAll(16), QueueConfig[any]{Keys: noKeys[any],
				Hash: func(any) uint64 { return 7 }})
		},
		Check: allDone,
	}.Run(t)
}

// Over package priorityqueue, with one slot and a hash of the user, what holds is what holds there.
func TestPriorityConformance(t *testing.T) {
	workqueuetest.Suite{
		New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
			inner := priorityqueue.New(priorityqueue.Config[string]{
				Name: c.Name, MetricsProvider: c.MetricsProvider, Clock: c.Clock, RateLimiter: c.RateLimiter,
			})
			return mustQueue(inner, holdingAll(1), QueueConfig[string]{Keys: noKeys[string], Hash: HashString})
		},
		NewAny: func(c workqueuetest.Config[any]) workqueue.TypedInterface[any] {
			inner := priorityqueue.New(priorityqueue.Config[any]{Clock: c.Clock, RateLimiter: c.RateLimiter})
			return mustQueue(inner, holdingAll(1), QueueConfig[any]{Keys: noKeys[any],
				Hash: func(any) uint64 { return 7 }})
		},
		Check:         allDone,
		NoMetrics:     true,
		OneEntry:      true,
		PlaceOfAdd:    true,
		MergesRetries: true,
	}.Run(t)
}

// allDone checks that the member counts as many running handlers as there are keys being processed.
func allDone(tested workqueue.TypedInterface[string]) error {
	q, ok := tested.(*queue[string])
	if !ok {
		q = tested.(*operableQueue[string]).queue
	}
	n := 0
	for s := range q.running {
		n += q.handlers(s)
	}
	if p := q.Stats().Processing; n != p {
		return fmt.Errorf("%d handlers, %d keys are being processed", n, p)
	}
	return nil
}

// Over a foreign queue, which has none of the contract's interfaces, the wrapper has them nevertheless.
func TestWrapperKeepsInterfaces(t *testing.T) {
	config := QueueConfig[string]{Keys: noKeys[string]}
	for _, inner := range []workqueue.TypedRateLimitingInterface[string]{
		workqueue.NewTypedRateLimitingQueue[string](nil),
		priorityqueue.New(priorityqueue.Config[string]{}),
		struct {
			workqueue.TypedRateLimitingInterface[string]
		}{workqueue.NewTypedRateLimitingQueue[string](nil)},
	} {
		q := mustQueue(inner, holdingAll(1), config)
		workqueuetest.Wraps(t, workqueue.TypedInterface[string](q), workqueue.TypedInterface[string](inner))
		if _, ok := q.(leasing.Leaser[string]); !ok {
			t.Errorf("%T is no Leaser", q)
		}
		q.ShutDown()
	}
}

// A handler that asks for a second backs off over a limiter that doubles: the delay of the limiter counts,
// once it is longer.
func TestRetryAfterBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour)
		inner := workqueue.NewTypedRateLimitingQueue(limiter)
		q := mustQueue(inner, holdingAll(1), QueueConfig[string]{Keys: noKeys[string]})
		calls := 0
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		q.Add("a")
		_ = worker.Run(ctx, q, func(context.Context, string) error {
			calls++
			return worker.RetryAfter(errors.New("broken"), time.Second)
		}, worker.Options[string]{Logger: slog.New(slog.DiscardHandler)})
		if calls != 10 {
			t.Errorf("%d calls in ten minutes, want 10", calls)
		}
	})
}
