package debug

import "net/url"

// keyPage shows the keys of a queue that were searched for.
type keyPage struct {
	page
	Queue  *reading
	Search string
	// Exact reports that the keys are called so, if there are any. Otherwise they contain it.
	Exact bool
	// Story is the only key, or nil, and Keys are all that were found.
	Story *keyRow
	Keys  []keyRow
	// More reports that there are more keys than those, and Incomplete that not all could be looked at.
	More, Incomplete bool
}

// keyPage reports the keys of r that are called as query asks or, if none is and query has no id, those that
// contain it.
func (h *Handler) keyPage(r *reading, query url.Values) *keyPage {
	text, id, offered := query.Get("key"), query.Get("id"), h.actionsOf(r)
	w, s := &keyWalk{reading: r}, r.startSearch(text, id)
	if s.exact { // The queue may keep it as given up besides.
		r.readGivenUp(listLen)
	} else {
		r.readKeys()
		defer h.takeTurn(r)() // until the end, because finish may ask the queue's server
		s.goOver(w.all())
	}
	s.finish(r)
	p := &keyPage{Queue: r, Search: cut(text, maxKeyBytes), More: s.more, Incomplete: w.isPartial()}
	p.Exact = s.exact || id != ""
	p.Keys = mapped(s.keys, func(k knownKey) keyRow { return r.row(k, offered) })
	if p.Exact && len(p.Keys) == 1 {
		p.Story = &p.Keys[0]
	}
	p.page = newPage(w.walked, object{
		"time": r.At.UTC(), "queue": r.json(), "exact": p.Exact, "keys": keysJSON(p.Keys), "more": p.More,
		"incomplete": p.Incomplete,
	}, "queue", r.ID(), "key", text, "id", id)
	return p
}
