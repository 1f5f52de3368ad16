package debug

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// The states of keys. A key in the queue has one of the first three, and can be in others besides: its pools,
// its limiter or the queue itself remember those.
const (
	stateQueued     = string(workqueue.KeyQueued)
	stateWaiting    = string(workqueue.KeyWaiting)
	stateProcessing = string(workqueue.KeyProcessing)
	stateOnHold     = "on_hold"  // on hold
	stateFailing    = "failing"  // its last call has failed, and it is to be retried
	stateGivenUp    = "given_up" // a pool or the queue itself does not try it any more
	// allSets are all keys that fail or were given up.
	allSets = "all"

	stateAbsent  = "absent"  // nothing is known of the key, any more
	stateUnknown = "unknown" // the queue's server did not answer
)

// isSet reports whether actions can be for all keys of that name.
func isSet(name string) bool {
	return name == stateFailing || name == stateGivenUp || name == allSets
}

// maxGivenUp is how many given-up keys a queue is asked for.
const maxGivenUp = 10_000

// knownKey is a key with what the queue and its pools say of it.
type knownKey struct {
	// inQueue is what the queue says. It was asked unless hasAsked is false.
	inQueue  workqueue.KeySnapshot[any]
	hasAsked bool
	// inPools is what the pools say.
	inPools worker.KeySnapshot[any]
	// kept: the queue itself is known to keep the key as given up. named: the caller gave the key itself;
	// without kept, it is unknown whether the queue keeps it.
	kept, named bool
}

// key returns the key itself.
func (k *knownKey) key() any { return k.inQueue.Key }

func fromQueue(k workqueue.KeySnapshot[any]) knownKey { return knownKey{inQueue: k, hasAsked: true} }

func fromPool(k worker.KeySnapshot[any]) knownKey {
	return knownKey{inQueue: workqueue.KeySnapshot[any]{Key: k.Key}, inPools: k}
}

// fromKept returns a key that the queue itself keeps as given up.
func fromKept(k operate.GivenUpKey[any]) knownKey {
	failed := worker.FailedKey[any]{Key: k.Key, Attempt: k.Attempts, Err: k.Err, Time: k.Time}
	known := fromPool(worker.KeySnapshot[any]{Key: k.Key, GivenUp: &failed})
	known.kept = true
	return known
}

// failure returns the failures of the key, or nil without any.
func (k *knownKey) failure() *worker.FailedKey[any] {
	if f := k.inQueue.Failures; f.Count > 0 {
		return &worker.FailedKey[any]{Attempt: f.Count, Since: f.Since, Err: f.Err}
	}
	return cmp.Or(k.inPools.Failing, k.inPools.GivenUp)
}

// isGivenUp reports whether a record of its failures is all that is left of the key.
func (k *knownKey) isGivenUp() bool {
	return k.inPools.GivenUp != nil && k.inQueue.State == "" && k.inPools.Failing == nil
}

// set returns which of the sets the key is in.
func (k *knownKey) set() string {
	if k.inPools.GivenUp != nil && k.inPools.Failing == nil && k.inQueue.Failures.Count == 0 {
		return stateGivenUp
	}
	return stateFailing
}

// hasError reports whether the last error of the key contains text, as it is or as the page shows it.
func (k *knownKey) hasError(text string) bool {
	if text == "" {
		return true
	}
	f := k.failure()
	return f != nil && (strings.Contains(f.Err, text) ||
		strings.Contains(text, `\`) && strings.Contains(printable(f.Err), text))
}

// state returns where the key is.
func (k *knownKey) state() string {
	switch {
	case k.inQueue.State != "":
		return string(k.inQueue.State)
	case k.inPools.Running != nil || k.inPools.OnHold != nil:
		return stateProcessing
	case k.inPools.Failing != nil || k.inQueue.Requeues > 0:
		return stateFailing
	case k.inPools.GivenUp != nil:
		return stateGivenUp
	}
	return stateAbsent
}

// addPool adds what another pool says of the key.
func (k *knownKey) addPool(s worker.KeySnapshot[any]) {
	p := &k.inPools
	p.Running, p.OnHold = cmp.Or(p.Running, s.Running), cmp.Or(p.OnHold, s.OnHold)
	p.Failing, p.GivenUp = cmp.Or(p.Failing, s.Failing), cmp.Or(p.GivenUp, s.GivenUp)
	p.PanicStack = cmp.Or(p.PanicStack, s.PanicStack)
	p.AtOnce, p.MaxAttempts = max(p.AtOnce, s.AtOnce), max(p.MaxAttempts, s.MaxAttempts)
	if p.Causes.IsZero() {
		p.Causes = s.Causes
	}
}

// ask asks the queue for what it knows of the key, unless that is known.
func (r *reading) ask(k *knownKey) {
	if k.hasAsked || !r.entry.hasQueue() {
		return
	}
	r.askServer(func() {
		k.inQueue, _ = r.entry.queue.SnapshotKey(k.key())
		k.hasAsked = true
	})
}

// look asks the queue and its pools for all that they know of the key.
func (r *reading) look(k *knownKey) {
	k.hasAsked = false
	r.ask(k)
	if r.missing == nil { // A pool asks the queue.
		r.anyPool(func(p *worker.Inspector) bool { k.addPool(p.SnapshotKey(k.key())); return true })
	}
	isKey := func(kept operate.GivenUpKey[any]) bool { return kept.Key == k.key() }
	if i := slices.IndexFunc(r.kept, isKey); i >= 0 {
		k.kept = true
		k.inPools.GivenUp = cmp.Or(k.inPools.GivenUp, fromKept(r.kept[i]).inPools.GivenUp)
	}
}

// keysIn yields the keys in a state, or all that fail or were given up for allSets, each once. For "" it
// yields all keys, the pools' first and some of them several times. The keys that the reading has come first,
// in the order of its lists. Only a caller that wants more goes over all keys of the queue. If some cannot be
// listed, keysIn sets r.more.
func (r *reading) keysIn(state string) iter.Seq[knownKey] {
	switch state {
	case stateQueued:
		return r.inQueue(state, r.snapshot.Queued)
	case stateWaiting:
		return r.inQueue(state, r.snapshot.Waiting)
	case stateProcessing:
		running := r.inPools(worker.KeyRunning)
		if len(r.pools) > 0 && r.workers.Busy >= r.inWork() {
			return once(running)
		}
		return once(running, r.withoutHolds(r.inQueue(state, r.snapshot.Processing)))
	case stateOnHold:
		return r.onHold()
	case stateFailing:
		return once(r.failingKeys())
	case stateGivenUp:
		return once(r.keptKeys(), r.givenUpInPools())
	case allSets:
		return once(r.keptKeys(), r.failingKeys(), r.givenUpInPools())
	}
	return func(yield func(knownKey) bool) {
		for _, keys := range []iter.Seq[knownKey]{
			r.inPools(worker.KeyRunning), r.onHold(), r.inQueue("", nil), r.keysIn(allSets),
		} {
			for k := range keys {
				if !yield(k) {
					return
				}
			}
		}
	}
}

// once yields the keys of all lists, those that are in several of them as the first one has them.
func once(lists ...iter.Seq[knownKey]) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		seen := make(map[any]bool)
		for _, keys := range lists {
			for k := range keys {
				if again := seen[k.key()]; !again {
					seen[k.key()] = true
					if !yield(k) {
						return
					}
				}
			}
		}
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

// inQueue yields first and then, if the queue may have more keys in the state, these. All states are "".
func (r *reading) inQueue(state string, first []workqueue.KeySnapshot[any]) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		seen := make(map[any]bool, len(first))
		for _, k := range first {
			if seen[k.Key] = true; !yield(fromQueue(k)) {
				return
			}
		}
		hasAll := state != "" && len(first) < r.limit
		if !r.entry.hasQueue() || hasAll && r.missing == nil {
			return
		}
		if r.missing == nil && !r.otherKeys(func(k workqueue.KeySnapshot[any]) bool {
			isOther := (state == "" || string(k.State) == state) && !seen[k.Key]
			return !isOther || yield(fromQueue(k))
		}) {
			return
		}
		r.more = r.more || r.missing != nil
	}
}

// otherKeys calls f for all keys of the queue until f returns false. Then it returns false. It ends early if
// the queue's server stops answering.
func (r *reading) otherKeys(f func(workqueue.KeySnapshot[any]) bool) bool {
	n, step := 0, time.Now()
	for k := range r.entry.queue.SnapshotKeys() {
		if r.looked++; !f(k) {
			return false
		}
		if n++; n%256 == 0 {
			if r.noteMissing(step) != nil {
				return true
			}
			step = time.Now()
		}
	}
	r.noteMissing(step)
	return true
}

// inPools yields the keys that the pools have in that state, with what the queue's snapshot says of them.
func (r *reading) inPools(state worker.KeyState) iter.Seq[knownKey] {
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

// onHold yields the keys on hold, the one whose hold began first at the front.
func (r *reading) onHold() iter.Seq[knownKey] {
	if r.workers.OnHold == 0 {
		return func(func(knownKey) bool) {}
	}
	keys := slices.Collect(r.inPools(worker.KeyOnHold))
	r.more = r.more || r.workers.OnHold > len(keys)
	slices.SortStableFunc(keys, func(a, b knownKey) int {
		return a.inPools.OnHold.Since.Compare(b.inPools.OnHold.Since)
	})
	return slices.Values(keys)
}

// withoutHolds yields the keys that are not on hold: the queue counts both as being processed.
func (r *reading) withoutHolds(keys iter.Seq[knownKey]) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		holds := make(map[any]bool)
		for k := range r.onHold() {
			holds[k.key()] = true
		}
		for k := range keys {
			if !holds[k.key()] && !yield(k) {
				return
			}
		}
	}
}

// failingKeys yields the keys that fail. Those in the queue's snapshot come first, the most failures at the
// front: it has also those that only the limiter counts. If there may be others, these follow in no order.
func (r *reading) failingKeys() iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		for _, k := range r.snapshot.Failing {
			if !yield(fromQueue(k)) {
				return
			}
		}
		hasAll := r.entry.hasQueue() && len(r.snapshot.Failing) < r.limit
		for _, p := range r.pools {
			isOwn := hashable(p.pool.Queue) != nil && hashable(p.pool.Queue) == hashable(r.entry.queue.Queue)
			if isOwn && (hasAll || !r.atHand) || r.atHand && r.stats.Shared != nil {
				continue
			}
			n := 0
			for k := range p.pool.Keys(worker.KeyFailing) {
				if n++; !yield(fromPool(k)) {
					return
				}
			}
			r.more = r.more || !isOwn && n < p.stats.Failing
		}
		r.more = r.more || r.missing != nil
		if !r.entry.hasQueue() || hasAll || r.atHand || r.missing != nil {
			return
		}
		r.otherKeys(func(k workqueue.KeySnapshot[any]) bool { return k.Requeues == 0 || yield(fromQueue(k)) })
		// A full list may lack keys that are not in the queue.
		r.more = r.more || r.missing != nil || len(r.pools) == 0 && len(r.snapshot.Failing) >= searchLimit
	}
}

// keptKeys yields the keys that the queue itself keeps as given up.
func (r *reading) keptKeys() iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		hasAll := r.limit > 0 && len(r.kept) < searchLimit
		if q := r.entry.queue; q.GivenUp != nil && !hasAll && !r.atHand {
			r.askServer(func() { r.kept = q.GivenUp(maxGivenUp + 1) })
		}
		r.more = r.more || r.missing != nil || len(r.kept) > maxGivenUp
		for _, k := range r.kept[:min(len(r.kept), maxGivenUp)] {
			if !yield(fromKept(k)) {
				return
			}
		}
	}
}

// givenUpInPools yields the keys that the pools list as given up.
func (r *reading) givenUpInPools() iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		for k := range r.inPools(worker.KeyGivenUp) {
			if k.inPools.GivenUp != nil && !yield(k) { // Otherwise it fails again.
				return
			}
		}
		r.more = r.more || r.workers.GivenUpUnlisted > 0
	}
}
