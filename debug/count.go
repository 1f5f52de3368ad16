package debug

import (
	"net/http"
	"net/url"
)

// count calls f for the keys of a set whose errors contain text, and returns how many fail and are given up.
// It waits until no other search runs.
func (h *Handler) count(w *walk, set, text string, f func(knownKey)) (failing, givenUp int, err error) {
	done, err := searchTurn(w.ctx, h.searching)
	defer done()
	if err != nil {
		w.more = true
		return 0, 0, err
	}
	for k := range w.keysWith(set, text) {
		if k.setIfFailed() == stateGivenUp {
			givenUp++
		} else {
			failing++
		}
		f(k)
	}
	return failing, givenUp, nil
}

// countReport counts the keys of r in the set that the field count of query names.
func (h *Handler) countReport(r *reading, query url.Values) (status int, report countReport) {
	w, set, err := &walk{reading: r}, query.Get("count"), errNoSet
	switch {
	case !isSet(set):
	case r.missing != nil:
		err = r.missing
	default:
		var failing, givenUp int
		failing, givenUp, err = h.count(w, set, query.Get("error"), func(knownKey) {})
		report.Count, report.More = failing+givenUp, w.isPartial()
	}
	if err != nil {
		report.Error, report.More = err.Error(), statusOf(err) == http.StatusServiceUnavailable
	}
	return statusOf(err), report
}
