package debug

import (
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// action is something that the page can do.
type action struct {
	Name string
	// Button is on the button for a key, and ForAll on that for all keys of a list, if there are such buttons.
	Button, ForAll string
	// isPossible reports whether the queue and its pools can do it at all.
	isPossible func(*reading) bool
	// ifShutDown is why a queue that is shut down refuses it, or empty.
	ifShutDown string

	// toKey, of an action on keys, acts on a key, and returns false if the key has gone. suits reports whether a
	// page offers the action for a key. doneToKey says what was done to one, doneToAll (with ForAll) what to
	// many, and noKey that there is no such key. ofPools: the keys are those of the pools; the queue need not
	// answer.

	toKey                       func(*reading, knownKey) bool
	suits                       func(keyRow) bool
	doneToKey, doneToAll, noKey string
	ofPools                     bool

	// toQueue, of another action, acts on the queue or, if ofGroup, on a group, for that long if it is a pause.
	// doneToQueue says what was done.

	toQueue     func(r *reading, group string, lasts time.Duration)
	doneToQueue string
	ofGroup     bool
}

// actions are all of them, in the order of the buttons.
var actions = actionSet{
	{
		Name: "retry", Button: "Retry now", ForAll: "Retry all",
		isPossible: func(*reading) bool { return true },
		ifShutDown: "The queue is shut down: it takes no more keys.",
		toKey:      (*reading).retry,
		suits:      func(keyRow) bool { return true },
		doneToAll:  "Retried", noKey: "No such key.",
	},
	{
		Name: "remove", Button: "Remove",
		isPossible: func(r *reading) bool { return r.entry.queue.Remove != nil },
		toKey:      (*reading).remove,
		suits:      func(k keyRow) bool { return k.State != stateGivenUp && k.State != stateFailing },
		doneToKey:  "Removed %s, and forgot its failures.", noKey: "No such key in the queue.",
	},
	{
		Name: "forget", Button: "Forget failures", ForAll: "Forget all failures",
		isPossible: func(r *reading) bool {
			return r.entry.queue.Forget != nil || r.entry.queue.ForgetGivenUp != nil || hasPools(r)
		},
		toKey: (*reading).forget,
		suits: func(k keyRow) bool {
			return k.State == stateGivenUp || k.State == stateFailing || k.Failure != nil || k.InQueue.Requeues > 0
		},
		doneToKey: "Forgot the failures of %s.",
		doneToAll: "Forgot the failures of", noKey: "No such key.",
	},
	{
		Name: "cancel", Button: "Cancel", ofPools: true,
		isPossible: hasPools,
		toKey: func(r *reading, k knownKey) bool {
			return r.eachPool(func(p *worker.Inspector) bool { return p.Cancel(k.key()) })
		},
		suits:     func(k keyRow) bool { return k.InPools.Running != nil && k.InPools.OnHold == nil },
		doneToKey: "Ended the context of the handler of %s. What it returns decides what follows.",
		noKey:     "No handler has a key that is called that: it may just have ended.",
	},
	{
		Name: "release", Button: "Release", ofPools: true,
		isPossible: hasPools,
		toKey: func(r *reading, k knownKey) bool {
			return r.eachPool(func(p *worker.Inspector) bool { return p.Release(k.key()) })
		},
		suits:     func(k keyRow) bool { return k.InPools.OnHold != nil },
		doneToKey: "Ended the hold of %s. If it was added, it comes as soon as a worker is free.",
		noKey:     "No key on hold is called that: the hold may just have ended.",
	},
	{
		Name: "pause", doneToQueue: "Paused the queue",
		isPossible: (*reading).canPause,
		ifShutDown: "The queue is shut down: it cannot be paused.",
		toQueue:    (*reading).pause,
	},
	{
		Name: "resume", doneToQueue: "Resumed the queue",
		isPossible: (*reading).canPause,
		toQueue:    (*reading).resume,
	},
	{
		Name: "pause_group", ofGroup: true, doneToQueue: "Paused group %s%s.",
		isPossible: func(r *reading) bool { return r.entry.queue.PauseGroup != nil },
		ifShutDown: "The queue is shut down: it cannot be paused.",
		suits:      func(k keyRow) bool { return k.InQueue.Group != "" && k.IsGroupWhole },
		toQueue:    func(r *reading, group string, lasts time.Duration) { r.entry.queue.PauseGroup(group, lasts) },
	},
	{
		Name: "resume_group", ofGroup: true, doneToQueue: "Resumed group %s%s.",
		isPossible: func(r *reading) bool { return r.entry.queue.ResumeGroup != nil },
		toQueue:    func(r *reading, group string, _ time.Duration) { r.entry.queue.ResumeGroup(group) },
	},
}

// actionSet are the actions that a page offers for a queue or a key.
type actionSet []*action

// actionNamed returns the action with that name, or nil.
func actionNamed(name string) *action {
	if i := slices.IndexFunc(actions, func(a *action) bool { return a.Name == name }); i >= 0 {
		return actions[i]
	}
	return nil
}

// Has reports whether the action is offered.
func (s actionSet) Has(name string) bool {
	return slices.ContainsFunc(s, func(a *action) bool { return a.Name == name })
}

// without returns the actions for which isOut is false.
func (s actionSet) without(isOut func(*action) bool) actionSet {
	return slices.DeleteFunc(slices.Clone(s), isOut)
}

// only returns those of the actions that have one of the names.
func (s actionSet) only(names ...string) actionSet {
	return s.without(func(a *action) bool { return !slices.Contains(names, a.Name) })
}

// actionsOf returns what the queue and its pools can do.
func (h *Handler) actionsOf(r *reading) actionSet {
	if h.audit == nil {
		return nil
	}
	return actions.without(func(a *action) bool {
		return !a.isPossible(r) || a.ifShutDown != "" && r.Stats.ShuttingDown
	})
}

func hasPools(r *reading) bool { return len(r.Pools) > 0 }

// retry adds the key. What the queue keeps as given up the queue itself retries.
func (r *reading) retry(k knownKey) bool {
	q := r.entry.queue
	if q.RetryGivenUp != nil && k.mayBeKept() {
		if was := q.RetryGivenUp(k.key()); was || k.isKept {
			return was
		}
	}
	q.AddCause(k.key(), workqueue.Cause{Reason: "retried by hand"})
	return true
}

func (r *reading) remove(k knownKey) bool {
	if !r.entry.queue.Remove(k.key()) {
		return false
	}
	r.forget(k)
	return true
}

// forget makes the queue's limiter, the pools and, if the queue itself keeps it as given up, the queue forget
// the key's failures. It returns false if the queue's server did not answer.
func (r *reading) forget(k knownKey) bool {
	q, hasAnswer := r.entry.queue, true
	if q.ForgetGivenUp != nil && k.mayBeKept() {
		began := time.Now()
		hasAnswer = q.ForgetGivenUp(k.key()) || r.checkServer(began) == nil
	}
	if q.Forget != nil {
		q.Forget(k.key())
	}
	r.eachPool(func(p *worker.Inspector) bool { p.Forget(k.key()); return true })
	return hasAnswer
}

// pausablePools are those that a pause of the queue pauses, in this process, because it cannot pause itself.
func (r *reading) pausablePools() []poolReading {
	if r.entry.queue.Pause != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.Pools), func(p poolReading) bool { return p.pool.Pause == nil })
}

func (r *reading) canPause() bool { return r.entry.queue.Pause != nil || len(r.pausablePools()) > 0 }

// CanResume reports that resume would end a pause: of the queue, or of one of its pausable pools.
func (r *reading) CanResume() bool {
	return r.Stats.Paused || slices.ContainsFunc(r.pausablePools(), func(p poolReading) bool { return p.Paused })
}

func (r *reading) pause(_ string, lasts time.Duration) {
	if r.entry.queue.Pause != nil {
		r.entry.queue.Pause(lasts)
	}
	for _, p := range r.pausablePools() {
		p.pool.Pause(lasts)
	}
}

func (r *reading) resume(string, time.Duration) {
	if r.entry.queue.Resume != nil {
		r.entry.queue.Resume()
	}
	for _, p := range r.pausablePools() {
		p.pool.Resume()
	}
}
