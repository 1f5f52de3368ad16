package workqueue

import (
	"math"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/slotheap"
	"k8s.io/utils/clock"
)

// expiringKeys counts something for each key until the key expires. Each key has its own time to live. A key that has
// expired counts zero. There is no goroutine: each later call, for any key, gives back the memory of a few keys that have
// expired.
//
// Invariants, which checkInvariants in the tests asserts:
//   - The slots of keys are those in order.
//   - now is not above horizon, and what a key has left to live is below it, or the key lives forever.
type expiringKeys[T comparable] struct {
	clock clock.PassiveClock

	// mu guards what follows, and what else its limiter has. Nothing of the caller's but the clock is called under it.
	mu sync.Mutex
	// readAt is the clock's last reading. now is by how much the readings have advanced, at most horizon. It
	// does not go back with the clock, and goes on from where it was.
	readAt time.Time
	now    time.Duration

	keys keytable.Table[T, expiringKey]
	// order has for each key when it expires, on the scale of now.
	order slotheap.Heap
}

// expiringKey is what the limiters know of a key. It has no field of 64 bits: with the 32 bits of the hash beside
// it, that would leave a gap in the table.
type expiringKey struct {
	// count is zero when the key is new or has expired. span is the limiter's own, and not reset.
	count uint32
	span  packedDuration
}

// packedDuration is a Duration in two halves, the lower one first.
type packedDuration [2]uint32

func packed(d time.Duration) packedDuration { return packedDuration{uint32(d), uint32(d >> 32)} }

func (p packedDuration) duration() time.Duration {
	return time.Duration(p[1])<<32 | time.Duration(p[0])
}

const (
	// horizon is half of what a Duration expresses, so that a sum of two times does not overflow. A longer life does
	// not end.
	horizon = time.Duration(1 << 62)
	forever = time.Duration(math.MaxInt64)

	// maxExpired is how many expired keys a call drops. More than one, because each call may insert one.
	maxExpired = 4
)

func newExpiringKeys[T comparable](c clock.PassiveClock) expiringKeys[T] {
	if c == nil {
		c = clock.RealClock{}
	}
	return expiringKeys[T]{clock: c, readAt: c.Now()}
}

// tickLocked reads the clock and drops a few of the keys that have expired. It comes before all calls below.
func (k *expiringKeys[T]) tickLocked() {
	t := k.clock.Now()
	if d := t.Sub(k.readAt); d > 0 {
		k.now = min(dueloop.AddSaturated(k.now, d), horizon)
	}
	k.readAt = t
	for range maxExpired {
		if k.order.Len() == 0 || k.order.First().Rank > int64(k.now) {
			return
		}
		k.dropLocked(k.order.First().Slot)
	}
}

// tick is tickLocked, unless there are no keys. A program without failures should not even read the clock.
func (k *expiringKeys[T]) tick() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys.Len() > 0 {
		k.tickLocked()
	}
}

func (k *expiringKeys[T]) expiresLocked(s keytable.Slot) time.Duration {
	return time.Duration(k.order.At(s).Rank)
}

// findOrInsertLocked returns the slot of key, whose hash is h, what is known of it, and when it expires, which is now if
// it is new or has expired. The pointer is valid until the next call, which must be setLifeLocked.
func (k *expiringKeys[T]) findOrInsertLocked(h keytable.Hash, key T) (keytable.Slot, *expiringKey, time.Duration) {
	s, e, inserted := k.keys.FindOrInsert(h, key)
	expires := k.now
	if !inserted {
		expires = max(expires, k.expiresLocked(s))
	}
	if expires == k.now {
		e.Value.count = 0
	}
	return s, &e.Value, expires
}

// setLifeLocked gives the key at s a life of that length from now on.
func (k *expiringKeys[T]) setLifeLocked(s keytable.Slot, length time.Duration) {
	e := slotheap.Entry{Rank: int64(forever), Slot: s}
	if length < horizon {
		e.Rank = int64(k.now + length)
	}
	if k.order.Has(s) {
		k.order.Replace(e)
	} else {
		k.order.Push(e)
	}
}

func (k *expiringKeys[T]) count(key T) (n uint32) {
	k.find(key, func(s keytable.Slot) {
		if k.expiresLocked(s) > k.now {
			n = k.keys.At(s).Value.count
		}
	})
	return n
}

func (k *expiringKeys[T]) forget(key T) { k.find(key, k.dropLocked) }

// find calls locked with the slot of key, if it is there. Like tick it reads no clock if there are no keys: workers call
// Forget for every key, and most programs have no failures.
func (k *expiringKeys[T]) find(key T, locked func(keytable.Slot)) {
	keytable.CheckKey(key)
	h := keytable.HashOf(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys.Len() == 0 {
		return
	}
	k.tickLocked()
	if s, e := k.keys.Find(h, key); e != nil {
		locked(s)
	}
}

func (k *expiringKeys[T]) dropLocked(s keytable.Slot) {
	slotheap.Drop(&k.order, &k.keys, s)
}
