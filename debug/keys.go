package debug

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

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
	// What follows is known of keys that a pool handles.
	Attempt  int       `json:"attempt,omitempty"`
	Stuck    bool      `json:"stuck,omitempty"`
	Error    string    `json:"error,omitempty"`
	FailedAt time.Time `json:"failed_at,omitzero"`
	Ago      *seconds  `json:"failed_ago_seconds,omitempty"`

	raw any
}

func newKeyReport(k workqueue.KeySnapshot[any]) keyReport {
	return keyReport{
		State: string(k.State), Since: utc(k.Since), Due: utc(k.Due), Again: k.Again, Requeues: k.Requeues,
		Priority: k.Priority, Group: newLabel(k.Group, maxName).short(), Blocked: k.Blocked, raw: k.Key,
	}
}

// utc returns t in UTC, and the zero time as it is.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// setFailure sets what a pool remembers of the key's last failure.
func (k *keyReport) setFailure(f worker.FailedKey[any]) {
	k.Attempt = max(k.Attempt, f.Attempt)
	k.Error = newLabel(f.Err, maxError).short()
	k.FailedAt = utc(f.Time)
	if k.Due.IsZero() {
		k.Due = utc(f.NextTry)
	}
}

// poolKeys is what pools know of keys.
type poolKeys struct {
	running              []worker.RunningKey[any] // longest first
	failing, dropped     []worker.FailedKey[any]  // the last failure first
	runningBy            map[any]worker.RunningKey[any]
	failingBy, droppedBy map[any]worker.FailedKey[any]
	pastBy               map[any]worker.FailedKey[any] // of pools that have ended
}

func (r *reading) poolKeys() *poolKeys {
	p := &poolKeys{runningBy: make(map[any]worker.RunningKey[any])}
	for _, s := range r.pools {
		p.running = append(p.running, s.Running...)
		p.failing = append(p.failing, s.Failing...)
		p.dropped = append(p.dropped, s.Dropped...)
	}
	slices.SortStableFunc(p.running, func(a, b worker.RunningKey[any]) int { return cmp.Compare(b.Duration, a.Duration) })
	for _, k := range p.running {
		p.runningBy[k.Key] = k
	}
	p.failingBy, p.droppedBy, p.pastBy = sortedByTime(p.failing), sortedByTime(p.dropped), sortedByTime(r.entry.pastErrors())
	return p
}

// sortedByTime sorts keys, the last failure first, and returns them by key as well.
func sortedByTime(keys []worker.FailedKey[any]) map[any]worker.FailedKey[any] {
	slices.SortStableFunc(keys, func(a, b worker.FailedKey[any]) int { return b.Time.Compare(a.Time) })
	byKey := make(map[any]worker.FailedKey[any], len(keys))
	for _, k := range slices.Backward(keys) {
		byKey[k.Key] = k
	}
	return byKey
}

// describe adds to k what the pools know of it.
func (p *poolKeys) describe(k *keyReport) {
	if r, ok := p.runningBy[k.raw]; ok {
		k.Attempt, k.Stuck = r.Attempt, r.Stuck
		if k.Since.IsZero() {
			k.Since = utc(r.Started)
		}
	}
	if f, ok := p.failingBy[k.raw]; ok {
		k.setFailure(f)
	} else if f, ok := p.droppedBy[k.raw]; ok {
		k.setFailure(f)
	} else if f, ok := p.pastBy[k.raw]; ok && k.Requeues > 0 {
		f.NextTry = time.Time{}
		k.setFailure(f)
	}
}

// newKeyLists returns what a queue and its pools know of their keys. It does not set what [keyReport.finish] sets.
func newKeyLists(s workqueue.Snapshot[any], known *poolKeys) keyLists {
	reports := func(keys []workqueue.KeySnapshot[any]) []keyReport {
		all := make([]keyReport, 0, len(keys))
		for _, k := range keys {
			k.State = "" // the list says it
			all = append(all, newKeyReport(k))
		}
		return all
	}
	l := keyLists{Running: reports(s.Processing), Queued: reports(s.Queued), Waiting: reports(s.Waiting), GivenUp: []keyReport{}}
	if len(l.Running) == 0 {
		for _, r := range known.running {
			l.Running = append(l.Running, keyReport{raw: r.Key})
		}
	}
	l.Failing = known.failingReports(reports(s.Failing))
	for _, f := range known.dropped {
		if _, failing := known.failingBy[f.Key]; !failing {
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

// failingReports returns the keys whose errors the pools know, the last failure first, and then those that only the
// limiter knows.
func (p *poolKeys) failingReports(counted []keyReport) []keyReport {
	byKey := make(map[any]keyReport, len(counted))
	for _, k := range counted {
		byKey[k.raw] = k
	}
	all := make([]keyReport, 0, len(p.failing)+len(counted))
	for _, f := range p.failing {
		k, known := byKey[f.Key]
		if !known {
			k = keyReport{raw: f.Key, Requeues: f.Attempt}
		}
		all = append(all, k)
	}
	for _, k := range counted {
		if _, known := p.failingBy[k.raw]; !known {
			all = append(all, k)
		}
	}
	return all
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
	if !k.Due.IsZero() {
		d := seconds(max(0, k.Due.Sub(now)))
		k.DueIn = &d
	}
}
