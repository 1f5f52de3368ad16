package debug

import (
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	// maxGivenUp is how many given-up keys a queue is asked for, and maxInPools how many failing ones a pool
	// lists.
	maxGivenUp = 10_000
	maxInPools = 10_000
)

// walk goes over keys of a reading.
type walk struct {
	*reading
	// atHand: it asks no server for more keys than the reading has.
	atHand bool
	// looked counts the keys that it has gone over, and more reports that it could not list all.
	looked int
	more   bool
}

// isPartial reports that not all keys that were asked for are known.
func (w *walk) isPartial() bool { return w.more || w.missing != nil }

// keysIn yields the keys in a state, or all that fail or were given up for allSets, each once. For "" it
// yields all keys, the pools' first and some of them several times. The keys that the reading has come first,
// in the order of its lists. Only a caller that wants more goes over all keys of the queue. If some cannot be
// listed, or the time is over before, w.isPartial reports it.
func (w *walk) keysIn(state string) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		for k := range w.list(state) {
			if w.ctx.Err() != nil {
				w.more = true
				return
			}
			if w.looked++; !yield(k) {
				return
			}
		}
	}
}

// keysWith yields those of keysIn whose errors contain text.
func (w *walk) keysWith(state, text string) iter.Seq[knownKey] {
	return filtered(w.keysIn(state), func(k knownKey) bool { return k.hasError(text) })
}

func (w *walk) list(state string) iter.Seq[knownKey] {
	switch state {
	case stateQueued:
		return w.inQueue(state, w.snapshot.Queued)
	case stateWaiting:
		return w.inQueue(state, w.snapshot.Waiting)
	case stateProcessing:
		running := w.keysInPools(worker.KeyRunning)
		if len(w.Pools) > 0 && w.Workers.Busy >= w.InWork() {
			return once(nil, running)
		}
		// The queue counts keys on hold as being processed.
		return once(w.onHold(), running, w.inQueue(state, w.snapshot.Processing))
	case stateOnHold:
		return slices.Values(w.onHold())
	case stateFailing:
		return once(nil, w.failingKeys)
	case stateGivenUp:
		return once(nil, w.keptKeys, w.givenUpInPools)
	case allSets:
		return once(nil, w.keptKeys, w.failingKeys, w.givenUpInPools)
	}
	running, onHold := w.keysInPools(worker.KeyRunning), slices.Values(w.onHold())
	if state == inHandlers {
		return concat(running, onHold)
	}
	return concat(running, onHold, w.allInQueue, w.keptKeys, w.failingAtHand, w.givenUpInPools)
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

// inQueue yields the first keys of a state and then, if the queue may have more of them, the others.
func (w *walk) inQueue(state string, first []workqueue.KeySnapshot[any]) iter.Seq[knownKey] {
	listed := slices.Values(mapped(first, fromQueue))
	if w.atHand || len(first) < w.limit {
		return listed
	}
	isOf := func(k knownKey) bool { return string(k.inQueue.State) == state }
	return once(nil, listed, filtered(w.allInQueue, isOf))
}

// allInQueue yields all keys of the queue. It ends early if the queue's server stops answering.
func (w *walk) allInQueue(yield func(knownKey) bool) {
	if !w.HasQueue() || w.missing != nil {
		return
	}
	n, step := 0, time.Now()
	for k := range w.entry.queue.SnapshotKeys() {
		if !yield(fromQueue(k)) {
			return
		}
		if n++; n%256 == 0 {
			if w.noteMissing(step) != nil {
				return
			}
			step = time.Now()
		}
	}
	w.noteMissing(step)
}

// keysInPools yields the keys that the pools have in that state, with what the queue's snapshot says of them.
func (w *walk) keysInPools(state worker.KeyState) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		snapshots := make(map[any]workqueue.KeySnapshot[any])
		for _, k := range w.snapshot.Processing {
			snapshots[k.Key] = k
		}
		for _, p := range w.Pools {
			for inPool := range p.pool.Keys(state) {
				k := fromPool(inPool)
				if s, isThere := snapshots[inPool.Key]; isThere {
					k.inQueue, k.hasAsked = s, true
				}
				if !yield(k) {
					return
				}
			}
		}
	}
}

// onHold returns the keys on hold, the one whose hold began first at the front.
func (w *walk) onHold() []knownKey {
	if w.Workers.OnHold == 0 {
		return nil
	}
	keys := slices.Collect(w.keysInPools(worker.KeyOnHold))
	w.more = w.more || w.Workers.OnHold > len(keys)
	slices.SortStableFunc(keys, func(a, b knownKey) int {
		return a.inPools.OnHold.Since.Compare(b.inPools.OnHold.Since)
	})
	return keys
}

// failingKeys yields the keys that fail: those at hand and then, if there may be others, those that the queue
// has, in no order.
func (w *walk) failingKeys(yield func(knownKey) bool) {
	others := func(func(knownKey) bool) {}
	if w.HasQueue() && len(w.snapshot.Failing) >= w.limit && !w.atHand {
		hasFailed := func(k knownKey) bool { return k.inQueue.Requeues > 0 }
		others = filtered(w.allInQueue, hasFailed)
	}
	concat(w.failingAtHand, others)(yield)
}

// failingAtHand yields the failing keys in the queue's snapshot, the most failures at the front. If these are
// not all, those that a pool lists follow, unless it would ask a server for them.
func (w *walk) failingAtHand(yield func(knownKey) bool) {
	inPools := func(func(knownKey) bool) {}
	isForPools := w.atHand || w.limit == 0 // A search for one key has no snapshot.
	if !w.HasQueue() || isForPools && len(w.snapshot.Failing) >= w.limit && w.Stats.Shared == nil {
		inPools = w.keysInPools(worker.KeyFailing)
		w.more = w.more || !w.HasQueue() && w.Workers.Failing > maxInPools
	}
	concat(slices.Values(mapped(w.snapshot.Failing, fromQueue)), inPools)(yield)
}

// keptKeys yields the keys that the queue itself keeps as given up.
func (w *walk) keptKeys(yield func(knownKey) bool) {
	hasAll := w.limit > 0 && len(w.kept) < searchLimit
	if q := w.entry.queue; q.GivenUp != nil && !hasAll && !w.atHand {
		w.askServer(func() { w.kept = q.GivenUp(maxGivenUp + 1) })
	}
	w.more = w.more || len(w.kept) > maxGivenUp
	for _, k := range w.kept[:min(len(w.kept), maxGivenUp)] {
		if !yield(fromKept(k)) {
			return
		}
	}
}

// givenUpInPools yields the keys that the pools list as given up.
func (w *walk) givenUpInPools(yield func(knownKey) bool) {
	isOut := func(k knownKey) bool { return k.inPools.GivenUp != nil } // Otherwise it fails again.
	filtered(w.keysInPools(worker.KeyGivenUp), isOut)(yield)
}
