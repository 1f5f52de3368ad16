package debug

import (
	"context"
	"iter"
	"net/http"
	"slices"
	"time"
)

// maxGivenUp is how many given-up keys a queue is asked for by a keyWalk.
const maxGivenUp = 10_000

// keyWalk goes over all keys of a queue that match: those of the reading's lists, and then, if there may be
// others, all that the queue has. It needs the lists: see readKeys.
type keyWalk struct {
	*reading
	// looked counts the keys that it has gone over, and hasLeft reports that it could not go over all.
	looked  int
	hasLeft bool
}

// isPartial reports that not all keys that match are known.
func (w *keyWalk) isPartial() bool { return w.hasLeft || w.missing != nil }

// keys yields the keys that are in one of the states and whose errors contain text, each once.
func (w *keyWalk) keys(text string, states ...string) iter.Seq[knownKey] {
	in := distinct(nil, mapped(states, w.in)...)
	return filtered(in, func(k knownKey) bool { return k.hasError(text) })
}

// all yields all keys, and some of them several times.
func (w *keyWalk) all() iter.Seq[knownKey] {
	inPools := concat(w.listed(stateOnHold), w.listed(stateProcessing), w.listed(stateFailing))
	return concat(inPools, w.in(stateGivenUp), w.allInQueue)
}

// in yields the keys in a state.
func (w *keyWalk) in(state string) iter.Seq[knownKey] {
	switch {
	case !w.lists[state].hasMore:
		return w.listed(state)
	case state == stateGivenUp:
		return w.allGivenUp
	}
	others := filtered(w.allInQueue, func(k knownKey) bool {
		if state == stateFailing {
			return k.inQueue.Failures.Count > 0
		}
		return k.state() == state && !k.inQueue.OnHold
	})
	var except []knownKey
	if state == stateProcessing { // A queue on a server counts keys on hold as being processed.
		except = w.lists[stateOnHold].keys
	}
	return distinct(except, w.listed(state), others)
}

// listed yields the keys of a list.
func (w *keyWalk) listed(state string) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		keys := w.lists[state].keys
		w.looked += len(keys)
		slices.Values(keys)(yield)
	}
}

// allGivenUp yields the given-up keys, of those that the queue keeps maxGivenUp at most.
func (w *keyWalk) allGivenUp(yield func(knownKey) bool) {
	w.readGivenUp(maxGivenUp + 1)
	if len(w.kept) > maxGivenUp {
		w.kept, w.hasLeft = w.kept[:maxGivenUp], true
	}
	w.looked += len(w.kept)
	w.givenUp(yield)
}

// allInQueue yields all keys of the queue. It ends early if its time is over, or the queue's server stops
// answering.
func (w *keyWalk) allInQueue(yield func(knownKey) bool) {
	if w.missing != nil {
		return
	}
	began := time.Now()
	for k := range w.entry.queue.SnapshotKeys() {
		if w.ctx.Err() != nil {
			w.hasLeft = true
			return
		}
		w.looked++
		if !yield(fromQueue(k)) {
			return
		}
		if w.looked%256 == 0 {
			if w.noteMissing(began) != nil {
				return
			}
			began = time.Now()
		}
	}
	w.noteMissing(began)
}

// turn lets one caller at a time go over all keys of a queue.
type turn chan struct{}

// take waits for the turn, and done gives it back. The error says that others kept it until ctx ended; done
// does nothing then.
func (t turn) take(ctx context.Context) (done func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return func() {}, refuse(http.StatusServiceUnavailable,
			"Others are going over all keys: try again in a minute.")
	}
}

// turnFor takes the turn to go over all keys of r in the states, unless r's lists have them all.
func (h *Handler) turnFor(r *reading, states ...string) (done func(), err error) {
	if slices.ContainsFunc(states, func(state string) bool { return r.lists[state].hasMore }) {
		return h.searching.take(r.ctx)
	}
	return func() {}, nil
}
