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
		Since: utc(k.Since), Due: utc(k.Due), Again: k.Again, Requeues: k.Requeues,
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

// newKeyLists returns what a queue and its pools know of their keys, up to limit of each state. It does not set
// what [keyReport.finish] sets.
func newKeyLists(s workqueue.Snapshot[any], pools []worker.Snapshot[any], limit int) keyLists {
	l := keyLists{
		Running: newKeyReports(s.Processing, limit),
		Queued:  newKeyReports(s.Queued, limit),
		Waiting: newKeyReports(s.Waiting, limit),
		Failing: newKeyReports(s.Failing, limit),
	}
	if len(pools) == 0 {
		return l
	}
	var running []worker.RunningKey[any]
	var failing, dropped []worker.FailedKey[any]
	for _, p := range pools {
		running = append(running, p.Running...)
		failing = append(failing, p.Failing...)
		dropped = append(dropped, p.Dropped...)
	}
	l.addRunning(running, limit)
	l.addFailing(failing, limit)
	sortByTime(dropped)
	for _, f := range dropped[:min(limit, len(dropped))] {
		k := keyReport{raw: f.Key}
		k.setFailure(f)
		l.GivenUp = append(l.GivenUp, k)
	}
	return l
}

// newKeyReports cuts keys at limit, because a custom queue or limiter may not.
func newKeyReports(keys []workqueue.KeySnapshot[any], limit int) []keyReport {
	keys = keys[:min(len(keys), limit)]
	all := make([]keyReport, len(keys))
	for i, k := range keys {
		all[i] = newKeyReport(k)
	}
	return all
}

func sortByTime(keys []worker.FailedKey[any]) {
	slices.SortStableFunc(keys, func(a, b worker.FailedKey[any]) int { return b.Time.Compare(a.Time) })
}

// addRunning adds what pools know of the keys that are handled. If the queue lists none, the list is theirs.
func (l *keyLists) addRunning(running []worker.RunningKey[any], limit int) {
	byKey := make(map[any]worker.RunningKey[any], len(running))
	for _, r := range running {
		byKey[r.Key] = r
	}
	if len(l.Running) == 0 {
		slices.SortStableFunc(running, func(a, b worker.RunningKey[any]) int { return cmp.Compare(b.Duration, a.Duration) })
		for _, r := range running[:min(limit, len(running))] {
			l.Running = append(l.Running, keyReport{raw: r.Key, Since: utc(r.Started)})
		}
	}
	for i := range l.Running {
		k := &l.Running[i]
		if r, ok := byKey[k.raw]; ok {
			k.Attempt, k.Stuck = r.Attempt, r.Stuck
			if k.Since.IsZero() {
				k.Since = utc(r.Started)
			}
		}
	}
}

// addFailing adds what pools know of failing keys. Those whose errors they know come first, the last failure at the
// front, and then those that only the limiter knows.
func (l *keyLists) addFailing(failing []worker.FailedKey[any], limit int) {
	sortByTime(failing)
	byKey := make(map[any]worker.FailedKey[any], len(failing))
	for _, f := range failing {
		byKey[f.Key] = f
	}
	for _, keys := range [][]keyReport{l.Running, l.Queued, l.Waiting} {
		for i := range keys {
			if f, ok := byKey[keys[i].raw]; ok {
				keys[i].setFailure(f)
			}
		}
	}
	counted := make(map[any]keyReport, len(l.Failing))
	for _, k := range l.Failing {
		counted[k.raw] = k
	}
	all := make([]keyReport, 0, min(limit, len(failing)+len(l.Failing)))
	for _, f := range failing {
		k := keyReport{raw: f.Key, Requeues: f.Attempt}
		if known, ok := counted[f.Key]; ok {
			k = known
		}
		k.setFailure(f)
		all = append(all, k)
	}
	for _, k := range l.Failing {
		if _, known := byKey[k.raw]; !known {
			all = append(all, k)
		}
	}
	l.Failing = all[:min(limit, len(all))]
}

func (l *keyLists) all() []*[]keyReport {
	return []*[]keyReport{&l.Running, &l.Queued, &l.Waiting, &l.Failing, &l.GivenUp}
}

// finish sets what depends on the keys' own methods, and on now.
func (l *keyLists) finish(now time.Time) {
	for _, keys := range l.all() {
		if *keys == nil {
			*keys = []keyReport{} // JSON has [], not null
		}
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
