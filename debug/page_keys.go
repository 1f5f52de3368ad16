package debug

import (
	"cmp"
	"net/url"
	"slices"
)

// maxListed bounds the memory of a page of all keys of one state.
const maxListed = 100_000

// keysPage lists all keys of one state.
type keysPage struct {
	page
	Queue   *reading
	Section section
	Pager   pager
	// More reports that there may be more keys. Error says why not all are known.
	More  bool
	Error string
}

// keysPage lists the keys of r that have the state and, if they fail or were given up, the errors that query
// asks for.
func (h *Handler) keysPage(r *reading, query url.Values) *keysPage {
	state, text := query.Get("state"), ""
	if isSet(state) {
		text = cut(query.Get("error"), maxError)
	}
	w, p, keys, total := &walk{reading: r}, &keysPage{Queue: r}, []knownKey(nil), 0
	done, err := searchTurn(r.ctx, h.searching)
	defer done()
	if err == nil {
		for k := range w.keysWith(state, text) {
			if total++; total <= maxListed {
				keys = append(keys, k)
			}
		}
	}
	if p.Error = r.Missing(); p.Error == "" && err != nil {
		p.Error = err.Error()
	}
	p.More = err != nil || w.isPartial() || total > len(keys)
	sortKeys(keys, state)
	p.Pager = newPager(query, len(keys), maxKeys, func(page int) string {
		return href("page", page, "queue", r.ID(), "state", state, "error", text)
	})
	keys = keys[(p.Pager.Page-1)*maxKeys:]
	rows := r.rows(keys[:min(maxKeys, len(keys))], state)
	p.Section = newSection(sections[sectionOf(state)], r, rows, h.actionsOf(r))
	p.Section.inFull(total, text, p.More)
	switch p.Section.HrefAll = ""; state { // This is the list of all.
	case stateQueued:
		p.Section.Title, p.Section.Hint = "Queued", "the oldest first, regardless of priorities"
	case stateFailing:
		p.Section.Hint += ", then those whose errors are not known"
	}
	p.page = newPage(w.looked, object{
		"time": r.At.UTC(), "queue": r.json(), "state": state, "keys": keysJSON(rows), "total": total,
		"more": p.More, "page": p.Pager.Page, "pages": p.Pager.Pages, "error": p.Error,
	}, "queue", r.ID(), "state", state, "error", text, "page", p.Pager.Page)
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
