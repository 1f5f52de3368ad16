package workqueue

import (
	"cmp"
	"math"
	"slices"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// RequeueLister is what a [TypedRateLimiter] may offer beside its methods, so that a queue's Snapshot can
// tell which keys keep failing. The limiters of this package that count failures do, and those that ask
// other limiters pass on what these list.
type RequeueLister[T comparable] interface {
	// MostRequeued returns up to limit keys with the most requeues, those with the most first. Only Key and
	// Requeues, which is above zero, are set. It is called by any goroutine at any time.
	MostRequeued(limit int) []KeySnapshot[T]
}

// MostRequeued returns up to limit keys with the most failures, those with the most first. It looks at all
// keys that have failed, some hundred at a time, and other calls come in between.
func (r *TypedItemExponentialFailureRateLimiter[T]) MostRequeued(limit int) []KeySnapshot[T] {
	return r.failures.most(limit)
}

// MostRequeued returns up to limit keys with the most failures, those with the most first. It looks at all
// keys that have failed, some hundred at a time, and other calls come in between.
func (r *TypedItemFastSlowRateLimiter[T]) MostRequeued(limit int) []KeySnapshot[T] {
	return r.failures.most(limit)
}

// MostRequeued returns up to limit keys with the most failures, those with the most first, without those
// that have expired. It looks at all keys, some hundred at a time, and other calls come in between.
func (r *itemBackoffRateLimiter[T]) MostRequeued(limit int) []KeySnapshot[T] {
	return mostRequeued(limit, func(n int, found *topKeys[T]) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.keys.keys.Len() == 0 {
			return false
		}
		r.keys.tick()
		for _, k := range r.keys.keys.Slab(n) {
			if k.Value.expires.duration() > r.keys.now {
				found.offer(k.Key, k.Value.count)
			}
		}
		return n+1 < r.keys.keys.Slabs()
	})
}

// MostRequeued returns up to limit keys with the most requeues, those with the most first, as the limiters
// tell that are RequeueListers.
func (r *TypedMaxOfRateLimiter[T]) MostRequeued(limit int) []KeySnapshot[T] {
	var keys []KeySnapshot[T]
	for _, limiter := range r.limiters {
		keys = append(keys, mostRequeuedOf(limiter, limit)...)
	}
	return most(keys, limit)
}

// MostRequeued returns what the other limiter returns, if it is a RequeueLister.
func (w TypedWithMaxWaitRateLimiter[T]) MostRequeued(limit int) []KeySnapshot[T] {
	return mostRequeuedOf(w.limiter, limit)
}

func (c *failureCounts[T]) most(limit int) []KeySnapshot[T] {
	return mostRequeued(limit, func(n int, found *topKeys[T]) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, k := range c.keys.Slab(n) {
			found.offer(k.Key, k.Value)
		}
		return n+1 < c.keys.Slabs()
	})
}

func mostRequeuedOf[T comparable](limiter TypedRateLimiter[T], limit int) []KeySnapshot[T] {
	if l, ok := limiter.(RequeueLister[T]); ok {
		return l.MostRequeued(limit)
	}
	return nil
}

// topKeys has the best keys so far, and some hundred that have to be looked through.
type topKeys[T comparable] struct {
	keys []KeySnapshot[T]
	// above is what a key must have more requeues than to be among the best.
	above int
}

func (t *topKeys[T]) offer(key T, requeues uint32) {
	if int(requeues) > t.above {
		t.keys = append(t.keys, KeySnapshot[T]{Key: key, Requeues: int(requeues)})
	}
}

// mostRequeued returns the best of the keys that scan offers, slab by slab, until it returns false. What
// takes longer is done here, where scan holds no lock.
func mostRequeued[T comparable](limit int, scan func(n int, found *topKeys[T]) bool) []KeySnapshot[T] {
	limit = min(limit, math.MaxInt32/2)
	if limit <= 0 {
		return nil
	}
	var found topKeys[T]
	for n, more := 0, true; more; n++ {
		more = scan(n, &found)
		if len(found.keys) < 2*limit {
			continue
		}
		found.keys = most(found.keys, limit)
		if len(found.keys) == limit {
			found.above = found.keys[limit-1].Requeues
		}
	}
	return most(found.keys, limit)
}

// most sorts keys and returns the first limit of them, each once: one that was forgotten and has failed
// again may have been found in both of its slots.
func most[T comparable](keys []KeySnapshot[T], limit int) []KeySnapshot[T] {
	slices.SortStableFunc(keys, func(a, b KeySnapshot[T]) int { return cmp.Compare(b.Requeues, a.Requeues) })
	seen := make(map[T]struct{}, min(len(keys), max(limit, 0)))
	n := 0
	for _, k := range keys {
		if n >= limit {
			break
		}
		if _, again := seen[k.Key]; !again {
			seen[k.Key] = struct{}{}
			keys[n] = k
			n++
		}
	}
	return slices.Delete(keys, n, len(keys))
}

// inspectWaiting returns when key is due, if it waits.
func (q *delayingType[T]) inspectWaiting(key T) (k KeySnapshot[T], waits bool) {
	h := keytable.HashOf(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	s, e := q.waiting.keys.Find(h, key)
	if e == nil || !q.waiting.order.Has(s) {
		return k, false
	}
	return q.waiting.snapshot(q.waiting.order.At(s)), true
}
