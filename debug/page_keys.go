package debug

import (
	"fmt"
	"net/url"
)

// maxListed bounds the memory of a page of all keys of one state.
const maxListed = 100_000

// keysPage lists all keys of one state.
type keysPage struct {
	page
	Queue   *reading
	Section section
	Pager   pager
	More    bool // reports that there may be more keys
}

// keysPage lists the keys of r that have the state and, if they fail or were given up, the errors that query
// asks for.
func (h *Handler) keysPage(r *reading, of stateSection, query url.Values) *keysPage {
	text := ""
	if of.HasFailed() {
		text = cut(query.Get("error"), maxError)
	}
	r.readKeys()
	defer h.takeTurn(r, of.State)()
	w, total := &keyWalk{reading: r}, 0
	var keys []knownKey
	for k := range w.keys(text, of.State) {
		if total++; total <= maxListed {
			keys = append(keys, k)
		}
	}
	p := &keysPage{Queue: r, More: w.isPartial() || total > len(keys)}
	p.Pager = newPager(query, len(keys), maxKeys, func(page int) string {
		return href("page", page, "queue", r.ID(), "state", of.State, "error", text)
	})
	first := (p.Pager.Page - 1) * maxKeys
	keys = keys[first:min(first+maxKeys, len(keys))]
	p.Section = r.section(of, h.actionsOf(r), foundKeys{keys, total, text, p.More})
	p.Section.HrefAll = "" // This is the list of all.
	if r.lists[of.State].hasMore {
		p.Section.Hint += fmt.Sprintf("; those after the first %d in no order", len(r.lists[of.State].keys))
	}
	p.page = newPage(w.walked, object{
		"time": r.At.UTC(), "queue": r.json(), "state": of.State, "keys": keysJSON(p.Section.Keys), "total": total,
		"more": p.More, "page": p.Pager.Page, "pages": p.Pager.Pages, "error": r.Missing(),
	}, "queue", r.ID(), "state", of.State, "error", text, "page", p.Pager.Page)
	p.Error = r.Missing()
	return p
}
