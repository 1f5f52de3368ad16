package debug

import (
	"context"
	"net/http"
	"net/url"
)

// count calls f for the keys of a set whose errors contain text, and counts them.
func (h *Handler) count(ctx context.Context, r *reading, set, text string, f func(knownKey)) (*matchingReport, error) {
	ctx, done, noTurn := searchTurn(ctx, h.searching, countTime)
	defer done()
	if noTurn != nil {
		return &matchingReport{More: true}, noTurn
	}
	m := new(matchingReport)
	for k := range r.keysWith(ctx, set, text) {
		if k.set() == stateGivenUp {
			m.GivenUp++
		} else {
			m.Failing++
		}
		f(k)
	}
	m.More = r.isPartial() || ctx.Err() != nil
	return m, nil
}

// countReport counts the keys of e in the set that the field count of query names.
func (h *Handler) countReport(ctx context.Context, e *entry, query url.Values) (status int, report countReport) {
	r, m, err := h.read(e, searchLimit), &matchingReport{}, errNoSet
	switch set := query.Get("count"); {
	case !isSet(set):
	case r.missing != nil:
		err = r.missing
	default:
		m, err = h.count(ctx, r, set, query.Get("error"), func(knownKey) {})
	}
	report = countReport{Count: m.Failing + m.GivenUp, More: m.More}
	if err != nil {
		report.Error, report.More = err.Error(), statusOf(err) == http.StatusServiceUnavailable
	}
	return statusOf(err), report
}
