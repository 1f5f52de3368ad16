package debug

import (
	"cmp"
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
	stateOnHold     = "on_hold"  // its handler has returned, and Done comes later
	stateFailing    = "failing"  // its last call has failed, and it is to be retried
	stateGivenUp    = "given_up" // a pool or the queue itself does not try it any more

	stateUnknown = "unknown" // the queue's server did not answer
)

// failedStates are the states of keys that have an error.
var failedStates = []string{stateFailing, stateGivenUp}

// statesOf returns the states of the keys in a set that actions can be for, or nil if there is no such set.
func statesOf(set string) []string {
	switch set {
	case "all":
		return failedStates
	case stateFailing, stateGivenUp:
		return []string{set}
	}
	return nil
}

// knownKey is a key with what the queue and its pools say of it.
type knownKey struct {
	// inQueue is what the queue says. Unless hasAsked, it was not asked, and inQueue has the key alone.
	inQueue  workqueue.KeySnapshot[any]
	hasAsked bool
	// inPools is what the pools say.
	inPools worker.KeySnapshot[any]
	// isKept reports that the queue itself keeps the key as given up.
	isKept bool
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
	known.isKept = true
	return known
}

// mayBeKept reports whether the queue itself may keep the key as given up.
func (k *knownKey) mayBeKept() bool { return k.isKept || k.inQueue.Failures.Count == 0 }

// failure returns the failures of the key, or nil without any.
func (k *knownKey) failure() *worker.FailedKey[any] {
	if f := k.inQueue.Failures; f.Count > 0 {
		return &worker.FailedKey[any]{Attempt: f.Count, Since: f.Since, Err: f.Err}
	}
	return k.inPools.GivenUp
}

// isGivenUp reports whether the key was given up, and has not failed again.
func (k *knownKey) isGivenUp() bool {
	return k.inPools.GivenUp != nil && k.inQueue.Failures.Count == 0
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

// since returns since when the key is in its state, if that is known.
func (k *knownKey) since() time.Time {
	if c := k.inPools.Running; k.inQueue.Since.IsZero() && c != nil {
		return c.Started
	}
	return k.inQueue.Since
}

// state returns where the key is, or nothing if it is not known of.
func (k *knownKey) state() string {
	switch {
	case k.inQueue.State != "":
		return string(k.inQueue.State)
	case k.inPools.Running != nil || k.inPools.OnHold != nil:
		return stateProcessing
	case k.inQueue.Failures.Count > 0:
		return stateFailing
	case k.inPools.GivenUp != nil:
		return stateGivenUp
	}
	return ""
}

// addPool adds what another pool says of the key. Whether it fails, only the queue says.
func (k *knownKey) addPool(s worker.KeySnapshot[any]) {
	p := &k.inPools
	p.Running, p.OnHold = cmp.Or(p.Running, s.Running), cmp.Or(p.OnHold, s.OnHold)
	p.GivenUp = cmp.Or(p.GivenUp, s.GivenUp)
	p.AtOnce, p.MaxAttempts = max(p.AtOnce, s.AtOnce), max(p.MaxAttempts, s.MaxAttempts)
	if p.Causes.IsZero() {
		p.Causes = s.Causes
	}
}

// askQueue asks the queue for what it knows of the key, unless it was asked.
func (r *reading) askQueue(k *knownKey) {
	if k.hasAsked {
		return
	}
	r.askServer(func() {
		k.inQueue, _ = r.entry.queue.SnapshotKey(k.key())
		k.hasAsked = true
	})
}

// askAll asks the queue and its pools for all that they know of the key now.
func (r *reading) askAll(k *knownKey) {
	k.hasAsked = false
	r.askQueue(k)
	if r.missing == nil { // A pool asks the queue.
		k.inPools = worker.KeySnapshot[any]{Key: k.key()}
		r.eachPool(func(p *worker.Inspector) bool { k.addPool(p.SnapshotKey(k.key())); return true })
	}
	isKey := func(kept operate.GivenUpKey[any]) bool { return kept.Key == k.key() }
	if i := slices.IndexFunc(r.keptAsGivenUp, isKey); i >= 0 {
		k.isKept = true
		k.inPools.GivenUp = cmp.Or(k.inPools.GivenUp, fromKept(r.keptAsGivenUp[i]).inPools.GivenUp)
	}
}
