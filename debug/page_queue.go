package debug

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue/operate"
)

// queuePage shows a queue.
type queuePage struct {
	page
	detailReport
	Charts  []chart
	Busiest []busyRow
	// Uncounted is how many keys fail or were given up whose errors are not known.
	Uncounted int
	Actions   actionSet
	// Story is the only key that was found by its whole text, or nil, and FoundKeys are all that were found.
	Story     *keyRow
	FoundKeys []keyRow
}

// queuePage reports the queue e as query asks for it.
func (h *Handler) queuePage(ctx context.Context, e *entry, query url.Values) *queuePage {
	limit := someKeys
	if n, err := strconv.Atoi(query.Get("keys")); err == nil {
		limit = min(max(n, 1), maxKeys)
	}
	r := h.read(e, limit)
	history := r.timeline(h.every)
	p := &queuePage{
		Charts: r.charts(history), Busiest: r.busiestRows(),
		Actions: h.actionsOf(r),
		detailReport: detailReport{
			Time: r.at.UTC(), SampleEvery: seconds(h.every), Recent: e.history.recent(r.measure()),
			History: history.points, Errors: cut(query.Get("error"), maxError),
			Facts: mapped(r.facts, func(f operate.Fact) operate.Fact {
				return operate.Fact{Name: short(f.Name, maxName), Value: short(f.Value, maxKey)}
			}),
		},
	}
	p.addKeys(ctx, h, r, limit)
	refreshes := p.Matching == nil || !p.Matching.More && r.looked <= fewKeys
	address := []any{"queue", e.id, "error", p.Errors}
	switch {
	case query.Has("key"):
		p.addFound(ctx, h, r, query.Get("key"))
		refreshes, address = refreshes && r.looked <= fewKeys, append(address, "key", query.Get("key"))
	case limit != someKeys:
		address = append(address, "keys", limit)
	}
	p.page, p.Queue = newPage(&p.detailReport, refreshes, address...), r.queueReport()
	return p
}

// addKeys adds the first keys of each state, and the errors and groups of those that are looked at.
func (p *queuePage) addKeys(ctx context.Context, h *Handler, r *reading, limit int) {
	r.atHand = true
	first := make(map[string][]knownKey)
	for _, s := range sections {
		if p.Errors == "" || !isSet(s.State) {
			first[s.State] = firstOf(r.keysIn(ctx, s.State), limit)
		}
	}
	groups := make(errorGroups)
	if p.Errors == "" {
		counted := 0
		for k := range r.keysIn(ctx, allSets) {
			groups.add(k)
			counted++
		}
		p.Uncounted = max(0, r.failing()+r.givenUp()-counted)
	} else {
		r.atHand = false
		p.Matching, _ = h.count(ctx, r, allSets, p.Errors, func(k knownKey) {
			groups.add(k)
			if set := k.set(); len(first[set]) < limit {
				first[set] = append(first[set], k)
			}
		})
	}
	p.ErrorGroups = groups.sorted()
	if r.entry.queue.PauseGroup != nil {
		p.Groups = r.groups(first)
	}
	for _, s := range sections {
		*s.of(&p.detailReport) = r.reports(first[s.State], s.State)
	}
}

// addFound adds the keys that are called text, or contain it.
func (p *queuePage) addFound(ctx context.Context, h *Handler, r *reading, text string) {
	r.looked, r.atHand = 0, false
	s, found := h.search(ctx, r, text, "")
	p.Found, p.FoundKeys = &found, rowsOf(r.entry.id, found.Keys, nil)
	if s.exact && len(s.keys) == 1 {
		row := r.row(s.keys[0].knownKey, p.Actions)
		row.Linked, p.Story = true, &row
	}
}

// IsAlarming reports that a handler is stuck or takes long: then the running keys come first.
func (p *queuePage) IsAlarming() bool {
	return p.Queue.Workers.Stuck > 0 || p.Queue.LongestRunning >= time.Minute
}

// HasErrors reports whether there may be errors of failing keys.
func (p *queuePage) HasErrors() bool {
	return p.HasGivenUp() || slices.ContainsFunc(p.Failing, func(k keyReport) bool { return k.Error != "" })
}

// HasGivenUp reports whether there may be keys that were given up.
func (p *queuePage) HasGivenUp() bool { return len(p.Queue.Pools) > 0 || len(p.GivenUp) > 0 }

// Section returns the list of that kind.
func (p *queuePage) Section(kind string) section {
	s := sections[slices.IndexFunc(sections, func(s section) bool { return s.Kind == kind })]
	s = newSection(s, p.Queue, *s.of(&p.detailReport), p.Actions)
	if s.Kind == "failing" && len(p.Queue.Pools) == 0 && !p.Queue.Missing {
		s.Empty += " (What AddRateLimited alone has counted is shown as requeues.)"
	}
	if m := p.Matching; m != nil && s.Set != "" {
		s.inFull(map[string]int{stateFailing: m.Failing, stateGivenUp: m.GivenUp}[s.Set], p.Errors, m.More)
	}
	return s
}
