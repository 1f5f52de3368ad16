package debug

import (
	"net/url"
)

// countPage reports how many keys of r an action would be for: those in the set that the field count of query
// names.
func (h *Handler) countPage(r *reading, query url.Values) (status int, p page) {
	n, isPartial, err := h.count(r, query.Get("count"), query.Get("error"))
	report := countReport{Count: n, More: isPartial}
	if err != nil {
		report.Error = err.Error()
	}
	return statusOf(err), page{json: report}
}

// count counts the keys of a set whose errors contain text. If isPartial, there may be more.
func (h *Handler) count(r *reading, set, text string) (n int, isPartial bool, err error) {
	states := statesOf(set)
	if states == nil {
		return 0, false, errNoSet
	}
	if r.readKeys(); r.missing != nil {
		return 0, true, r.missing
	}
	done, err := h.searching.take(r.ctx)
	defer done()
	if err != nil {
		return 0, true, err
	}
	w := &keyWalk{reading: r}
	for range w.keys(text, states...) {
		n++
	}
	return n, w.isPartial(), nil
}
