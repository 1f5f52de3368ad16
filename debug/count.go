package debug

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// countTime is how long it may take to count keys.
const countTime = 5 * time.Second

// countReport is how many keys an action on many keys would be for.
type countReport struct {
	Count int `json:"count"`
	// More reports that there may be more: there was no time to count all, or only a part was listed.
	More   bool   `json:"more"`
	Error  string `json:"error,omitempty"`
	status int    // of the answer
}

// newCountReport counts the keys of e in the set that the field count of query names.
func (h *Handler) newCountReport(ctx context.Context, e *entry, query url.Values) *countReport {
	c := &countReport{status: http.StatusOK}
	set := keyFilter{state: query.Get("count"), errorText: query.Get("error")}
	if err := c.fill(ctx, h, e, set); err != nil {
		c.Error, c.status = err.Error(), statusOf(err)
		c.More = c.More || c.status == http.StatusServiceUnavailable // no answer of the queue, or no turn
	}
	return c
}

func (c *countReport) fill(ctx context.Context, h *Handler, e *entry, set keyFilter) error {
	if !isSet(set.state) {
		return errNoSuchSet
	}
	r := h.readOne(ctx, e, searchLimit)
	if r.missing != nil {
		return r.missing
	}
	ctx, done, noTurn := searchTurn(ctx, h.searching, countTime)
	defer done()
	if noTurn != nil {
		return noTurn
	}
	r.err = nil // A panic of the reading does not matter here, only one of the visit.
	c.More = r.visit(ctx, set, func(knownKey) bool { c.Count++; return true })
	return r.err
}
