package debug

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// queuePage shows a queue.
type queuePage struct {
	page
	Queue   *reading
	Charts  []chart
	Times   timesTable
	Busiest []busyRow
	// Errors is the text that the errors of listed keys must contain. Partial then reports that not all keys
	// could be looked at.
	Errors  string
	Partial bool
	// ErrorGroups are the errors that most of the failing and given-up keys have or, with Errors, most of those
	// that match. Uncounted is how many such keys there are whose errors are not known.
	ErrorGroups []errorGroup
	Uncounted   int
	// PausedGroups are the first maxKeys of them.
	PausedGroups []pausedGroup
	// Sections are the lists of the first keys of each state, by their states.
	Sections map[string]section
	Actions  actionSet
	Facts    []operate.Fact
}

// pausedGroup is a group that is paused, until a time or, if that is zero, without an end.
type pausedGroup struct {
	Name  string
	Keys  int
	Until time.Time
}

// queuePage reports the queue of r as query asks for it.
func (h *Handler) queuePage(r *reading, query url.Values) *queuePage {
	history, q := &r.entry.history, r.entry.queue
	p := &queuePage{
		Queue: r, Charts: charts(history.all(), r.IsTimed()), Times: history.recent(r.times()),
		Busiest: r.busiestRows(), Errors: cut(query.Get("error"), maxError),
		Sections: make(map[string]section), Actions: h.actionsOf(r),
	}
	for _, name := range r.PausedGroups[:min(len(r.PausedGroups), maxKeys)] {
		g := q.SnapshotGroup(name)
		p.PausedGroups = append(p.PausedGroups, pausedGroup{name, g.Keys, g.PausedUntil})
	}
	if q.Facts != nil {
		p.Facts = q.Facts()
	}
	r.readKeys()
	w := &keyWalk{reading: r}
	found := p.findErrors(h, w)
	lists := make(map[string][]keyJSON)
	for i := range stateSections {
		of, keys := &stateSections[i], r.lists[stateSections[i].State].keys
		list := foundKeys{first: keys[:min(len(keys), someKeys)], total: of.total(r)}
		if p.Errors != "" && hasFailed(of.State) {
			list = found[of.State]
			list.text, list.isPartial = p.Errors, p.Partial
		}
		s := r.section(of, p.Actions, list)
		p.Sections[of.State], lists[of.State] = s, keysJSON(s.Keys)
	}
	p.page = newPage(w.looked, object{
		"time": r.At.UTC(), "queue": r.json(), "keys": lists, "errors": p.ErrorGroups, "facts": p.Facts,
	}, "queue", r.ID(), "error", p.Errors)
	return p
}

// findErrors sets the errors of the keys that fail or were given up, and returns these keys by their states.
// If their errors must contain a text, it goes over all keys, and otherwise over the lists.
func (p *queuePage) findErrors(h *Handler, w *keyWalk) (found map[string]foundKeys) {
	keys := distinct(nil, w.listed(stateFailing), w.listed(stateGivenUp))
	if p.Errors != "" {
		done, err := h.searching.take(w.ctx)
		defer done()
		if keys = w.keys(p.Errors, failedStates...); err != nil {
			keys, w.hasLeft = func(func(knownKey) bool) {}, true
		}
	}
	groups, counted := make(errorGroups), 0
	found = make(map[string]foundKeys)
	for k := range keys {
		groups.add(k)
		in := found[k.failedState()]
		if in.total++; in.total <= someKeys {
			in.first = append(in.first, k)
		}
		found[k.failedState()] = in
		counted++
	}
	p.ErrorGroups = groups.sorted()
	if p.Errors == "" {
		p.Uncounted = max(0, w.Failing()+w.GivenUp()-counted)
	} else {
		p.Partial = w.isPartial()
	}
	return found
}

// IsAlarming reports that a handler is stuck or takes long: then the running keys come first.
func (p *queuePage) IsAlarming() bool {
	return p.Queue.Workers.Stuck > 0 || p.Queue.Stats.LongestRunning >= time.Minute
}

const (
	// leastShare is which part of all calls the busiest key must have to be shown.
	leastShare = 0.05
	// busiestKeys is how many of the busiest keys a page shows.
	busiestKeys = 5
)

// busyRow is one of the keys that are called most.
type busyRow struct {
	keyRow
	Calls uint64
	Share int // in percent
}

// busiestRows returns the keys that were called most in the last ten minutes, if one of them takes a
// noticeable part of all calls.
func (r *reading) busiestRows() (all []busyRow) {
	if r.Workers.BusiestShare < leastShare {
		return nil
	}
	var busiest []worker.BusyKey[any]
	for _, p := range r.Pools {
		busiest = append(busiest, p.pool.Snapshot(busiestKeys).Busiest...)
	}
	slices.SortStableFunc(busiest, func(a, b worker.BusyKey[any]) int { return cmp.Compare(b.Calls, a.Calls) })
	for _, k := range busiest[:min(len(busiest), busiestKeys)] {
		known := fromPool(worker.KeySnapshot[any]{Key: k.Key, Causes: k.Causes})
		all = append(all, busyRow{r.row(known, nil), k.Calls, int(100*k.Share + 0.5)})
	}
	return all
}
