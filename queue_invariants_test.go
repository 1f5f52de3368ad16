package workqueue

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/observe"
)

// This file is what the tests know of the inside of the queues. All that is guarded by a lock is read under
// it.

// LogLeft is what a drain calls when no worker comes.
func (q *Typed[T]) LogLeft() { q.logLeft() }

// CheckInvariants returns an error if one of the invariants that the code's comments state does not hold
// in q, at any of its layers. No other goroutine may be in the middle of a call of q.
func CheckInvariants[T comparable](q TypedInterface[T]) error {
	switch q := q.(type) {
	case *rateLimitingType[T]:
		return CheckInvariants[T](q.delaying)
	case *extendedDelayingType[T]:
		if err := q.checkInvariants(); err != nil {
			return err
		}
		return CheckInvariants[T](q.Extended)
	case *Typed[T]:
		return q.checkInvariants()
	}
	return nil // a user's queue
}

func (q *Typed[T]) checkInvariants() error {
	q.mu.Lock()
	defer q.mu.UnlockAndSend()
	queued, held, again, marked, parked, againOnHold := 0, 0, 0, 0, 0, 0
	for n := range q.mu.keys.Slabs() {
		for s := range q.mu.keys.LiveSlots(n) {
			in := q.mu.keys.At(s).Value
			if (in&noted != 0) != q.mu.notes.Has(s) || in&quiet != 0 && in&(dirty|processing) != dirty|processing {
				return fmt.Errorf("key %v: state %b, has a note: %v", q.mu.keys.At(s).Key, in, q.mu.notes.Has(s))
			}
			if in&retried != 0 && in&(processing|dirty) != processing|dirty {
				return fmt.Errorf("key %v: state %b has a mark of held keys", q.mu.keys.At(s).Key, in)
			}
			if in&noted != 0 {
				marked++
			}
			if in&onHold != 0 {
				parked++
			}
			if in&(onHold|dirty) == onHold|dirty {
				againOnHold++
			}
			switch in & (dirty | processing) {
			case dirty:
				queued++
			case processing:
				held++
			case dirty | processing:
				held++
				again++
			}
		}
	}
	switch {
	case q.mu.notes.Len() != marked:
		return fmt.Errorf("%d notes about %d keys", q.mu.notes.Len(), marked)
	case q.mu.keys.Len() != queued+held:
		return fmt.Errorf("%d keys, %d of them queued and %d held", q.mu.keys.Len(), queued, held)
	case q.lenLocked() != queued:
		return fmt.Errorf("%d keys are dirty and not processing, %d in line", queued, q.lenLocked())
	case q.mu.processing != held || q.mu.again != again:
		return fmt.Errorf("%d keys held and %d dirty, counted %d and %d", held, again, q.mu.processing, q.mu.again)
	case q.mu.onHold != parked || q.mu.againOnHold != againOnHold:
		return fmt.Errorf("%d keys on hold, %d of them dirty, counted %d and %d", parked, againOnHold, q.mu.onHold,
			q.mu.againOnHold)
	}
	if err := q.checkReady(); err != nil {
		return err
	}
	if q.observer != nil {
		return q.checkObserver()
	}
	return nil
}

// checkReady: each key of ready is queued, and there once.
func (q *Typed[T]) checkReady() error {
	if err := q.mu.ready.checkInvariants(); err != nil {
		return err
	}
	seen := make(map[keytable.Slot]bool)
	for s := range q.mu.ready.all() {
		k := q.mu.keys.At(s)
		if seen[s] || k.Value&(dirty|processing) != dirty {
			return fmt.Errorf("slot %d in ready: state %b, seen before: %v", s, k.Value, seen[s])
		}
		seen[s] = true
		if found, _ := q.mu.keys.Find(keytable.HashOf(k.Key), k.Key); found != s {
			return fmt.Errorf("key %v of slot %d is found in slot %d", k.Key, s, found)
		}
	}
	return nil
}

// checkObserver: the observer has the keys that workers hold, but for those on hold, and no others.
func (q *Typed[T]) checkObserver() error {
	n := 0
	for s := range q.observer.Running() {
		if q.mu.keys.At(s).Value&(processing|onHold) != processing {
			return fmt.Errorf("the observer believes that slot %d is held", s)
		}
		n++
	}
	if n != q.mu.processing-q.mu.onHold {
		return fmt.Errorf("the observer knows %d keys that are held, of %d", n, q.mu.processing-q.mu.onHold)
	}
	return nil
}

func (q *extendedDelayingType[T]) checkInvariants() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	runs := q.loop.TendLocked(dueloop.Never)
	if n := q.mu.waiting.len(); n > 0 && (!runs || q.mu.stopped) {
		return fmt.Errorf("%d keys wait, looping: %v, stopped: %v", n, runs, q.mu.stopped)
	}
	return q.mu.waiting.checkInvariants()
}

func (h *dueHeap[T]) checkInvariants() error {
	if h.keys.Len() != h.len() {
		return fmt.Errorf("%d keys, %d of them in order", h.keys.Len(), h.len())
	}
	for e := range h.order.InOrder() {
		k := h.keys.At(e.Slot)
		if s, _ := h.keys.Find(keytable.HashOf(k.Key), k.Key); s != e.Slot {
			return fmt.Errorf("heap: key %v of slot %d is found in slot %d", k.Key, e.Slot, s)
		}
		if at := h.order.At(e.Slot); at != e {
			return fmt.Errorf("heap: entry %v of slot %d is believed to be %v", e, e.Slot, at)
		}
	}
	return nil
}

func (r *ring[E]) checkInvariants() error {
	n := 0
	for b := r.head; b != nil; b = b.next {
		switch {
		case b.first < 0 || b.first > b.end || b.end > len(b.buf):
			return fmt.Errorf("ring: elements %d to %d of a block of %d", b.first, b.end, len(b.buf))
		case b.first == b.end && r.n > 0:
			return errors.New("ring: an empty block")
		case b.next == nil && b != r.tail:
			return errors.New("ring: the tail is not the last block")
		case b.next != nil && b.end < len(b.buf):
			return fmt.Errorf("ring: %d elements in a block of %d before another one", b.end, len(b.buf))
		}
		n += b.end - b.first
		for i := range b.buf {
			if v := reflect.ValueOf(&b.buf[i]).Elem(); (i < b.first || i >= b.end) && !v.IsZero() {
				return fmt.Errorf("ring: %v left behind at %d", v, i)
			}
		}
	}
	if n != r.n {
		return fmt.Errorf("ring: %d elements in the blocks, want %d", n, r.n)
	}
	return nil
}

// WithoutProvider calls f as if SetProvider had not been called yet, and makes it so afterwards too.
func WithoutProvider(f func()) {
	old := observe.Global.Swap(nil)
	defer observe.Global.Store(old)
	f()
}

// FreeLock reports whether the lock of the FIFO in q is free, and unlocks it if it is not, so that a test
// can run to its end.
func FreeLock[T comparable](q TypedInterface[T]) bool {
	switch q := q.(type) {
	case *rateLimitingType[T]:
		return FreeLock[T](q.delaying)
	case *extendedDelayingType[T]:
		return FreeLock[T](q.Extended)
	case *Typed[T]:
		locked := make(chan struct{})
		go func() {
			q.mu.Lock()
			close(locked)
		}()
		defer q.mu.UnlockAndSend()
		select {
		case <-locked:
			return true
		case <-time.After(10 * time.Second):
			return false
		}
	}
	return true
}

// CountFailures makes limiter count n failures of item, which would take long one by one.
func CountFailures[T comparable](limiter TypedRateLimiter[T], item T, n uint32) {
	var counts *failureCounts[T]
	switch limiter := limiter.(type) {
	case *TypedItemExponentialFailureRateLimiter[T]:
		counts = &limiter.failureCounts
	case *TypedItemFastSlowRateLimiter[T]:
		counts = &limiter.failureCounts
	}
	_, k, _ := counts.keys.FindOrInsert(keytable.HashOf(item), item)
	k.Value = n
}
