// Package expiring keeps something for each key until the key expires.
package expiring

import (
	"math"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
	"k8s.io/utils/clock"
)

// Keys has a value for each key, and each key has its own time to live. There is no goroutine: calls for
// other keys drop keys that have expired. The slots of Table are those in Order. Now is not above Horizon,
// and what a key has left to live is below it, or the key lives forever.
type Keys[T comparable, V any] struct {
	clock clock.PassiveClock

	// Mu guards what follows, and what else its user has. No foreign code but the clock runs under it.
	Mu sync.Mutex
	// Table has the keys, and Order when each expires, on the scale of Now.
	Table keytable.Table[T, V]
	Order slotheap.Heap
	// readAt is the clock's last reading. Now is by how much the readings have advanced: it does not go back
	// with the clock.
	readAt  time.Time
	wasRead bool
	Now     time.Duration
}

const (
	// Horizon is half of what a Duration expresses: no sum of two overflows. A longer life does not end.
	Horizon = time.Duration(1 << 62)
	// Forever is a life without end.
	Forever = time.Duration(math.MaxInt64)

	// maxDropped is how many expired keys a call drops: it takes a millisecond at most.
	maxDropped = 1 << 12
)

// New returns Keys on that clock, the real one if c is nil.
func New[T comparable, V any](c clock.PassiveClock) Keys[T, V] {
	if c == nil {
		c = clock.RealClock{}
	}
	return Keys[T, V]{clock: c}
}

// AdvanceLocked reads the clock. It comes before all calls below that depend on the time.
func (k *Keys[T, V]) AdvanceLocked() {
	t := k.clock.Now()
	if k.wasRead {
		k.Now = min(dueloop.AddSaturated(k.Now, max(0, t.Sub(k.readAt))), Horizon)
	}
	k.readAt, k.wasRead = t, true
}

// TimeLocked returns the clock's time at now, on the scale of Now.
func (k *Keys[T, V]) TimeLocked(now time.Duration) time.Time { return k.readAt.Add(now - k.Now) }

// TickLocked is AdvanceLocked, and drops keys that have expired.
func (k *Keys[T, V]) TickLocked() {
	k.AdvanceLocked()
	for range maxDropped {
		if k.Order.Len() == 0 || k.Order.First().Rank > int64(k.Now) {
			return
		}
		k.DropLocked(k.Order.First().Slot)
	}
}

// ExpiredLocked returns up to limit keys that have expired, in no particular order.
func (k *Keys[T, V]) ExpiredLocked(limit int) (keys []T) {
	if k.Order.Len() == 0 || k.Order.First().Rank > int64(k.Now) {
		return nil
	}
	for e := range k.Order.InOrder() {
		if len(keys) == limit || e.Rank > int64(k.Now) {
			break
		}
		keys = append(keys, k.Table.At(e.Slot).Key)
	}
	return keys
}

// ExpiresLocked returns when the key at s expires.
func (k *Keys[T, V]) ExpiresLocked(s keytable.Slot) time.Duration {
	return time.Duration(k.Order.At(s).Rank)
}

// SetLifeLocked gives the key at s a life of that length. A key just inserted must get one before the unlock.
func (k *Keys[T, V]) SetLifeLocked(s keytable.Slot, length time.Duration) {
	e := slotheap.Entry{Rank: int64(Forever), Slot: s}
	if length < Horizon {
		e.Rank = int64(k.Now + length)
	}
	k.Order.Set(e)
}

// Forget drops key.
func (k *Keys[T, V]) Forget(key T) { k.Find(key, k.DropLocked) }

// Find calls locked with the slot of key, if it is there. It drops what has expired. While there are no keys,
// as in a program without failures, it does not even read the clock.
func (k *Keys[T, V]) Find(key T, locked func(keytable.Slot)) {
	h := keytable.HashOf(key)
	k.Mu.Lock()
	defer k.Mu.Unlock()
	if k.Table.Len() > 0 {
		k.TickLocked()
	}
	if s, e := k.Table.Find(h, key); e != nil {
		locked(s)
	}
}

// DropLocked drops the key at s.
func (k *Keys[T, V]) DropLocked(s keytable.Slot) { slotheap.Drop(&k.Order, &k.Table, s) }
