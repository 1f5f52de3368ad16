package debug

import (
	"cmp"
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
	// ErrorGroups are the commonest errors of the listed failing and given-up keys.
	ErrorGroups []errorGroup
	// PausedGroups are the first keysPerPage of them.
	PausedGroups []pausedGroup
	// Sections are the lists of the first keys of each state, by their states.
	Sections map[string]section
	Actions  actionSet
	Facts    []operate.Fact
}

// pausedGroup is a group that is paused.
type pausedGroup struct {
	Name string
	operate.GroupSnapshot
}

// queuePage reports the queue of r.
func (h *Handler) queuePage(r *reading) *queuePage {
	history, q := &r.entry.history, r.entry.queue
	p := &queuePage{
		Queue: r, Charts: charts(history.all(), r.IsTimed()), Times: history.recent(r.times()),
		Sections: make(map[string]section), Actions: h.actionsOf(r),
	}
	for _, name := range r.PausedGroups[:min(len(r.PausedGroups), keysPerPage)] {
		p.PausedGroups = append(p.PausedGroups, pausedGroup{name, q.SnapshotGroup(name)})
	}
	if q.Facts != nil {
		p.Facts = q.Facts()
	}
	r.readKeys()
	p.Busiest = r.busiestRows()
	w, errors := &keyWalk{reading: r}, make(errorsByPattern)
	for k := range distinct(nil, w.listed(stateFailing), w.listed(stateGivenUp)) {
		errors.add(k)
	}
	p.ErrorGroups = errors.groups()
	lists := make(map[string][]keyJSON)
	for _, of := range stateSections {
		keys := r.lists[of.State].keys
		first := keys[:min(len(keys), keysPerSection)]
		s := r.section(of, p.Actions, foundKeys{keys: first, total: of.total(r)})
		p.Sections[of.State], lists[of.State] = s, keysJSON(s.Keys)
	}
	p.page = newPage(0, object{
		"time": r.At.UTC(), "queue": r.json(), "keys": lists, "errors": p.ErrorGroups, "facts": p.Facts,
	}, "queue", r.ID())
	return p
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
	Share int // of the calls of its pool, in percent
}

// busiestRows returns the keys that were called most in the last ten minutes, if one of them takes a
// noticeable part of all calls.
func (r *reading) busiestRows() (all []busyRow) {
	if r.Workers.BusiestShare < leastShare {
		return nil
	}
	var busiest []worker.BusyKey[any]
	for _, p := range r.Pools {
		busiest = append(busiest, p.pool.Busiest(busiestKeys)...)
	}
	slices.SortStableFunc(busiest, func(a, b worker.BusyKey[any]) int { return cmp.Compare(b.Calls, a.Calls) })
	for _, k := range busiest[:min(len(busiest), busiestKeys)] {
		known := fromPool(worker.KeySnapshot[any]{Key: k.Key, Causes: k.Causes})
		all = append(all, busyRow{r.row(known, nil), k.Calls, int(100*k.Share + 0.5)})
	}
	return all
}
