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

	raw any
}

func newKeyReport(k workqueue.KeySnapshot[any]) keyReport {
	return keyReport{
		State: string(k.State), Since: k.Since.UTC(), Due: k.Due.UTC(), Again: k.Again, Requeues: k.Requeues,
		Priority: k.Priority, Group: newLabel(k.Group, maxName).short(), Blocked: k.Blocked, Causes: newCauses(k.Causes),
		raw: k.Key,
	}
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
	if r.keys != nil {
		for _, k := range r.keys.givenUp {
			p.dropped = append(p.dropped, worker.FailedKey[any]{Key: k.Key, Attempt: k.Attempts, Err: k.Err, Time: k.Time})
		}
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
	k.Error = newLabel(f.Err, maxError).short()
	k.FailedAt = f.Time.UTC()
	if k.Due.IsZero() && f.state != "" {
		k.Due = f.NextTry.UTC()
	}
}

// newKeyLists returns what a queue and its pools know of their keys. It does not set what [keyReport.finish] sets.
func newKeyLists(q *queueKeys, known *poolKeys) keyLists {
	var s workqueue.Snapshot[any]
	if q != nil {
		s = q.Snapshot
	}
	reports := func(keys []workqueue.KeySnapshot[any]) []keyReport {
		all := make([]keyReport, 0, len(keys))
		for _, k := range keys {
			k.State = "" // the list says it
			all = append(all, newKeyReport(k))
		}
		return all
	}
	l := keyLists{
		Running: reports(s.Processing), Queued: reports(s.Queued), Waiting: reports(s.Waiting),
		Failing: []keyReport{}, GivenUp: []keyReport{},
	}
	if len(l.Running) == 0 {
		for _, r := range known.running {
			l.Running = append(l.Running, keyReport{raw: r.Key})
		}
	}
	// First the failing keys whose errors are known, then those that only the limiter knows.
	counted := reports(s.Failing)
	for _, f := range known.failing {
		k := keyReport{raw: f.Key, Requeues: f.Attempt}
		if i := slices.IndexFunc(counted, func(c keyReport) bool { return c.raw == f.Key }); i >= 0 {
			k = counted[i]
		}
		l.Failing = append(l.Failing, k)
	}
	for _, k := range counted {
		if known.failures[k.raw].state != stateFailing {
			l.Failing = append(l.Failing, k)
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

// cut returns the first limit keys of each list.
func (l keyLists) cut(limit int) keyLists {
	for _, keys := range l.all() {
		*keys = (*keys)[:min(limit, len(*keys))]
	}
	return l
}

func (l *keyLists) all() []*[]keyReport {
	return []*[]keyReport{&l.Running, &l.Queued, &l.Waiting, &l.Failing, &l.GivenUp}
}

// finish sets what depends on the keys' own methods, and on now.
func (l *keyLists) finish(now time.Time) {
	for _, keys := range l.all() {
		for i := range *keys {
			(*keys)[i].finish(now)
		}
	}
}

func (k *keyReport) finish(now time.Time) {
	text := newLabel(keyText(k.raw), maxKey)
	k.Key, k.Bytes, k.Cut = text.Text, text.Bytes, text.Cut
	ago := func(t time.Time) *seconds {
		if t.IsZero() {
			return nil
		}
		d := seconds(max(0, now.Sub(t)))
		return &d
	}
	k.For, k.Ago = ago(k.Since), ago(k.FailedAt)
	for i := range k.Calls {
		k.Calls[i].Ago = ago(k.Calls[i].Started)
	}
	if !k.Due.IsZero() {
		d := seconds(max(0, k.Due.Sub(now)))
		k.DueIn = &d
	}
}

// StateText is the key's state for people.
func (k keyReport) StateText() string {
	switch k.State {
	case "processing":
		return "running"
	case "given_up":
		return "given up"
	}
	return k.State
}
