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

const (
	stateHeld    = "held"     // on hold
	stateFailing = "failing"  // not in the queue, but the limiter or a pool remembers failures
	stateGivenUp = "given_up" // a pool or the queue itself does not try it any more
	stateAbsent  = "absent"   // nothing is known of it, any more
	stateUnknown = "unknown"  // the queue did not answer
)

// keyLists are the keys of a queue and of its pools.
type keyLists struct {
	Running []keyReport `json:"running"`
	Held    []keyReport `json:"held,omitempty"`
	Queued  []keyReport `json:"queued"`
	Waiting []keyReport `json:"waiting"`
	Failing []keyReport `json:"failing"`
	GivenUp []keyReport `json:"given_up"`
}

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
	Group    string    `json:"group,omitempty"`
	Blocked  bool      `json:"blocked,omitempty"`
	// Causes are cut and printable.
	Causes *workqueue.Causes `json:"causes,omitempty"`
	// What follows is known of keys that a pool handles.
	Attempt     int `json:"attempt,omitempty"`
	MaxAttempts int `json:"max_attempts,omitempty"`
	// Interruptions is how often in a row its calls were interrupted.
	Interruptions int          `json:"interruptions,omitempty"`
	Held          *holdReport  `json:"hold,omitempty"`
	Stuck         bool         `json:"stuck,omitempty"`
	Canceled      bool         `json:"canceled,omitempty"`
	Stack         string       `json:"stack,omitempty"`
	Error         string       `json:"error,omitempty"`
	FailsSince    time.Time    `json:"fails_since,omitzero"`
	FailsFor      *seconds     `json:"fails_for_seconds,omitempty"`
	FailedAt      time.Time    `json:"failed_at,omitzero"`
	Ago           *seconds     `json:"failed_ago_seconds,omitempty"`
	Calls         []callReport `json:"failed_calls,omitempty"`
	ID            string       `json:"id,omitempty"`
	// Queue is set for keys that were found in all queues.
	Queue *queueName `json:"queue,omitempty"`

	// QueueID is the id of its queue and Actions what can be done with it. Linked reports that the page is not
	// its own.
	QueueID string    `json:"-"`
	Actions actionSet `json:"-"`
	Linked  bool      `json:"-"`
	raw     any
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
	return keyReport{
		State: string(k.State), Since: k.Since.UTC(), Due: k.Due.UTC(), Again: k.Again, Requeues: k.Requeues,
		Priority: k.Priority, Group: k.Group, Blocked: k.Blocked, Causes: newCauses(k.Causes),
		raw: k.Key,
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

// poolKeys is what pools know of keys, and the queue of those that it keeps as given up, each key once in a
// list.
type poolKeys struct {
	running []worker.RunningKey[any] // longest first
	held    []worker.HeldKey[any]    // the one whose hold began first at the front
	failing []worker.FailedKey[any]  // the last failure first
	givenUp []worker.FailedKey[any]  // the same, without those that fail now
	// of has all of these by key.
	of map[any]*worker.KeySnapshot[any]
	// past are the failures that pools knew that have ended.
	past []worker.FailedKey[any]
}

func (r *reading) poolKeys() *poolKeys {
	p := &poolKeys{of: make(map[any]*worker.KeySnapshot[any]), past: r.past}
	for _, k := range r.keys.givenUp {
		p.givenUp = append(p.givenUp, newKeptFailure(k).failed)
	}
	for _, s := range r.keys.pools {
		p.running = append(p.running, s.Running...)
		p.held = append(p.held, s.Held...)
		p.failing = append(p.failing, s.Failing...)
		p.givenUp = append(p.givenUp, s.GivenUp...)
	}
	at := func(key any) *worker.KeySnapshot[any] {
		if p.of[key] == nil {
			p.of[key] = new(worker.KeySnapshot[any])
		}
		return p.of[key]
	}
	slices.SortStableFunc(p.running, func(a, b worker.RunningKey[any]) int {
		return cmp.Compare(b.Duration, a.Duration)
	})
	for i, k := range p.running {
		at(k.Key).Running = &p.running[i]
	}
	slices.SortStableFunc(p.held, func(a, b worker.HeldKey[any]) int { return a.Since.Compare(b.Since) })
	for i, k := range p.held {
		at(k.Key).Held = &p.held[i]
	}
	lastFirst := func(a, b worker.FailedKey[any]) int { return b.Time.Compare(a.Time) }
	slices.SortStableFunc(p.failing, lastFirst)
	p.failing = slices.DeleteFunc(p.failing, func(f worker.FailedKey[any]) (again bool) {
		k := at(f.Key)
		again, k.Failing = k.Failing != nil, cmp.Or(k.Failing, &f)
		return again
	})
	slices.SortStableFunc(p.givenUp, lastFirst)
	p.givenUp = slices.DeleteFunc(p.givenUp, func(f worker.FailedKey[any]) (again bool) {
		k := at(f.Key)
		if again = k.Failing != nil || k.GivenUp != nil; !again {
			k.GivenUp = &f
		}
		return again
	})
	return p
}

// describe adds to k what the pools know of it.
func (p *poolKeys) describe(k *keyReport) {
	known := cmp.Or(p.of[k.raw], new(worker.KeySnapshot[any]))
	k.addPool(*known)
	if known.Failing == nil && known.GivenUp == nil && k.Requeues > 0 { // Otherwise it may be out of date.
		isKey := func(f worker.FailedKey[any]) bool { return f.Key == k.raw }
		if i := slices.IndexFunc(p.past, isKey); i >= 0 {
			k.addFailure(p.past[i], "")
		}
	}
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

// complete adds to failing or given-up keys what the queue knows of them: when a key comes again, which the
// lists of pools lack, and the state of a given-up key that is in the queue again.
func (r *reading) complete(ctx context.Context, keys []keyReport) {
	for i := range keys {
		if !r.entry.hasQueue() || ctx.Err() != nil {
			return
		}
		k := &keys[i]
		r.askQueue(func() {
			if snapshot, ok := r.entry.queue.SnapshotKey(k.raw); ok {
				now := newKeyReport(snapshot)
				if !k.givenUp {
					now.State = "" // the list says it
				}
				now.Attempt, now.Error, now.givenUp = k.Attempt, k.Error, k.givenUp
				now.FailsSince, now.FailedAt = k.FailsSince, k.FailedAt
				*k = now
			}
		})
	}
}

// keyLists returns what the queue and its pools know of their keys. It does not set what finish sets.
func (r *reading) keyLists() (l keyLists, pools *poolKeys) {
	q, pools := r.keys, r.poolKeys()
	reports := func(keys []workqueue.KeySnapshot[any]) []keyReport {
		return mapped(keys, func(k workqueue.KeySnapshot[any]) keyReport {
			k.State = "" // the list says it
			return newKeyReport(k)
		})
	}
	l = keyLists{
		Running: reports(q.Processing), Queued: reports(q.Queued), Waiting: reports(q.Waiting),
		Failing: []keyReport{}, GivenUp: []keyReport{},
	}
	// The queue counts a key that is on hold as being processed.
	l.Running = slices.DeleteFunc(l.Running, func(k keyReport) bool {
		return pools.of[k.raw] != nil && pools.of[k.raw].Held != nil
	})
	for _, k := range pools.held {
		l.Held = append(l.Held, keyReport{raw: k.Key})
	}
	if len(l.Running) == 0 || len(pools.held) > 0 { // Keys on hold may have left no room for those that run.
		for _, running := range pools.running {
			if !slices.ContainsFunc(l.Running, func(k keyReport) bool { return k.raw == running.Key }) {
				l.Running = append(l.Running, keyReport{raw: running.Key})
			}
		}
	}
	for _, f := range pools.failing {
		l.Failing = append(l.Failing, keyReport{raw: f.Key, Requeues: f.Attempt})
	}
	for _, f := range pools.givenUp {
		l.GivenUp = append(l.GivenUp, keyReport{raw: f.Key})
	}
	// Behind the failing keys whose errors are known come those that only the limiter knows.
	for _, k := range reports(q.Failing) {
		if i := slices.IndexFunc(l.Failing, func(f keyReport) bool { return f.raw == k.raw }); i >= 0 {
			l.Failing[i] = k
		} else {
			l.Failing = append(l.Failing, k)
		}
	}
	for _, keys := range l.all() {
		for i := range *keys {
			pools.describe(&(*keys)[i])
		}
	}
	return l, pools
}

func (l *keyLists) all() []*[]keyReport {
	return mapped(sections, func(s section) *[]keyReport { return s.of(l) })
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
		for i := range k.Calls {
			k.Calls[i].Ago = between(k.Calls[i].Started, now)
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

// IsGivenUp reports whether the record of the key's failures is all that is left of it.
func (k keyReport) IsGivenUp() bool { return k.givenUp && (k.State == "" || k.State == stateGivenUp) }

// between returns how long it is from one time to the other, or nil if one is not known.
func between(from, to time.Time) *seconds {
	if from.IsZero() || to.IsZero() {
		return nil
	}
	d := seconds(max(0, to.Sub(from)))
	return &d
}

// oneKeyReport is what a key's own page shows.
type oneKeyReport struct {
	Time  time.Time `json:"time"`
	Queue queueName `json:"queue"`
	Key   keyReport `json:"key"`
	// Incomplete reports that there was no time to look at all keys.
	Incomplete bool   `json:"incomplete,omitempty"`
	Error      string `json:"error,omitempty"`

	Refresh int `json:"-"`
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

// keyPage reports the key of e that query asks for. A key that has been found once is looked up, and not
// searched for again.
func (h *Handler) keyPage(ctx context.Context, e *entry, query url.Values) *oneKeyReport {
	text, id := query.Get("key"), query.Get("id")
	limit := searchLimit
	if len(e.recall(text, id)) > 0 && e.hasQueue() {
		limit = 0
	}
	now := h.clock.Now()
	r := h.readOne(ctx, e, limit)
	found := h.search(ctx, h.searching, r, text, id, false)
	if limit == 0 && found.isAbsent() && !r.late { // It may be in a list of those that are not in the queue.
		r = h.readOne(ctx, e, searchLimit)
		found = h.search(ctx, h.searching, r, text, id, false)
	}
	p := &oneKeyReport{Time: now.UTC(), Queue: e.named(), Incomplete: found.Incomplete}
	if err := cmp.Or(r.err, r.missing); err != nil {
		p.Error = err.Error()
	}
	if len(found.Keys) == 0 {
		p.Key = keyReport{Key: short(text, maxKey), Bytes: len(text), State: stateAbsent, ID: id}
		if r.missing != nil {
			p.Key.State, p.Refresh = stateUnknown, refreshSeconds
		}
		return p
	}
	finish(found.Keys, e.id, now)
	if p.Key = found.Keys[0]; !found.isAbsent() {
		p.Key.Actions = h.actionsOf(r).forKey(p.Key)
		if found.cheap { // To look for an absent key, all lists are asked for.
			p.Refresh = refreshSeconds
		}
	}
	return p
}

// lookUp asks the queue and its pools for k anew. Later answers win: the queue's, then what the pools' lists
// say (describe), then each pool's own answer (addPool). A failing or given-up key that is not in the queue
// keeps its state, because that may come from a list alone.
func (r *reading) lookUp(k *keyReport, known *poolKeys) {
	k.Calls = nil
	if q := r.entry.queue; r.entry.hasQueue() {
		r.askQueue(func() {
			now, ok := q.SnapshotKey(k.raw)
			switch {
			case ok:
				*k = newKeyReport(now)
			case k.State != stateFailing && k.State != stateGivenUp:
				*k = keyReport{raw: k.raw, State: stateAbsent}
			}
		})
	}
	if r.missing != nil && k.State == stateAbsent {
		k.State = stateUnknown
	}
	known.describe(k)
	if r.missing != nil {
		return // A pool asks the queue.
	}
	r.anyPool(func(p *worker.Inspector) bool { k.addPool(p.SnapshotKey(k.raw)); return true })
	slices.SortStableFunc(k.Calls, func(a, b callReport) int { return b.Started.Compare(a.Started) })
}

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
	k.MaxAttempts, k.Interruptions = max(k.MaxAttempts, s.MaxAttempts), max(k.Interruptions, s.Interruptions)
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

// keyID distinguishes keys whose texts are alike. It is the same in each run of the program, except for
// pointers.
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
	return base64.RawURLEncoding.EncodeToString(sum[:4]) // The text must fit, too.
}
