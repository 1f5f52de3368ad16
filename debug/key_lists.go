package debug

import (
	"iter"
	"slices"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	// listLen is how many keys of a state a queue is asked for. A Snapshot has no more.
	listLen = 512
	// maxFailing is how many failing keys are asked for if that many fail.
	maxFailing = 10_000
)

// keyList has the first keys of a state, in the order in which pages show them. hasMore reports that there
// may be others, which a keyWalk finds.
type keyList struct {
	keys    []knownKey
	hasMore bool
}

// readKeys sets r.lists. For that the queue may ask its server; the pools have their keys at hand.
func (r *reading) readKeys() {
	var s workqueue.Snapshot[any]
	r.askServer(func() { s = r.entry.queue.Snapshot(listLen) })
	r.readGivenUp(listLen)
	onHold := slices.SortedStableFunc(r.inPools(worker.KeyOnHold, s), func(a, b knownKey) int {
		return a.inPools.OnHold.Since.Compare(b.inPools.OnHold.Since)
	})
	held := slices.SortedStableFunc(
		distinct(onHold, r.inPools(worker.KeyRunning, s), keysOf(s.Processing)), r.byStart)
	r.lists = map[string]keyList{
		stateQueued:     newKeyList(keysOf(s.Queued), len(s.Queued)),
		stateWaiting:    newKeyList(keysOf(s.Waiting), len(s.Waiting)),
		stateProcessing: newKeyList(slices.Values(held), len(s.Processing)),
		stateOnHold:     {keys: onHold},
		stateFailing:    r.failing(s),
		stateGivenUp:    newKeyList(r.givenUp, len(r.keptAsGivenUp)),
	}
}

// newKeyList lists keys. The queue returned ofQueue of them: if those are listLen, it may have more.
func newKeyList(keys iter.Seq[knownKey], ofQueue int) keyList {
	return keyList{slices.Collect(keys), ofQueue >= listLen}
}

// failing returns the failing keys of s, the most failures first. If there may be others, a queue that need
// not ask a server is asked for more.
func (r *reading) failing(s workqueue.Snapshot[any]) keyList {
	list := newKeyList(keysOf(s.Failing), len(s.Failing))
	if list.hasMore && r.Stats.Shared == nil {
		list.keys = slices.Collect(keysOf(r.entry.queue.FailingKeys(maxFailing)))
		list.hasMore = len(list.keys) >= maxFailing
	}
	return list
}

// readGivenUp asks the queue for up to limit keys that it keeps as given up.
func (r *reading) readGivenUp(limit int) {
	if r.entry.queue.GivenUp != nil {
		r.askServer(func() { r.keptAsGivenUp = r.entry.queue.GivenUp(limit) })
	}
}

// givenUp yields the given-up keys, the latest first: those of the last readGivenUp, and those of the pools.
func (r *reading) givenUp(yield func(knownKey) bool) {
	inPools := r.inPools(worker.KeyGivenUp, workqueue.Snapshot[any]{})
	keys := distinct(nil, slices.Values(mapped(r.keptAsGivenUp, fromKept)), inPools)
	slices.Values(slices.SortedStableFunc(keys, byEnd))(yield)
}

// keysOf yields keys with what the queue says of them.
func keysOf(keys []workqueue.KeySnapshot[any]) iter.Seq[knownKey] {
	return slices.Values(mapped(keys, fromQueue))
}

// inPools yields the keys that the pools have in that state. Those that s has as processing come with what
// it says of them.
func (r *reading) inPools(state worker.KeyState, s workqueue.Snapshot[any]) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		inQueue := make(map[any]workqueue.KeySnapshot[any])
		for _, k := range s.Processing {
			inQueue[k.Key] = k
		}
		for _, p := range r.Pools {
			for inPool := range p.pool.Keys(state) {
				k := fromPool(inPool)
				if s, isThere := inQueue[inPool.Key]; isThere {
					k.inQueue, k.hasAsked = s, true
				}
				if !yield(k) {
					return
				}
			}
		}
	}
}
