package debug

import (
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

	Refresh int `json:"-"`
}

// queueName is a queue on a page that has none of its numbers.
type queueName struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

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

// keyPage reports the key of e that query asks for. A key that has been found once is looked up, and not searched for again.
func (h *Handler) keyPage(ctx context.Context, e *entry, query url.Values) *keyPage {
	text, id := query.Get("key"), query.Get("id")
	p := &keyPage{Time: h.clock.Now().UTC(), Queue: queueName{e.id, e.name}}
	var r *reading
	var found *foundReport
	isAbsent := func() bool { return len(found.Keys) == 0 || found.Keys[0].State == stateAbsent }
	search := func(limit int) {
		r = h.readOne(ctx, e, limit)
		found = h.search(ctx, h.searching, r, text, id)
	}
	known := len(e.recall(text, id)) > 0 && h.canLookUp(e)
	if known {
		search(0)
	}
	if !known || len(found.Keys) > 0 && isAbsent() { // It may be in a list of those that are not in the queue.
		search(searchLimit)
	}
	p.Incomplete = found.Incomplete
	switch {
	case r.late:
		p.Error = "The queue does not answer."
	case r.panicked != nil:
		p.Error = r.panicked.Error()
	}
	if found.cheap && !isAbsent() { // To look for an absent key, all lists are asked for.
		p.Refresh = refreshSeconds
	}
	if len(found.Keys) == 0 {
		p.Key = keyReport{Key: short(text, maxKey), Bytes: len(text), State: stateAbsent, ID: id}
	} else {
		finish(found.Keys, e.id, p.Time)
		p.Key = found.Keys[0]
	}
	if !isAbsent() {
		p.Key.Actions = h.actionsOf(r).forKey(p.Key)
	}
	return p
}

// canLookUp reports whether the queue and its pools can be asked for one key.
func (h *Handler) canLookUp(e *entry) bool {
	return e.queue.SnapshotKey != nil &&
		!slices.ContainsFunc(h.poolsOf(e), func(p *worker.Inspector) bool { return p.SnapshotKey == nil })
}

// lookUp replaces what k says by what its queue and the pools know of it now. A failing or given-up key that is not in the
// queue keeps its state: it may be known from a list alone.
func (r *reading) lookUp(k *keyReport, known *poolKeys) {
	k.Calls = nil
	if q := r.entry.queue; q.SnapshotKey != nil {
		r.guard("queue", func() {
			if now, ok := q.SnapshotKey(k.raw); ok {
				*k = newKeyReport(now)
			} else if k.State != stateFailing && k.State != stateGivenUp {
				*k = keyReport{raw: k.raw, State: stateAbsent}
			}
		})
	}
	known.describe(k)
	for _, p := range r.pools {
		if p.pool.SnapshotKey != nil {
			// A pool that only has the name of this queue may have keys of another type. Then it panics, and knows nothing.
			_ = guarded("pool", func() { k.addPool(p.pool.SnapshotKey(k.raw)) })
		}
	}
	slices.SortStableFunc(k.Calls, func(a, b callReport) int { return b.Started.Compare(a.Started) })
}

// addPool adds what a pool knows of the key.
func (k *keyReport) addPool(s worker.KeySnapshot[any]) {
	state := k.State
	if s.Dropped != nil {
		state = stateGivenUp
		k.addFailure(failure{FailedKey: *s.Dropped, state: state})
	}
	if s.Failing != nil {
		state = stateFailing
		k.addFailure(failure{FailedKey: *s.Failing, state: state})
	}
	if s.Running != nil {
		state = string(workqueue.KeyProcessing)
		k.addRunning(*s.Running)
	}
	if k.State == stateAbsent || k.State == stateFailing {
		k.State = state
	}
	k.MaxAttempts = max(k.MaxAttempts, s.MaxAttempts)
	if k.Causes == nil {
		k.Causes = newCauses(&s.Causes)
	}
	for _, c := range s.FailedCalls {
		k.Calls = append(k.Calls, callReport{
			Attempt: c.Attempt, Started: c.Started.UTC(), Took: seconds(c.Duration),
			Causes: short(c.Causes, maxError), Error: short(c.Err, maxError), Stack: stackText(c.Stack),
		})
	}
}

// keyID distinguishes keys whose texts are alike. It is the same in each run of the program, except for pointers.
func keyID(key any) (id string) {
	defer func() {
		if recover() != nil { // See keyText.
			id = fmt.Sprintf("%T", key)
		}
	}()
	format := "%T %#v"
	if reflect.ValueOf(key).Kind() == reflect.Pointer {
		format = "%T %p"
	}
	sum := sha256.Sum256(fmt.Appendf(nil, format, key, key))
	return base64.RawURLEncoding.EncodeToString(sum[:4])
}
