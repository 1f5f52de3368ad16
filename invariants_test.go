package workqueue

import (
	"fmt"
	"reflect"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/observe"
)

// This file is what the tests know of the inside of the queues. All that is guarded by a lock is read
// under it.

// CheckInvariants returns an error if one of the invariants that the code's comments state does not hold
// in q, at any of its layers. No other goroutine may be in the middle of a call of q.
func CheckInvariants[T comparable](q TypedInterface[T]) error {
	switch q := q.(type) {
	case *rateLimitingType[T]:
		return CheckInvariants[T](q.delaying)
	case *delayingType[T]:
		if err := q.checkInvariants(); err != nil {
			return err
		}
		return CheckInvariants[T](q.Extended)
	case *Typed[T]:
		return q.checkInvariants()
	}
	return nil // somebody else's queue
}

func (q *Typed[T]) checkInvariants() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.keys.Len(); n != q.queued+q.processing || q.queued < 0 || q.processing < 0 {
		return fmt.Errorf("%d keys, of which %d queued and %d processing", n, q.queued, q.processing)
	}
	if q.order != nil {
		if n := q.order.Len(); n != q.queued || q.ready.n != 0 {
			return fmt.Errorf("%d keys queued, %d in order, %d in ready", q.queued, n, q.ready.n)
		}
	} else if err := q.checkReady(); err != nil {
		return err
	}
	if q.drain != nil && (q.keys.Len() == 0 || !q.shuttingDown.Load()) {
		return fmt.Errorf("a drain waits with %d keys, shutting down: %v", q.keys.Len(), q.shuttingDown.Load())
	}
	if q.sleeping < 0 || len(q.wakeUps) > 0 && !q.wakeUpPending {
		return fmt.Errorf("%d sleep, pending %v, %d wake-ups", q.sleeping, q.wakeUpPending, len(q.wakeUps))
	}
	again := 0
	for n := range q.keys.Slabs() {
		for _, k := range q.keys.Slab(n) {
			if k.Value == dirty|processing {
				again++
			}
		}
	}
	if q.again != again {
		return fmt.Errorf("%d keys are dirty and processing, counted %d", again, q.again)
	}
	watchers := q.sleeping
	if q.drain != nil {
		watchers++
	}
	if q.watchers != watchers {
		return fmt.Errorf("%d watchers, want %d", q.watchers, watchers)
	}
	if s := q.latest.Slot(); s != keytable.None && q.keys.At(s).Value&processing == 0 {
		return fmt.Errorf("slot %d is the latest, and nobody holds its key", s)
	}
	if q.observer != nil {
		return q.checkObserver()
	}
	return nil
}

// checkReady: ready has each queued key once, and no others.
func (q *Typed[T]) checkReady() error {
	if err := q.ready.checkInvariants(); err != nil {
		return err
	}
	if q.ready.n != q.queued {
		return fmt.Errorf("%d keys queued, %d in ready", q.queued, q.ready.n)
	}
	seen := make(map[keytable.Slot]bool)
	for i := range q.ready.n {
		s := q.ready.buf[(q.ready.first+i)%len(q.ready.buf)]
		k := q.keys.At(s)
		if seen[s] || k.Value != dirty {
			return fmt.Errorf("slot %d in ready: state %b, seen before: %v", s, k.Value, seen[s])
		}
		seen[s] = true
		if found, _ := q.keys.Find(keytable.HashOf(k.Key), k.Key); found != s {
			return fmt.Errorf("key %v of slot %d is found in slot %d", k.Key, s, found)
		}
	}
	return nil
}

// checkObserver: the observer has the keys that workers hold, and no others.
func (q *Typed[T]) checkObserver() error {
	n := 0
	for s := range q.observer.Running() {
		if q.keys.At(s).Value&processing == 0 {
			return fmt.Errorf("the observer believes that slot %d is held", s)
		}
		n++
	}
	if n != q.processing {
		return fmt.Errorf("the observer knows %d keys that are held, of %d", n, q.processing)
	}
	return nil
}

func (q *delayingType[T]) checkInvariants() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.waiting.len(); n > 0 && (!q.looping || q.stopped) {
		return fmt.Errorf("%d keys wait, looping: %v, stopped: %v", n, q.looping, q.stopped)
	}
	return q.waiting.checkInvariants()
}

func (h *dueHeap[T]) checkInvariants() error {
	if h.keys.Len() != h.len() {
		return fmt.Errorf("%d keys, of which %d are in order and %d in storm", h.keys.Len(), h.order.Len(), h.storm.Len())
	}
	inStorm := h.storm.Len()
	for e := range h.inOrder() {
		k := h.keys.At(e.Slot)
		if s, _ := h.keys.Find(keytable.HashOf(k.Key), k.Key); s != e.Slot {
			return fmt.Errorf("heap: key %v of slot %d is found in slot %d", k.Key, e.Slot, s)
		}
		if inStorm > 0 {
			inStorm--
			if h.order.Has(e.Slot) {
				return fmt.Errorf("heap: slot %d is in storm and in order", e.Slot)
			}
		} else if at := h.order.At(e.Slot); at != e {
			return fmt.Errorf("heap: entry %v of slot %d is believed to be %v", e, e.Slot, at)
		}
	}
	return nil
}

func (r *ring[E]) checkInvariants() error {
	size := len(r.buf)
	if size&(size-1) != 0 || r.n < 0 || r.n > size || r.first < 0 || size > 0 && r.first >= size {
		return fmt.Errorf("ring: %d elements from %d in a buffer of %d", r.n, r.first, size)
	}
	for i := r.n; i < size; i++ {
		if v := reflect.ValueOf(&r.buf[(r.first+i)%size]).Elem(); !v.IsZero() {
			return fmt.Errorf("ring: %v left behind at %d", v, (r.first+i)%size)
		}
	}
	return nil
}

// WithoutProvider calls f as if SetProvider had not been called yet, and makes it so afterwards too.
func WithoutProvider(f func()) {
	old := observe.Global.Swap(nil)
	defer observe.Global.Store(old)
	f()
}

// FreeLock reports whether the lock of the FIFO in q is free, and sees to it that it is, so that a test
// that finds it held can go on to its end.
func FreeLock[T comparable](q TypedInterface[T]) bool {
	switch q := q.(type) {
	case *rateLimitingType[T]:
		return FreeLock[T](q.delaying)
	case *delayingType[T]:
		return FreeLock[T](q.Extended)
	case *Typed[T]:
		free := q.mu.TryLock()
		q.mu.Unlock()
		return free
	}
	return true
}

// CountFailures makes limiter count n failures of item, which would take long one by one.
func CountFailures[T comparable](limiter TypedRateLimiter[T], item T, n uint32) {
	var counts *failureCounts[T]
	switch limiter := limiter.(type) {
	case *TypedItemExponentialFailureRateLimiter[T]:
		counts = &limiter.failures
	case *TypedItemFastSlowRateLimiter[T]:
		counts = &limiter.failures
	}
	_, k, _ := counts.keys.FindOrInsert(keytable.HashOf(item), item)
	k.Value = n
}
