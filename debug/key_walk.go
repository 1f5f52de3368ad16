package debug

import (
	"cmp"
	"iter"
	"net/http"
	"slices"
	"time"
)

var errBusy = refuse(http.StatusServiceUnavailable, "Others are going over all keys: try again in a minute.")

// maxGivenUp is how many given-up keys a queue is asked for by a keyWalk.
const maxGivenUp = 10_000

// keyWalk goes over all keys of a queue that match: those of the reading's lists, and then, if there may be
// others, all that the queue has. It needs the lists: see readKeys.
type keyWalk struct {
	*reading
	// walked counts the keys that it has gone over. isCutShort reports that it has left some out: there was no
	// time, or the queue keeps more than maxGivenUp given-up keys.
	walked     int
	isCutShort bool
}

// isPartial reports that not all keys that match are known.
func (w *keyWalk) isPartial() bool { return w.isCutShort || w.missing != nil }

// keys yields the keys that are in one of the states and whose errors contain text, each once.
func (w *keyWalk) keys(text string, states ...string) iter.Seq[knownKey] {
	in := distinct(nil, mapped(states, w.in)...)
	return filtered(in, func(k knownKey) bool { return k.hasError(text) })
}

// all yields all keys, and some of them several times.
func (w *keyWalk) all() iter.Seq[knownKey] {
	inPools := concat(w.listed(stateOnHold), w.listed(stateProcessing), w.listed(stateFailing))
	return concat(inPools, w.listed(stateQueued), w.listed(stateWaiting), w.in(stateGivenUp), w.allInQueue)
}

// isStillGivenUp reports whether a key has not failed again: another pool of the queue may have had it since.
// Of those that a queue keeps itself it says so.
func (w *keyWalk) isStillGivenUp(k knownKey) bool {
	if !k.isKept {
		w.askQueue(&k)
	}
	return k.isGivenUp()
}

// in yields the keys in a state.
func (w *keyWalk) in(state string) iter.Seq[knownKey] {
	hasMore := w.lists[state].hasMore && w.missing == nil
	switch {
	case state == stateGivenUp && hasMore:
		return filtered(w.allGivenUp, w.isStillGivenUp)
	case state == stateGivenUp:
		return filtered(w.listed(state), w.isStillGivenUp)
	case !hasMore:
		return w.listed(state)
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
		w.walked += len(keys)
		slices.Values(keys)(yield)
	}
}

// allGivenUp yields the given-up keys, of those that the queue keeps maxGivenUp at most.
func (w *keyWalk) allGivenUp(yield func(knownKey) bool) {
	w.readGivenUp(maxGivenUp + 1)
	if len(w.keptAsGivenUp) > maxGivenUp {
		w.keptAsGivenUp, w.isCutShort = w.keptAsGivenUp[:maxGivenUp], true
	}
	w.walked += len(w.keptAsGivenUp)
	w.givenUp(yield)
}

// allInQueue yields all keys of the queue. It ends early if its time is over, or the queue's server stops
// answering.
func (w *keyWalk) allInQueue(yield func(knownKey) bool) {
	if w.missing != nil {
		return
	}
	waitsSince := time.Now() // The time of those who get the keys does not count.
	for k := range w.entry.queue.SnapshotKeys() {
		if w.ctx.Err() != nil {
			w.isCutShort = true
			return
		}
		w.walked++
		mustCheck := w.walked%256 == 0 || time.Since(waitsSince) >= patience
		if mustCheck && w.checkServer(waitsSince) != nil || !yield(fromQueue(k)) {
			return
		}
		waitsSince = time.Now()
	}
	w.checkServer(waitsSince)
}

// takeTurn waits for the turn to go over all keys of r in the states, or in all states if there are none. It
// needs no turn if r's lists have them all. Without a turn r.missing is why, and a keyWalk only goes over the
// lists.
func (h *Handler) takeTurn(r *reading, states ...string) (giveBack func()) {
	hasMore := func(state string) bool { return r.lists[state].hasMore }
	if len(states) > 0 && !slices.ContainsFunc(states, hasMore) {
		return func() {}
	}
	select {
	case h.turn <- struct{}{}:
		return func() { <-h.turn }
	case <-r.ctx.Done():
		r.missing = cmp.Or(r.missing, errBusy)
		return func() {}
	}
}
