// Package rounds says when each key of a list comes, once in a period, at its own moment.
package rounds

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"
)

// Rounds has the keys of a list, which come round after round. A round is one period. The zero Rounds has no
// keys. It is not safe for concurrent use.
type Rounds[K any] struct {
	period time.Duration
	begun  time.Time  // when the round began
	keys   []keyAt[K] // in the order of their moments
	next   int        // the index of the key that comes next
}

// keyAt is a key and its moment, as the time since the round has begun.
type keyAt[K any] struct {
	offset time.Duration
	key    K
}

// Begin begins a round with a new list. untilMoment returns the time from now until a key's next moment, or
// the moment after it if the next one is near.
func (r *Rounds[K]) Begin(keys []K, period time.Duration, now time.Time, untilMoment func(K) time.Duration) {
	*r = Rounds[K]{period: period, begun: now, keys: make([]keyAt[K], len(keys))}
	for i, key := range keys {
		offset := untilMoment(key)
		if offset > period { // The next one was near.
			offset -= period
		}
		r.keys[i] = keyAt[K]{offset, key}
	}
	slices.SortStableFunc(r.keys, func(a, b keyAt[K]) int { return cmp.Compare(a.offset, b.offset) })
}

// UntilNext returns for how long no key comes: without keys forever.
func (r *Rounds[K]) UntilNext(now time.Time) time.Duration {
	if len(r.keys) == 0 {
		return math.MaxInt64
	}
	return r.keys[r.next].offset - now.Sub(r.begun)
}

// Due yields the keys whose moment has come, each once, and begins the next round after the last key. If the
// machine slept for many rounds, each key comes once for all of them. The next call yields what is due in the
// present round.
func (r *Rounds[K]) Due(now time.Time) iter.Seq[K] {
	return func(yield func(K) bool) {
		for range r.keys {
			since := now.Sub(r.begun)
			due := r.keys[r.next]
			if due.offset > since {
				return
			}
			if r.next++; r.next == len(r.keys) {
				passed := max(r.period, since.Truncate(r.period)) // more than one after a sleep
				r.next, r.begun = 0, r.begun.Add(passed)
			}
			if !yield(due.key) {
				return
			}
		}
	}
}
