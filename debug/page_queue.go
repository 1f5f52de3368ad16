package debug

import (
	"net/url"
	"slices"
	"time"
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
	// Sections are the lists of the first keys of each state, by their kinds.
	Sections map[string]section
	Actions  actionSet
}

// pausedGroup is a group that is paused, until a time or, if that is zero, without an end.
type pausedGroup struct {
	Name  string
	Keys  int
	Until time.Time
}

// queuePage reports the queue of r as query asks for it.
func (h *Handler) queuePage(r *reading, query url.Values) *queuePage {
	history := &r.entry.history
	p := &queuePage{
		Queue: r, Charts: charts(history.all(), h.every), Times: history.recent(r.times()),
		Busiest: r.busiestRows(), Errors: cut(query.Get("error"), maxError), Actions: h.actionsOf(r),
		Sections: make(map[string]section),
	}
	for _, name := range r.PausedGroups[:min(len(r.PausedGroups), maxKeys)] {
		g := r.entry.queue.SnapshotGroup(name)
		p.PausedGroups = append(p.PausedGroups, pausedGroup{name, g.Keys, g.PausedUntil})
	}
	first := make(map[string][]knownKey)
	for _, s := range sections { // Before errors, which may take all the time.
		if p.Errors == "" || !isSet(s.State) {
			atHand := &walk{reading: r, atHand: true}
			first[s.State] = firstOf(atHand.keysIn(s.State), someKeys)
		}
	}
	w := &walk{reading: r, atHand: p.Errors == ""}
	matching, totals := p.errors(h, w)
	lists := make(map[string][]keyJSON)
	for _, s := range sections {
		if p.Errors != "" && isSet(s.State) {
			first[s.State] = matching[s.State]
		}
		rows := r.rows(first[s.State], s.State)
		lists[s.State] = keysJSON(rows)
		p.Sections[s.Kind] = p.section(s, rows, totals[s.State])
	}
	p.page = newPage(w.looked, object{
		"time": r.At.UTC(), "queue": r.json(), "keys": lists, "errors": p.ErrorGroups, "facts": r.Facts,
	}, "queue", r.ID(), "error", p.Errors)
	return p
}

// errors adds the errors of the keys that fail or were given up, and returns the first of these and their
// numbers, by state. If their errors must contain a text, it goes over all keys.
func (p *queuePage) errors(h *Handler, w *walk) (first map[string][]knownKey, totals map[string]int) {
	groups := make(errorGroups)
	first, totals = make(map[string][]knownKey), make(map[string]int)
	add := func(k knownKey) {
		groups.add(k)
		set := k.setIfFailed()
		if totals[set]++; totals[set] <= someKeys {
			first[set] = append(first[set], k)
		}
	}
	if p.Errors != "" {
		_, _, _ = h.count(w, allSets, p.Errors, add) // An error means that w is partial.
		p.Partial = w.isPartial()
	} else {
		for k := range w.keysIn(allSets) {
			add(k)
		}
		p.Uncounted = max(0, w.Failing()+w.GivenUp()-totals[stateFailing]-totals[stateGivenUp])
	}
	p.ErrorGroups = groups.sorted()
	return first, totals
}

// section returns s with its first keys, of those that have the errors that were asked for.
func (p *queuePage) section(s section, rows []keyRow, matching int) section {
	s = newSection(s, p.Queue, rows, p.Actions)
	if s.State == stateFailing && len(p.Queue.Pools) == 0 && p.Queue.missing == nil {
		s.Empty += " (What AddRateLimited alone has counted is shown as requeues.)"
	}
	if p.Errors != "" && s.Set != "" {
		s.inFull(matching, p.Errors, p.Partial)
	}
	return s
}

// IsAlarming reports that a handler is stuck or takes long: then the running keys come first.
func (p *queuePage) IsAlarming() bool {
	return p.Queue.Workers.Stuck > 0 || p.Queue.Stats.LongestRunning >= time.Minute
}

// HasErrors reports whether there may be errors of failing keys.
func (p *queuePage) HasErrors() bool {
	hasError := func(k keyRow) bool { return k.Error() != "" }
	return p.HasGivenUp() || slices.ContainsFunc(p.Sections["failing"].Keys, hasError)
}

// HasGivenUp reports whether there may be keys that were given up.
func (p *queuePage) HasGivenUp() bool {
	return len(p.Queue.Pools) > 0 || len(p.Sections["given-up"].Keys) > 0
}
