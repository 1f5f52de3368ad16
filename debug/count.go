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
	More  bool   `json:"more"`
	Error string `json:"error,omitempty"`

	status int
}

// count reports how many keys of e there are in the set that query names.
func (h *Handler) count(ctx context.Context, e *entry, query url.Values) *countReport {
	c := &countReport{status: http.StatusOK}
	if err := c.count(ctx, h, e, query.Get("count"), query.Get("error")); err != nil {
		c.Error, c.status = err.Error(), statusOf(err)
		c.More = c.More || c.status == http.StatusServiceUnavailable
	}
	return c
}

func (c *countReport) count(ctx context.Context, h *Handler, e *entry, set, text string) error {
	if !isSet(set) {
		return errNoSuchSet
	}
	r := h.readOne(ctx, e, searchLimit)
	if r.missing != nil {
		return r.missing
	}
	ctx, next, noTurn := searchTurn(ctx, h.searching, countTime)
	defer next()
	if noTurn != nil {
		return noTurn
	}
	r.err = nil
	c.More = r.visit(ctx, keyFilter{state: set, error: text}, func(knownKey) bool { c.Count++; return true })
	return r.err
}
