package debug

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// keyPage is what a key's own page shows.
type keyPage struct {
	Time  time.Time `json:"time"`
	Queue queueName `json:"queue"`
	Key   keyReport `json:"key"`
	// Incomplete reports that there was no time to look at all keys.
	Incomplete bool   `json:"incomplete,omitempty"`
	Error      string `json:"error,omitempty"`

	Actions actionSet `json:"-"`
	Refresh int       `json:"-"`
}

// queueName is a queue on a page that has none of its numbers.
type queueName struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Href returns the address of the queue's page.
func (q queueName) Href() string { return "?" + url.Values{"queue": {q.ID}}.Encode() }

// callReport is a call of a handler that has failed.
type callReport struct {
	Attempt int       `json:"attempt"`
	Started time.Time `json:"started"`
	Ago     *seconds  `json:"started_ago_seconds"`
	Took    seconds   `json:"took_seconds"`
	Causes  string    `json:"causes,omitempty"`
	Error   string    `json:"error"`
	Stack   string    `json:"stack,omitempty"`
}

// keyPage reports the key that query asks for, or returns nil if there is no such queue. A key that has been found once
// is looked up, and not searched for again.
func (h *Handler) keyPage(ctx context.Context, query url.Values) *keyPage {
	e := h.find(query.Get("queue"))
	if e == nil {
		return nil
	}
	text, id := query.Get("key"), query.Get("id")
	limit := 0
	if len(e.recall(text, id)) == 0 || !h.canLookUp(e) {
		limit = searchLimit
	}
	now := h.clock.Now()
	r := h.readOne(ctx, e, limit)
	found := h.search(ctx, h.searching, r, text, id)
	if limit == 0 && len(found.Keys) > 0 && found.Keys[0].State == stateAbsent { // It may be in a list of those that are not in the queue.
		r = h.readOne(ctx, e, searchLimit)
		found = h.search(ctx, h.searching, r, text, id)
	}
	p := &keyPage{Time: now.UTC(), Queue: queueName{e.id, e.name}, Incomplete: found.Incomplete}
	if failure := cmp.Or(r.panicked, found.failure); failure != nil {
		p.Error = failure.Error()
	}
	if r.late {
		p.Error = "The queue does not answer."
	}
	if found.cheap && len(found.Keys) > 0 && found.Keys[0].State != stateAbsent { // To look for an absent key, all lists are asked for.
		p.Refresh = refreshSeconds
	}
	if len(found.Keys) == 0 {
		p.Key = keyReport{Key: newLabel(text, maxKey).short(), Bytes: len(text), State: stateAbsent, ID: id}
		return p
	}
	p.Key = found.Keys[0]
	p.Key.finish(now)
	if p.Key.State != stateAbsent {
		p.Actions = h.actionsOf(r).forKey(p.Key)
	}
	return p
}

// canLookUp reports whether the queue and its pools can be asked for one key.
func (h *Handler) canLookUp(e *entry) bool {
	return e.queue.SnapshotKey != nil && !slices.ContainsFunc(h.poolsOf(e), func(p *pool) bool { return p.SnapshotKey == nil })
}

// lookUp replaces what k says by what its queue and the pools know of it now. A failing or given-up key that is not in the
// queue keeps its state: it may be known from a list alone.
func (r *reading) lookUp(k *keyReport, known *poolKeys) error {
	q := r.entry.queue
	k.Calls = nil
	failure := guarded("queue", func() {
		if q.SnapshotKey == nil {
			return
		}
		if now, ok := q.SnapshotKey(k.raw); ok {
			*k = newKeyReport(now)
		} else if k.State != stateFailing && k.State != stateGivenUp {
			*k = keyReport{raw: k.raw, State: stateAbsent}
		}
	})
	known.describe(k)
	for _, p := range r.pools {
		if p.pool.SnapshotKey != nil {
			// A pool that only has the name of this queue may have keys of another type. Then it panics, and knows nothing.
			_ = guarded("pool", func() { k.addPool(p.pool.SnapshotKey(k.raw)) })
		}
	}
	slices.SortStableFunc(k.Calls, func(a, b callReport) int { return b.Started.Compare(a.Started) })
	return failure
}

// addPool adds what a pool knows of the key.
func (k *keyReport) addPool(s worker.KeySnapshot[any]) {
	state := k.State
	for _, f := range []struct {
		failed *worker.FailedKey[any]
		state  string
	}{{s.Dropped, stateGivenUp}, {s.Failing, stateFailing}} {
		if f.failed != nil {
			k.addFailure(failure{FailedKey: *f.failed, state: f.state})
			state = f.state
		}
	}
	if s.Running != nil {
		k.addRunning(*s.Running)
		state = string(workqueue.KeyProcessing)
	}
	if k.State == stateAbsent || k.State == stateFailing {
		k.State = state
	}
	k.MaxAttempts = max(k.MaxAttempts, s.MaxAttempts)
	if k.Causes == nil && !s.Causes.IsZero() {
		k.Causes = newCauses(&s.Causes)
	}
	for _, c := range s.FailedCalls {
		k.Calls = append(k.Calls, callReport{
			Attempt: c.Attempt, Started: c.Started.UTC(), Took: seconds(c.Duration),
			Causes: newLabel(c.Causes, maxError).short(), Error: newLabel(c.Err, maxError).short(), Stack: stackText(c.Stack),
		})
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
		l.Reason, l.TraceParent, l.Time = newLabel(l.Reason, maxKey).short(), newLabel(l.TraceParent, maxName).short(), l.Time.UTC()
	}
	return &printable
}

// keyID distinguishes keys whose texts are alike. It is the same in each run of the program, except for pointers.
func keyID(key any) (id string) {
	defer func() {
		if recover() != nil { // See keyText.
			id = fmt.Sprintf("%T", key)
		}
	}()
	text := ""
	if reflect.ValueOf(key).Kind() == reflect.Pointer {
		text = fmt.Sprintf("%T %p", key, key)
	} else {
		text = fmt.Sprintf("%T %#v", key, key)
	}
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:4])
}

// Row returns the key as templates show it.
func (p *keyPage) Row() row { return row{p.Key, section{QueueID: p.Queue.ID, Actions: p.Actions}} }

// HrefJSON returns the address of the same as JSON.
func (p *keyPage) HrefJSON() string {
	return "?" + url.Values{"queue": {p.Queue.ID}, "key": {p.Key.Key}, "id": {p.Key.ID}, "format": {"json"}}.Encode()
}

// AttemptText says how often the key was tried, a call that goes on included, and how often it may be.
func (k keyReport) AttemptText() string { return k.attempts(k.Attempt) }

func (k keyReport) attempts(n int) string {
	if k.MaxAttempts > 0 {
		return number(n) + " of " + number(k.MaxAttempts)
	}
	return number(n)
}

// Sentence says where the key is in its life.
func (k keyReport) Sentence() string {
	since, next := "", ""
	if k.For != nil {
		since = " for " + human(time.Duration(*k.For))
	}
	if k.Attempt > 0 || k.MaxAttempts > 0 {
		next = "attempt " + k.attempts(k.Attempt+1)
	}
	switch k.State {
	case string(workqueue.KeyProcessing):
		text := "A worker has had it" + since
		if k.Attempt > 0 {
			text += ": attempt " + k.AttemptText()
		}
		if k.Again {
			text += ". It was added again meanwhile"
		}
		return text + "."
	case string(workqueue.KeyQueued):
		text := "It has been in the line" + since
		if next != "" {
			text += ": " + next + " comes next"
		}
		return text + "."
	case string(workqueue.KeyWaiting):
		text := "It waits for its time"
		if k.DueIn != nil {
			text += ": " + cmp.Or(next, "it") + " comes in " + human(time.Duration(*k.DueIn))
		}
		return text + "."
	case stateFailing:
		return "It is not in the queue, and its failures are remembered."
	case stateGivenUp:
		return "It was given up after attempt " + k.AttemptText() + " and does not come again by itself."
	}
	return "It is not in the queue, and nothing is known of it: it may be done."
}
