package workqueue

import (
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue/internal/dueloop"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"k8s.io/utils/clock"
)

// expiringKeys counts something for each key until the key expires. Each key has its own time to live. A key that has
// expired counts zero. There is no goroutine: each later call, for any key, looks at a few keys and gives
// back the memory of those that have expired.
//
// The keys that will expire are in lists: list n has those that were given a life of at least 2^n and less than 2^(n+1)
// ns, in the order in which it was given. So what stands before a key in its list expires before the key has lived
// twice its life, and it is enough to drop keys from the front of the lists.
//
// A call inserts one key at most, and makes sweepSteps steps: each drops a key, or goes on to the next
// list. If each call inserts a key and one expires meanwhile, a round of all lists takes a third as many
// calls as there are lists, and no more keys than that wait to be dropped.
//
// Invariants, which checkInvariants in the tests asserts:
//   - A key whose life ends is in the list that its list says, and a key that lives forever is in none.
//   - Every list is in order of time given.
//   - now is not above horizon, and what any key has left to live is below it.
type expiringKeys[T comparable] struct {
	clock clock.PassiveClock

	// mu guards what follows, and what else its limiter has. Nothing of the caller's but the clock is called under it.
	mu sync.Mutex
	// readAt is the clock's last reading. now is by how much the readings have advanced, at most horizon. It
	// does not go back with the clock, and goes on from where it was.
	readAt time.Time
	now    time.Duration

	keys  keytable.Table[T, expiringKey]
	links keytable.Lists
	lists [lifeLists]keytable.List
	// hand is the list to look at next.
	hand int
}

// expiringKey is what the limiters know of a key. It has no field of 64 bits: with the 32 bits of the hash beside
// it, that would leave a gap in the table.
type expiringKey struct {
	expires packedDuration // as expiringKeys.now
	// count is zero when the key is new or has expired. span is the limiter's own, and not reset.
	count uint32
	span  packedDuration
	list  uint32 // the number of the key's list and one, or zero
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

	// lifeLists is the number of lists, as a life is at least 1 ns and less than horizon.
	lifeLists  = 62
	sweepSteps = 4
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
	for range sweepSteps {
		s := k.lists[k.hand].First()
		if s != keytable.None && k.keys.At(s).Value.expires.duration() <= k.now {
			k.dropLocked(s)
		} else {
			k.hand = (k.hand + 1) % lifeLists
		}
	}
}

// countLocked returns the count of key, whose hash is h.
func (k *expiringKeys[T]) countLocked(h keytable.Hash, key T) uint32 {
	_, e := k.keys.Find(h, key)
	if e == nil || e.Value.expires.duration() <= k.now {
		return 0
	}
	return e.Value.count
}

// findOrInsertLocked returns the slot of key, whose hash is h, and what is known of it. The pointer is valid
// until the next call, which must be setLifeLocked.
func (k *expiringKeys[T]) findOrInsertLocked(h keytable.Hash, key T) (keytable.Slot, *expiringKey) {
	s, e, _ := k.keys.FindOrInsert(h, key)
	if e.Value.expires.duration() <= k.now { // also true of a new key
		e.Value.count = 0
	}
	return s, &e.Value
}

// setLifeLocked gives the key at s a life of that length from now on, which is positive.
func (k *expiringKeys[T]) setLifeLocked(s keytable.Slot, length time.Duration) {
	k.unlinkLocked(s)
	key := &k.keys.At(s).Value
	if length >= horizon {
		key.expires = packed(forever)
		return
	}
	list := bits.Len64(uint64(length)) - 1
	key.expires, key.list = packed(k.now+length), uint32(list)+1
	k.links.Append(&k.lists[list], s)
}

// forget drops key. A program without failures that forgets each key should not even read the clock for it.
func (k *expiringKeys[T]) forget(key T) {
	keytable.CheckKey(key)
	h := keytable.HashOf(key)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys.Len() == 0 {
		return
	}
	k.tickLocked()
	if s, e := k.keys.Find(h, key); e != nil {
		k.dropLocked(s)
	}
}

func (k *expiringKeys[T]) dropLocked(s keytable.Slot) {
	k.unlinkLocked(s)
	k.keys.Delete(s)
	if !k.keys.HasMemory(s) {
		k.links.Release(s)
	}
}

// unlinkLocked takes the key at s out of its list, if it is in one.
func (k *expiringKeys[T]) unlinkLocked(s keytable.Slot) {
	key := &k.keys.At(s).Value
	if key.list > 0 {
		k.links.Remove(&k.lists[key.list-1], s)
		key.list = 0
	}
}
