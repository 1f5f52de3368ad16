package debug

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	stateFailing = "failing"  // not in the queue, but the limiter or a pool remembers failures
	stateGivenUp = "given_up" // a pool or the queue itself does not try it any more
	stateAbsent  = "absent"   // nothing is known of it, any more
)

// states of a key that was found, in the order of [keyLists.all]. The first one that fits is its state.
var states = []string{string(workqueue.KeyProcessing), string(workqueue.KeyQueued), string(workqueue.KeyWaiting), stateFailing, stateGivenUp}

// keyLists are the keys of a queue and of its pools.
type keyLists struct {
	Running []keyReport `json:"running"`
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
	Attempt     int          `json:"attempt,omitempty"`
	MaxAttempts int          `json:"max_attempts,omitempty"`
	Stuck       bool         `json:"stuck,omitempty"`
	Stack       string       `json:"stack,omitempty"`
	Error       string       `json:"error,omitempty"`
	FailedAt    time.Time    `json:"failed_at,omitzero"`
	Ago         *seconds     `json:"failed_ago_seconds,omitempty"`
	Calls       []callReport `json:"failed_calls,omitempty"`
	// ID is set for keys that were found, and Queue for those that were found in all queues.
	ID    string     `json:"id,omitempty"`
	Queue *queueName `json:"queue,omitempty"`

	// QueueID is the id of its queue and Actions what can be done with it. Linked reports that the page is not its own.
	QueueID string    `json:"-"`
	Actions actionSet `json:"-"`
	Linked  bool      `json:"-"`
	raw     any
}

func newKeyReport(k workqueue.KeySnapshot[any]) keyReport {
	return keyReport{
		State: string(k.State), Since: k.Since.UTC(), Due: k.Due.UTC(), Again: k.Again, Requeues: k.Requeues,
		Priority: k.Priority, Group: short(k.Group, maxName), Blocked: k.Blocked, Causes: newCauses(k.Causes), raw: k.Key,
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

// poolKeys is what pools know of keys.
type poolKeys struct {
	running          []worker.RunningKey[any] // longest first
	failing, dropped []worker.FailedKey[any]  // the last failure first
	// calls are the running keys, and failures the last failure of each key, by key.
	calls    map[any]worker.RunningKey[any]
	failures map[any]failure
}

func (r *reading) poolKeys() *poolKeys {
	p := &poolKeys{calls: make(map[any]worker.RunningKey[any]), failures: make(map[any]failure)}
	for _, k := range r.keys.givenUp {
		p.dropped = append(p.dropped, givenUp(k).FailedKey)
	}
	for _, s := range r.pools {
		p.running = append(p.running, s.Running...)
		p.failing = append(p.failing, s.Failing...)
		p.dropped = append(p.dropped, s.Dropped...)
	}
	slices.SortStableFunc(p.running, func(a, b worker.RunningKey[any]) int { return cmp.Compare(b.Duration, a.Duration) })
	for _, k := range p.running {
		p.calls[k.Key] = k
	}
	// A key that fails now may have been given up before.
	p.addFailures(slices.Clone(r.past), "")
	p.dropped = p.addFailures(p.dropped, stateGivenUp)
	p.failing = p.addFailures(p.failing, stateFailing)
	return p
}

// addFailures puts keys in place of what failures has of them. It returns each of them once, the last failure first.
func (p *poolKeys) addFailures(keys []worker.FailedKey[any], state string) []worker.FailedKey[any] {
	slices.SortStableFunc(keys, func(a, b worker.FailedKey[any]) int { return b.Time.Compare(a.Time) })
	seen := make(map[any]bool)
	return slices.DeleteFunc(keys, func(f worker.FailedKey[any]) bool {
		if seen[f.Key] {
			return true
		}
		seen[f.Key] = true
		p.failures[f.Key] = failure{FailedKey: f, state: state}
		return false
	})
}

// describe adds to k what the pools know of it.
func (p *poolKeys) describe(k *keyReport) {
	if r, ok := p.calls[k.raw]; ok {
		k.addRunning(r)
	}
	// What a pool knew that has ended may be out of date.
	if f, ok := p.failures[k.raw]; ok && (f.state != "" || k.Requeues > 0) {
		k.addFailure(f)
	}
}

func (k *keyReport) addRunning(r worker.RunningKey[any]) {
	k.Attempt, k.Stuck, k.Stack = r.Attempt, r.Stuck, stackText(r.Stack)
	if k.Since.IsZero() {
		k.Since = r.Started.UTC()
	}
}

func (k *keyReport) addFailure(f failure) {
	k.Attempt = max(k.Attempt, f.Attempt)
	k.Error = short(f.Err, maxError)
	k.FailedAt = f.Time.UTC()
	if k.Due.IsZero() && f.state != "" {
		k.Due = f.NextTry.UTC()
	}
}

// newKeyLists returns what a queue and its pools know of their keys. It does not set what finish sets.
func newKeyLists(q *queueKeys, known *poolKeys) keyLists {
	reports := func(keys []workqueue.KeySnapshot[any]) []keyReport {
		all := make([]keyReport, len(keys))
		for i, k := range keys {
			all[i] = newKeyReport(k)
			all[i].State = "" // the list says it
		}
		return all
	}
	l := keyLists{
		Running: reports(q.Processing), Queued: reports(q.Queued), Waiting: reports(q.Waiting),
		Failing: []keyReport{}, GivenUp: []keyReport{},
	}
	if len(l.Running) == 0 {
		for _, r := range known.running {
			l.Running = append(l.Running, keyReport{raw: r.Key})
		}
	}
	// First the failing keys whose errors are known, then those that only the limiter knows.
	for _, f := range known.failing {
		l.Failing = append(l.Failing, keyReport{raw: f.Key, Requeues: f.Attempt})
	}
	for _, k := range reports(q.Failing) {
		if known.failures[k.raw].state != stateFailing {
			l.Failing = append(l.Failing, k)
		} else {
			l.Failing[slices.IndexFunc(l.Failing, func(f keyReport) bool { return f.raw == k.raw })] = k
		}
	}
	for _, f := range known.dropped {
		if known.failures[f.Key].state == stateGivenUp {
			l.GivenUp = append(l.GivenUp, keyReport{raw: f.Key})
		}
	}
	for _, keys := range l.all() {
		for i := range *keys {
			known.describe(&(*keys)[i])
		}
	}
	return l
}

func (l *keyLists) all() []*[]keyReport {
	return []*[]keyReport{&l.Running, &l.Queued, &l.Waiting, &l.Failing, &l.GivenUp}
}

// finish sets what depends on the keys' own methods, on now, and on the queue, unless that is known.
func finish(keys []keyReport, queueID string, now time.Time) {
	ago := func(t time.Time) *seconds {
		if t.IsZero() {
			return nil
		}
		d := seconds(max(0, now.Sub(t)))
		return &d
	}
	for i := range keys {
		k := &keys[i]
		k.QueueID = cmp.Or(k.QueueID, queueID)
		text := keyText(k.raw)
		k.Key, k.Bytes, k.Cut = cut(text, maxKey), len(text), len(text) > maxKey
		k.For, k.Ago = ago(k.Since), ago(k.FailedAt)
		for i := range k.Calls {
			k.Calls[i].Ago = ago(k.Calls[i].Started)
		}
		if !k.Due.IsZero() {
			d := seconds(max(0, k.Due.Sub(now)))
			k.DueIn = &d
		}
	}
}

// KeyID returns what the id of a key is, whether it was found or not.
func (k keyReport) KeyID() string { return keyID(k.raw) }
