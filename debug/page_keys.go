package debug

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"time"
)

const (
	// maxListed bounds the memory of a page of all keys of one state.
	maxListed = 100_000
	// listTime is how long it may take to list them.
	listTime = 5 * time.Second
)

// keysPage lists all keys of one state.
type keysPage struct {
	page
	stateReport
	Section section
	Pager   pager
}

// keysPage lists the keys of e that have the state and, if they fail or were given up, the errors that query
// asks for.
func (h *Handler) keysPage(ctx context.Context, e *entry, query url.Values) *keysPage {
	state, text := query.Get("state"), ""
	if isSet(state) {
		text = cut(query.Get("error"), maxError)
	}
	r := h.read(e, searchLimit)
	p := &keysPage{stateReport: stateReport{Time: r.at.UTC(), Queue: e.named(), State: state}}
	ctx, done, noTurn := searchTurn(ctx, h.searching, listTime)
	defer done()
	var keys []knownKey
	if noTurn == nil {
		for k := range r.keysWith(ctx, state, text) {
			if p.Total++; p.Total <= maxListed {
				keys = append(keys, k)
			}
		}
	}
	p.More = r.isPartial() || ctx.Err() != nil || p.Total > len(keys)
	sortKeys(keys, state)
	p.Pager = newPager(query, len(keys), maxKeys, func(page int) string {
		return href("page", page, "queue", e.id, "state", state, "error", text)
	})
	p.stateReport.Page, p.Pages = p.Pager.Page, p.Pager.Pages
	keys = keys[(p.Pager.Page-1)*maxKeys:]
	p.Keys = r.reports(keys[:min(maxKeys, len(keys))], state)
	p.page = newPage(&p.stateReport, noTurn == nil && r.looked <= fewKeys,
		"queue", e.id, "state", state, "error", text, "page", p.Pager.Page)
	switch {
	case r.missing != nil:
		p.Error = r.missing.Error()
	case noTurn != nil:
		p.Error = noTurn.Error()
	}
	p.Section = newSection(sections[sectionOf(state)], r.queueReport(), p.Keys, h.actionsOf(r))
	p.Section.inFull(p.Total, text, p.More)
	switch p.Section.HrefAll = ""; state { // This is the list of all.
	case stateQueued:
		p.Section.Title, p.Section.Hint = "Queued", "the oldest first, regardless of priorities"
	case stateFailing:
		p.Section.Hint += ", then those whose errors are not known"
	}
	return p
}

// sortKeys sorts keys of a state, the next or the worst first, unless they are in order.
func sortKeys(keys []knownKey, state string) {
	slices.SortStableFunc(keys, func(a, b knownKey) int {
		switch state {
		case stateQueued:
			return a.inQueue.Since.Compare(b.inQueue.Since)
		case stateWaiting:
			return a.inQueue.Due.Compare(b.inQueue.Due)
		case stateFailing:
			return cmp.Compare(b.inQueue.Requeues, a.inQueue.Requeues)
		}
		return 0
	})
}
