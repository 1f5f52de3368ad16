package debug

import (
	"context"
	"hash/maphash"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	// maxSeen bounds the failing and given-up keys of a visit, which remembers the hash of each.
	maxSeen = 1 << 20
	// maxGivenUp is how many given-up keys a queue is asked for.
	maxGivenUp = 10_000
	// maxFailing is how many failing keys a pool is asked for.
	maxFailing = 10_000
	// allSets names all keys that fail or were given up. The other sets are named as these states.
	allSets = "all"
)

var errNoSuchSet = refuse(http.StatusBadRequest, "The sets of keys are failing, given_up and all.")

func isSet(name string) bool {
	return name == stateFailing || name == stateGivenUp || name == allSets
}

// keyFilter says which keys to visit.
type keyFilter struct {
	state     string // the state of the keys, or allSets; empty means all keys
	errorText string // a text that their last errors contain
	atHand    bool   // leaves out the keys for which a server would have to be asked
}

// knownKey is a key with what is known of it where it was found: in the queue, in a list of a pool, or among
// the given-up keys of the queue.
type knownKey struct {
	key any
	// state is that of the list. The key may also be in another one.
	state string
	// snapshot is what the queue knows; failed and hold are what pool knows.
	snapshot workqueue.KeySnapshot[any]
	failed   worker.FailedKey[any]
	hold     worker.HeldKey[any]
	pool     *worker.Inspector
	// kept: the queue itself is known to keep the key as given up.
	kept bool
	// named: the caller gave the key itself. Without kept, it is unknown whether the queue keeps it.
	named bool
}

// newKeptFailure returns a key that the queue itself keeps as given up.
func newKeptFailure(k operate.GivenUpKey[any]) knownKey {
	failed := worker.FailedKey[any]{Key: k.Key, Attempt: k.Attempts, Err: k.Err, Time: k.Time}
	return knownKey{key: k.Key, state: stateGivenUp, failed: failed, kept: true}
}

// report returns what is shown of the key in the list of its state, without what finish sets.
func (k knownKey) report() keyReport {
	r := newKeyReport(k.snapshot)
	r.raw = k.key
	switch k.state {
	case stateFailing, stateGivenUp:
		r.addFailure(k.failed, k.state)
	case stateHeld:
		r.addHold(k.hold)
	}
	return r
}

// isForgotten reports that the pool has forgotten the key's failure since it was visited.
func (k knownKey) isForgotten() bool {
	if k.pool == nil {
		return false
	}
	now := k.pool.SnapshotKey(k.key)
	return now.Failing == nil && now.GivenUp == nil
}

// visit calls f for the keys that fit the filter until f returns false or ctx ends. All keys are first those
// in the queue, then the others. A failing or given-up key comes once. It returns whether there may be more
// keys: there was no time for all, the queue does not answer, or only a part of them is listed. A panic ends
// it, and is noted in r.err, unless that has an earlier one.
func (r *reading) visit(ctx context.Context, filter keyFilter, f func(knownKey) (goOn bool)) (more bool) {
	v := visitor{r: r, filter: filter, ctx: ctx, f: f, more: r.missing != nil && !filter.atHand}
	r.guard(func() {
		switch {
		case filter.state == "":
			if v.eachInQueue(v.offer) {
				v.offerFailures()
			}
		case isSet(filter.state):
			v.offerFailures()
		case filter.state == stateHeld:
			v.offerHeld()
		default:
			v.offerInState()
		}
	})
	return v.more
}

// visitor goes over keys. Those of its methods that return a bool return false when it has to end.
type visitor struct {
	r      *reading
	filter keyFilter
	ctx    context.Context
	f      func(knownKey) bool
	more   bool
	// seen has the hashes of the failing and given-up keys, which take less memory than keys.
	seen map[uint64]struct{}
	seed maphash.Seed
}

// hasTime reports whether there is time for more keys, and notes if there is not.
func (v *visitor) hasTime() bool {
	v.more = v.more || v.ctx.Err() != nil
	return v.ctx.Err() == nil
}

// offer calls f with a key, unless its error does not fit, or it was offered before.
func (v *visitor) offer(k knownKey) (goOn bool) {
	if k.snapshot.State == "" { // eachInQueue counts the others.
		v.r.looked++
	}
	if !v.hasTime() {
		return false
	}
	if v.seen != nil {
		hash := maphash.Comparable(v.seed, k.key)
		if _, again := v.seen[hash]; again {
			return true
		}
		if len(v.seen) == maxSeen {
			v.more = true
			return false
		}
		v.seen[hash] = struct{}{}
	}
	text := v.filter.errorText // It may be what the page shows of an error.
	fits := strings.Contains(k.failed.Err, text) ||
		strings.Contains(text, `\`) && strings.Contains(printable(k.failed.Err), text)
	return !fits || v.f(k)
}

// eachInQueue calls f for the keys in the queue. If its server stops answering, they end early, and the visit
// continues: eachInQueue returns true.
func (v *visitor) eachInQueue(f func(knownKey) bool) bool {
	if v.r.missing != nil || !v.r.entry.hasQueue() {
		return true
	}
	n, step := 0, time.Now()
	for k := range v.r.entry.queue.SnapshotKeys() {
		v.r.looked++
		if !v.hasTime() || !f(knownKey{key: k.Key, state: string(k.State), snapshot: k}) {
			return false
		}
		if n++; n%256 == 0 {
			if v.r.noteMissing(step) != nil {
				break
			}
			step = time.Now()
		}
	}
	v.more = v.r.noteMissing(step) != nil || v.more
	return true
}

// offerInState offers the keys that are in the state in the queue. Keys on hold are in a state of their own.
func (v *visitor) offerInState() {
	onHold := make(map[any]bool)
	v.r.eachHeld(func(k worker.HeldKey[any]) bool { onHold[k.Key] = true; return true })
	v.eachInQueue(func(k knownKey) bool { return k.state != v.filter.state || onHold[k.key] || v.offer(k) })
}

func (v *visitor) offerHeld() {
	n := 0
	v.r.eachHeld(func(k worker.HeldKey[any]) bool {
		n++
		return v.offer(knownKey{key: k.Key, state: stateHeld, hold: k})
	})
	v.more = v.more || v.r.stats.Held > n
}

func (r *reading) eachHeld(f func(worker.HeldKey[any]) bool) {
	for _, p := range r.pools {
		if p.stats.Held == 0 {
			continue
		}
		for k := range p.pool.HeldKeys() {
			if !f(k) {
				return
			}
		}
	}
}

// offerFailures offers the given-up keys that the queue keeps, the keys that fail or were given up in the
// pools, and then those that only the limiter knows.
func (v *visitor) offerFailures() {
	v.seen, v.seed = make(map[uint64]struct{}), maphash.MakeSeed()
	failing, givenUp := v.filter.state != stateGivenUp, v.filter.state != stateFailing
	unlisted := 0 // failing keys that no pool lists
	if givenUp && !v.offerKept() {
		return
	}
	if failing && !v.offerFailing(&unlisted) {
		return
	}
	if givenUp && !v.offerGivenUp() {
		return
	}
	// Keys of the limiter have no errors, and a visit of all keys has met them in the queue.
	limiterHasMore := failing && v.filter.state != "" && v.filter.errorText == "" && !v.filter.atHand
	if limiterHasMore {
		listed := len(v.seen)
		v.offerCounted()
		unlisted -= len(v.seen) - listed
	}
	v.more = v.more || unlisted > 0
}

// offerKept offers the keys that the queue itself keeps as given up.
func (v *visitor) offerKept() bool {
	kept := v.r.keys.givenUp
	if q := v.r.entry.queue; q.GivenUp != nil && !v.filter.atHand && v.r.missing == nil {
		began := time.Now()
		kept = q.GivenUp(maxGivenUp + 1)
		endedEarly := v.r.stats.Shared != nil && time.Since(began) >= patience // A queue on a server gives up then.
		v.more = v.more || endedEarly || len(kept) > maxGivenUp
	}
	for _, k := range kept[:min(len(kept), maxGivenUp)] {
		if !v.offer(newKeptFailure(k)) {
			return false
		}
	}
	return true
}

// offerFailing offers the failing keys that the pools list, and counts in unlisted how many more they have.
func (v *visitor) offerFailing(unlisted *int) bool {
	for _, p := range v.r.pools {
		for _, k := range v.failingOf(p) {
			*unlisted--
			if !v.offer(knownKey{key: k.Key, state: stateFailing, failed: k, pool: p.pool}) {
				return false
			}
		}
		if !v.filter.atHand { // Afterwards: a key that fails meanwhile is unlisted.
			*unlisted += p.pool.Stats().Failing
		}
	}
	return true
}

// failingOf returns the failing keys that a pool lists: those that were read, if a server would have to be
// asked and must not be.
func (v *visitor) failingOf(p poolReading) []worker.FailedKey[any] {
	if v.filter.atHand && v.r.stats.Shared != nil {
		return p.failing
	}
	return p.pool.FailingKeys(maxFailing)
}

// offerGivenUp offers the keys that the pools list as given up.
func (v *visitor) offerGivenUp() bool {
	for _, p := range v.r.pools {
		for _, k := range p.pool.GivenUpKeys(math.MaxInt) {
			if !v.offer(knownKey{key: k.Key, state: stateGivenUp, failed: k, pool: p.pool}) {
				return false
			}
		}
		v.more = v.more || !v.filter.atHand && p.pool.Stats().GivenUpUnlisted > 0
	}
	return true
}

// offerCounted offers the keys whose failures the limiter counts.
func (v *visitor) offerCounted() {
	for _, k := range v.r.keys.Failing {
		if !v.offer(knownKey{key: k.Key, state: stateFailing}) {
			return
		}
	}
	// Without pools a full list may lack keys that are not in the queue.
	v.more = v.more || len(v.r.pools) == 0 && len(v.r.keys.Failing) >= searchLimit
	v.eachInQueue(func(k knownKey) bool {
		return k.snapshot.Requeues == 0 || v.offer(knownKey{key: k.key, state: stateFailing})
	})
}
