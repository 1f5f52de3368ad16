package handlertest

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
)

// processQueue is the queue of a process. Some adds reach it late, and some keys are added once more after
// they were handed out. A crash shuts it down, and so drops what the dead process still adds.
type processQueue[K comparable] struct {
	workqueue.ExtendedRateLimiting[K]
	process *Process
}

func newQueue[K comparable](p *Process) *processQueue[K] {
	delays := workqueue.NewTypedItemExponentialFailureRateLimiter[K](5*time.Millisecond, 1000*time.Second)
	queue := workqueue.NewTypedRateLimitingQueue(delays)
	return &processQueue[K]{queue.(workqueue.ExtendedRateLimiting[K]), p}
}

func (q *processQueue[K]) disturb(kind string, key K) time.Duration {
	if q.process.isDead() {
		// The pool also takes keys of a queue that the crash shuts down: which ones depends on the scheduler of Go.
		return 0
	}
	s, name := q.process.sim, q.process.named(textOf(key)) // Another process may do the same at this moment.
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.disturb(kind, name)
}

// after lets add happen after d, and says so in the story.
func (q *processQueue[K]) after(d time.Duration, key K, what string, add func()) {
	s, text := q.process.sim, textOf(key)
	name := q.process.named(text)
	s.after(d, name, q.process, func() {
		s.tell(text, "%s: %s", name, what)
		add()
	})
}

// addLate calls add, perhaps later.
func (q *processQueue[K]) addLate(key K, add func()) {
	if d := q.disturb(late, key); d > 0 {
		q.after(d, key, "an add reaches the queue late", add)
	} else {
		add()
	}
}

func (q *processQueue[K]) Add(key K) { q.addLate(key, func() { q.ExtendedRateLimiting.Add(key) }) }

func (q *processQueue[K]) AddCause(key K, cause workqueue.Cause) {
	q.addLate(key, func() { q.ExtendedRateLimiting.AddCause(key, cause) })
}

func (q *processQueue[K]) AddAfter(key K, d time.Duration) {
	q.addLate(key, func() { q.ExtendedRateLimiting.AddAfter(key, d) })
}

// Next is the way in which a pool gets keys.
func (q *processQueue[K]) Next(ctx context.Context) (workqueue.HandOut[K], error) {
	h, err := q.ExtendedRateLimiting.Next(ctx)
	if err != nil {
		return h, err
	}
	if d := q.disturb(again, h.Key); d > 0 {
		q.after(d, h.Key, "is added once more", func() { q.ExtendedRateLimiting.Add(h.Key) })
	}
	return h, nil
}
