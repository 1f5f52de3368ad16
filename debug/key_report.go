package debug

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	stateHeld    = "held"     // on hold
	stateFailing = "failing"  // not in the queue, but the limiter or a pool remembers failures
	stateGivenUp = "given_up" // a pool or the queue itself does not try it any more
	stateAbsent  = "absent"   // nothing is known of it, any more
	stateUnknown = "unknown"  // the queue did not answer
)

// keyReport is what is shown of a key.
type keyReport struct {
	Key      string    `json:"key"`
	Bytes    int       `json:"bytes"`
	Cut      bool      `json:"-"`
	State    string    `json:"state,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	For      *seconds  `json:"for_seconds,omitempty"`
	Due      time.Time `json:"due,omitzero"`
	DueIn    *seconds  `json:"due_in_seconds,omitempty"`
	Again    bool      `json:"again"`
	Requeues int       `json:"requeues"`
	Priority int       `json:"priority"`
	Group    string    `json:"group,omitempty"` // cut and printable
	Blocked  bool      `json:"blocked,omitempty"`
	// Causes are cut and printable.
	Causes *workqueue.Causes `json:"causes,omitempty"`
	// What follows is known of keys that a pool handles.
	Attempt     int `json:"attempt,omitempty"`
	MaxAttempts int `json:"max_attempts,omitempty"`
	// AtOnce is how many calls in a row wanted it again at once: see AtOnce of worker.Call.
	AtOnce     int         `json:"at_once,omitempty"`
	Held       *holdReport `json:"hold,omitempty"`
	Stuck      bool        `json:"stuck,omitempty"`
	Canceled   bool        `json:"canceled,omitempty"`
	Stack      string      `json:"stack,omitempty"`
	Error      string      `json:"error,omitempty"`
	FailsSince time.Time   `json:"fails_since,omitzero"`
	FailsFor   *seconds    `json:"fails_for_seconds,omitempty"`
	FailedAt   time.Time   `json:"failed_at,omitzero"`
	Ago        *seconds    `json:"failed_ago_seconds,omitempty"`
	// PanicStack is that of the last failed call that panicked.
	PanicStack string `json:"panic_stack,omitempty"`
	ID         string `json:"id,omitempty"`
	// Queue is set for keys that were found in all queues.
	Queue *queueName `json:"queue,omitempty"`

	// QueueID is the id of its queue and Actions what can be done with it. Linked reports that the page is not
	// its own.
	QueueID string    `json:"-"`
	Actions actionSet `json:"-"`
	Linked  bool      `json:"-"`
	raw     any
	group   string // the whole name
	givenUp bool
}

// holdReport says what a key on hold waits for, since when, and until when at the latest.
type holdReport struct {
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
	For     *seconds  `json:"for_seconds"`
	Until   time.Time `json:"until"`
	UntilIn *seconds  `json:"until_in_seconds"`
}

func newKeyReport(k workqueue.KeySnapshot[any]) keyReport {
	f := k.Failures
	return keyReport{
		Attempt: f.Count, Error: short(f.Err, maxError), FailsSince: f.Since.UTC(),
		State: string(k.State), Since: k.Since.UTC(), Due: k.Due.UTC(), Again: k.Again, Requeues: k.Requeues,
		Priority: k.Priority, Group: short(k.Group, maxName), Blocked: k.Blocked, Causes: newCauses(k.Causes),
		raw: k.Key, group: k.Group,
	}
}

// newCauses returns a printable copy of c, or nil if there are none.
func newCauses(c *workqueue.Causes) *workqueue.Causes {
	if c == nil || c.IsZero() {
		return nil
	}
	printable := workqueue.Causes{Last: slices.Clone(c.Last), Others: c.Others, First: c.First.UTC()}
	for i := range printable.Last {
		l := &printable.Last[i]
		l.Reason, l.TraceParent, l.Time = short(l.Reason, maxKey), short(l.TraceParent, maxName), l.Time.UTC()
	}
	return &printable
}

func (k *keyReport) addRunning(r worker.RunningKey[any]) {
	k.Attempt, k.Stuck, k.Canceled, k.Stack = r.Attempt, r.Stuck, r.Canceled, stackText(r.Stack)
	if k.Since.IsZero() {
		k.Since = r.Started.UTC()
	}
}

func (k *keyReport) addHold(h worker.HeldKey[any]) {
	k.Held = &holdReport{Reason: short(h.Reason, maxKey), Since: h.Since.UTC(), Until: h.Until.UTC()}
}

func (k *keyReport) addFailure(f worker.FailedKey[any], state string) {
	k.givenUp = k.givenUp || state == stateGivenUp
	k.Attempt = max(k.Attempt, f.Attempt)
	k.Error = short(f.Err, maxError)
	k.FailsSince, k.FailedAt = f.Since.UTC(), f.Time.UTC()
	if k.Due.IsZero() && state != "" {
		k.Due = f.NextTry.UTC()
	}
}

// finish sets what depends on the keys' own methods, on now, and on the queue, unless that is known.
func finish(keys []keyReport, queueID string, now time.Time) {
	for i := range keys {
		k := &keys[i]
		k.QueueID = cmp.Or(k.QueueID, queueID)
		text := keyText(k.raw)
		k.Key, k.Bytes, k.Cut, k.ID = cut(text, maxKey), len(text), len(text) > maxKey, keyID(k.raw)
		k.For, k.Ago, k.DueIn = between(k.Since, now), between(k.FailedAt, now), between(now, k.Due)
		k.FailsFor = between(k.FailsSince, now)
		if k.Held != nil {
			k.Held.For, k.Held.UntilIn = between(k.Held.Since, now), between(now, k.Held.Until)
		}
	}
}

// LongError returns the beginning of an error that would fill many lines of a list, and otherwise "".
func (k keyReport) LongError() string {
	if len(k.Error) <= longError {
		return ""
	}
	return short(k.Error, longError)
}

// Comes says where a failing key is that does not wait for its next try.
func (k keyReport) Comes() string {
	switch k.State {
	case string(workqueue.KeyQueued):
		return "queued"
	case string(workqueue.KeyProcessing):
		return "running"
	}
	return ""
}

// GroupToPause returns the whole name of the key's group, or "" if it is too long for a button.
func (k keyReport) GroupToPause() string {
	if len(k.group) > maxGroup {
		return ""
	}
	return k.group
}

// IsGivenUp reports whether the record of the key's failures is all that is left of it.
func (k keyReport) IsGivenUp() bool { return k.givenUp && (k.State == "" || k.State == stateGivenUp) }

// addPool adds what a pool knows of the key.
func (k *keyReport) addPool(s worker.KeySnapshot[any]) {
	state := k.State
	if s.GivenUp != nil {
		state = stateGivenUp
		k.addFailure(*s.GivenUp, state)
	}
	if s.Failing != nil {
		state = stateFailing
		k.addFailure(*s.Failing, state)
	}
	if s.Running != nil {
		state = string(workqueue.KeyProcessing)
		k.addRunning(*s.Running)
	}
	if s.Held != nil {
		state = string(workqueue.KeyProcessing)
		k.addHold(*s.Held)
	}
	if k.State == stateAbsent || k.State == stateFailing {
		k.State = state
	}
	k.MaxAttempts, k.AtOnce = max(k.MaxAttempts, s.MaxAttempts), max(k.AtOnce, s.AtOnce)
	if k.Causes == nil {
		k.Causes = newCauses(&s.Causes)
	}
	if s.PanicStack != "" {
		k.PanicStack = stackText(s.PanicStack)
	}
}
