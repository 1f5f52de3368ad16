package debug

import (
	"net/url"

	"github.com/keyedqueue/workqueue/worker"
)

// keyPage shows the keys of a queue that were searched for.
type keyPage struct {
	page
	Queue  *reading
	Search string
	// Exact reports that the keys are called so. Otherwise they contain it.
	Exact bool
	// Story is the only key, or nil, and Keys are all that were found.
	Story *keyRow
	Keys  []keyRow
	// More reports that there are more keys than those, and Incomplete that not all could be looked at.
	More, Incomplete bool
}

// keyPage reports the keys of r that are called as query asks, and otherwise those that contain it. A query
// with an id is for one key, also if nothing is known of it.
func (h *Handler) keyPage(r *reading, query url.Values) *keyPage {
	text, id, can := query.Get("key"), query.Get("id"), h.actionsOf(r)
	w, s := &keyWalk{reading: r}, r.startSearch(text, id)
	if !s.exact {
		r.readKeys()
		done, err := h.searching.take(r.ctx)
		defer done() // At the end, because a look may ask the queue's server.
		if w.hasLeft = err != nil; err == nil {
			s.goOver(w.all())
		}
	}
	s.look(r)
	p := &keyPage{Queue: r, Search: cut(text, maxKey), Exact: s.exact, More: s.more, Incomplete: w.isPartial()}
	for _, k := range s.keys {
		p.Keys = append(p.Keys, r.row(k, can))
	}
	if id != "" && len(p.Keys) == 0 {
		absent := r.row(fromPool(worker.KeySnapshot[any]{Key: text}), nil)
		absent.ID = id
		if p.Incomplete {
			absent.State = stateUnknown
		}
		p.Exact, p.Keys = true, []keyRow{absent}
	}
	if p.Exact && len(p.Keys) == 1 {
		p.Story = &p.Keys[0]
	}
	p.page = newPage(w.looked, object{
		"time": r.At.UTC(), "queue": r.json(), "exact": p.Exact, "keys": keysJSON(p.Keys), "more": p.More,
		"incomplete": p.Incomplete,
	}, "queue", r.ID(), "key", text, "id", id)
	return p
}
