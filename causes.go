package workqueue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/notes"
)

// Cause is why a key was added. Handlers must not depend on it: causes are merged and cut, and many adds have
// none.
type Cause struct {
	// Reason says what has happened, in at most 256 bytes: "Secret db changed".
	Reason string `json:"reason,omitempty"`
	// TraceParent is the W3C traceparent of its span, in at most 64 bytes.
	TraceParent string `json:"traceparent,omitempty"`
	// Quiet makes the add not close the channel of AddedAgain.
	Quiet bool `json:"quiet,omitempty"`
	// Time is when the key was added; zero means now.
	Time time.Time `json:"time,omitzero"`
}

const (
	maxReason      = 256
	maxTraceParent = 64
	maxCauses      = 8
)

// Causes are why a key was handed out. Do not change the elements of Last: they are shared.
type Causes struct {
	// Last are the last eight, different in Reason or TraceParent.
	Last []Cause `json:"last,omitempty"`
	// Others is how many those pushed out.
	Others int       `json:"others,omitempty"`
	First  time.Time `json:"first,omitzero"`
}

// IsZero reports whether there is no cause.
func (c Causes) IsZero() bool { return len(c.Last) == 0 }

// String returns the different reasons, the latest last.
func (c Causes) String() string {
	var reasons []string
	for _, cause := range c.Last {
		if cause.Reason != "" && !slices.Contains(reasons, cause.Reason) {
			reasons = append(reasons, cause.Reason)
		}
	}
	if c.Others > 0 {
		reasons = append(reasons, fmt.Sprintf("%d others before", c.Others))
	}
	return strings.Join(reasons, "; ")
}

// Plus returns a copy of c with cause, if that has a Reason or TraceParent.
func (c Causes) Plus(cause Cause) Causes {
	if len(cause.Reason) > maxReason {
		cause.Reason = strings.ToValidUTF8(cause.Reason[:maxReason], "")
	}
	if len(cause.TraceParent) > maxTraceParent {
		cause.TraceParent = ""
	}
	if cause.Reason == "" && cause.TraceParent == "" {
		return c
	}
	// Either may be a part of something large.
	cause.Reason, cause.TraceParent = strings.Clone(cause.Reason), strings.Clone(cause.TraceParent)
	if c.IsZero() {
		c.First = cause.Time
	}
	last := slices.DeleteFunc(slices.Clone(c.Last), func(l Cause) bool {
		return l.Reason == cause.Reason && l.TraceParent == cause.TraceParent
	})
	if len(last) == maxCauses {
		last = slices.Delete(last, 0, 1)
		c.Others++
	}
	c.Last = append(last, cause)
	return c
}

// AddCause is AddCause of queue if that is an [Extended], and otherwise Add.
func AddCause[T comparable](queue TypedInterface[T], key T, cause Cause) {
	if q, ok := queue.(Extended[T]); ok {
		q.AddCause(key, cause)
	} else {
		queue.Add(key)
	}
}

// See [Extended].
func (q *Typed[T]) AddCause(item T, cause Cause) {
	h := keytable.HashOf(item)
	if cause.Time.IsZero() {
		cause.Time = q.clock.Now() // A clock is foreign code, so not under the lock.
	}
	var marks sets
	if cause.Quiet {
		marks = quiet
	}
	q.mu.Lock()
	defer q.unlock()
	if s, k := q.addLocked(h, item, marks); k != nil && (cause.Reason != "" || cause.TraceParent != "") {
		q.mu.notes.AddCause(s, func(c Causes) Causes { return c.Plus(cause) })
		k.Value |= noted
	}
}

// See [Extended].
func (q *Typed[T]) Causes(item T) Causes {
	h := keytable.HashOf(item)
	q.mu.Lock()
	defer q.unlock()
	if s, k := q.mu.keys.Find(h, item); k != nil {
		if causes := q.causesLocked(s, k); causes != nil {
			return *causes
		}
	}
	return Causes{}
}

// causesLocked returns the causes of the key at s, nil if it has no causes.
func (q *Typed[T]) causesLocked(s keytable.Slot, k *entry[T]) *Causes {
	if k.Value&noted == 0 {
		return nil
	}
	current, next := q.mu.notes.Causes(s)
	if k.Value&processing == 0 {
		current = next
	}
	return current
}

// See [Extended].
func (q *Typed[T]) AddedAgain(item T) <-chan struct{} {
	h := keytable.HashOf(item)
	q.mu.Lock()
	defer q.unlock()
	s, k := q.mu.keys.Find(h, item)
	switch {
	case k == nil || k.Value&processing == 0:
		return nil
	case k.Value&(dirty|quiet) == dirty:
		return notes.Closed
	}
	k.Value |= noted
	return q.mu.notes.Await(s)
}
