package debug

import (
	"fmt"
	"net/url"
)

// keysPage lists all keys of one state, some on each page.
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
	w, wanted, total := &keyWalk{reading: r}, pageNumber(query), 0
	var keys []knownKey // of the page that is wanted, or of the last one before it
	for k := range w.keys(text, of.State) {
		if total/keysPerPage < wanted {
			if total%keysPerPage == 0 {
				keys = nil
			}
			keys = append(keys, k)
		}
		total++
	}
	p := &keysPage{Queue: r, More: w.isPartial()}
	p.Pager = newPager(query, total, keysPerPage, func(page int) string {
		return href("page", page, "queue", r.ID(), "state", of.State, "error", text)
	})
	if of.State != stateGivenUp && r.lists[of.State].hasMore {
		of.Hint += fmt.Sprintf("; those after the first %d in no order", len(r.lists[of.State].keys))
	}
	found := foundKeys{keys: keys, total: total, isOfAll: true, text: text, isPartial: p.More}
	p.Section = r.section(of, h.actionsOf(r), found)
	p.page = newPage(w.walked, object{
		"time": r.At.UTC(), "queue": r.json(), "state": of.State, "keys": keysJSON(p.Section.Keys), "total": total,
		"more": p.More, "page": p.Pager.Page, "pages": p.Pager.Pages, "error": r.Missing(),
	}, "queue", r.ID(), "state", of.State, "error", text, "page", p.Pager.Page)
	p.Error = r.Missing()
	return p
}
