package debug

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// maxGivenUp is how many given-up keys a queue is asked for.
const maxGivenUp = 10_000

// keysIn yields the keys in a state, or all that fail or were given up for allSets, each once. For "" it
// yields all keys, the pools' first and some of them several times. The keys that the reading has come first,
// in the order of its lists. Only a caller that wants more goes over all keys of the queue. If some cannot be
// listed, or ctx ends before, r.isPartial reports it.
func (r *reading) keysIn(ctx context.Context, state string) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		for k := range r.list(state) {
			if ctx.Err() != nil {
				r.more = true
				return
			}
			if !yield(k) {
				return
			}
		}
	}
}

// keysWith yields those of keysIn whose errors contain text.
func (r *reading) keysWith(ctx context.Context, state, text string) iter.Seq[knownKey] {
	return filtered(r.keysIn(ctx, state), func(k knownKey) bool { return k.hasError(text) })
}

func (r *reading) list(state string) iter.Seq[knownKey] {
	switch state {
	case stateQueued:
		return r.inQueue(state, r.snapshot.Queued)
	case stateWaiting:
		return r.inQueue(state, r.snapshot.Waiting)
	case stateProcessing:
		running, others := r.keysInPools(worker.KeyRunning), r.inQueue(state, r.snapshot.Processing)
		if r.hasPools() && r.workers.Busy >= r.inWork() {
			return once(nil, running)
		}
		return once(r.onHold(), running, others) // The queue counts both as being processed.
	case stateOnHold:
		return slices.Values(r.onHold())
	case stateFailing:
		return once(nil, r.failingKeys)
	case stateGivenUp:
		return once(nil, r.keptKeys, r.givenUpInPools)
	case allSets:
		return once(nil, r.keptKeys, r.failingKeys, r.givenUpInPools)
	}
	running, onHold := r.keysInPools(worker.KeyRunning), slices.Values(r.onHold())
	return concat(running, onHold, r.inQueue("", nil), r.list(allSets))
}

func concat(lists ...iter.Seq[knownKey]) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		for _, keys := range lists {
			for k := range keys {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func filtered(keys iter.Seq[knownKey], is func(knownKey) bool) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		for k := range keys {
			if is(k) && !yield(k) {
				return
			}
		}
	}
}

// once yields the keys of all lists but those in without, each as the first list has it.
func once(without []knownKey, lists ...iter.Seq[knownKey]) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		seen := make(map[any]bool)
		for _, k := range without {
			seen[k.key()] = true
		}
		concat(lists...)(func(k knownKey) bool {
			isNew := !seen[k.key()]
			seen[k.key()] = true
			return !isNew || yield(k)
		})
	}
}

// firstOf returns the first keys, limit at most.
func firstOf(keys iter.Seq[knownKey], limit int) (first []knownKey) {
	for k := range keys {
		if first = append(first, k); len(first) == limit {
			break
		}
	}
	return first
}

// inQueue yields the first keys of a state and then, if the queue may have more of them, the others. For ""
// it yields all keys of the queue.
func (r *reading) inQueue(state string, first []workqueue.KeySnapshot[any]) iter.Seq[knownKey] {
	listed := slices.Values(mapped(first, fromQueue))
	if state != "" && len(first) < r.limit {
		return listed
	}
	seen := make(map[any]bool, len(first))
	for _, k := range first {
		seen[k.Key] = true
	}
	return concat(listed, filtered(r.allInQueue, func(k knownKey) bool {
		return state == "" || string(k.inQueue.State) == state && !seen[k.key()]
	}))
}

// allInQueue yields all keys of the queue. It ends early if the queue's server stops answering.
func (r *reading) allInQueue(yield func(knownKey) bool) {
	if !r.entry.hasQueue() || r.missing != nil {
		return
	}
	n, step := 0, time.Now()
	for k := range r.entry.queue.SnapshotKeys() {
		if r.looked++; !yield(fromQueue(k)) {
			return
		}
		if n++; n%256 == 0 {
			if r.noteMissing(step) != nil {
				return
			}
			step = time.Now()
		}
	}
	r.noteMissing(step)
}

// keysInPools yields the keys that the pools have in that state, with what the queue's snapshot says of them.
func (r *reading) keysInPools(state worker.KeyState) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		snapshots := make(map[any]workqueue.KeySnapshot[any])
		for _, k := range r.snapshot.Processing {
			snapshots[k.Key] = k
		}
		for _, p := range r.pools {
			for inPool := range p.pool.Keys(state) {
				k := fromPool(inPool)
				if s, isThere := snapshots[inPool.Key]; isThere {
					k.inQueue, k.hasAsked = s, true
				}
				if r.looked++; !yield(k) {
					return
				}
			}
		}
	}
}

// onHold returns the keys on hold, the one whose hold began first at the front.
func (r *reading) onHold() []knownKey {
	if r.workers.OnHold == 0 {
		return nil
	}
	keys := slices.Collect(r.keysInPools(worker.KeyOnHold))
	r.more = r.more || r.workers.OnHold > len(keys)
	slices.SortStableFunc(keys, func(a, b knownKey) int {
		return a.inPools.OnHold.Since.Compare(b.inPools.OnHold.Since)
	})
	return keys
}

// failingKeys yields the keys that fail. Those in the queue's snapshot come first, the most failures at the
// front. If there may be others, these follow in no order.
func (r *reading) failingKeys(yield func(knownKey) bool) {
	hasAll := r.entry.hasQueue() && len(r.snapshot.Failing) < r.limit
	lists := []iter.Seq[knownKey]{slices.Values(mapped(r.snapshot.Failing, fromQueue))}
	for _, p := range r.pools {
		isOwn := hashable(p.pool.Queue) != nil && hashable(p.pool.Queue) == hashable(r.entry.queue.Queue)
		if isOwn && (hasAll || !r.atHand) || r.atHand && r.stats.Shared != nil {
			continue // The queue itself has them, or the pool would ask its server.
		}
		lists = append(lists, func(yield func(knownKey) bool) {
			n := 0
			for k := range p.pool.Keys(worker.KeyFailing) {
				if n++; !yield(fromPool(k)) {
					return
				}
			}
			r.more = r.more || !isOwn && n < p.stats.Failing
		})
	}
	if r.entry.hasQueue() && !hasAll && !r.atHand {
		hasFailed := func(k knownKey) bool { return k.inQueue.Requeues > 0 }
		lists = append(lists, filtered(r.allInQueue, hasFailed))
		// A full list may lack keys that are not in the queue.
		r.more = r.more || !r.hasPools() && len(r.snapshot.Failing) >= searchLimit
	}
	concat(lists...)(yield)
}

// keptKeys yields the keys that the queue itself keeps as given up.
func (r *reading) keptKeys(yield func(knownKey) bool) {
	hasAll := r.limit > 0 && len(r.kept) < searchLimit
	if q := r.entry.queue; q.GivenUp != nil && !hasAll && !r.atHand {
		r.askServer(func() { r.kept = q.GivenUp(maxGivenUp + 1) })
	}
	r.more = r.more || len(r.kept) > maxGivenUp
	for _, k := range r.kept[:min(len(r.kept), maxGivenUp)] {
		if !yield(fromKept(k)) {
			return
		}
	}
}

// givenUpInPools yields the keys that the pools list as given up.
func (r *reading) givenUpInPools(yield func(knownKey) bool) {
	isOut := func(k knownKey) bool { return k.inPools.GivenUp != nil } // Otherwise it fails again.
	filtered(r.keysInPools(worker.KeyGivenUp), isOut)(yield)
}
