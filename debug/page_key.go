package debug

import (
	"cmp"
	"context"
	"net/url"
	"time"
)

// keyPage is what a key's own page shows.
type keyPage struct {
	Time  time.Time `json:"time"`
	Queue queueName `json:"queue"`
	Key   keyReport `json:"key"`
	// Incomplete reports that there was no time to look at all keys.
	Incomplete bool   `json:"incomplete,omitempty"`
	Error      string `json:"error,omitempty"`

	// Refresh is after how many seconds the page reloads, or 0.
	Refresh int `json:"-"`
}

func (p *keyPage) HrefJSON() string {
	return href("queue", p.Queue.ID, "key", p.Key.Key, "id", p.Key.ID, "format", "json")
}

// keyPage reports the key of e that query asks for. A key that has been found once is looked up, and not
// searched for again.
func (h *Handler) keyPage(ctx context.Context, e *entry, query url.Values) *keyPage {
	text, id := query.Get("key"), query.Get("id")
	limit := searchLimit
	if len(e.recall(text, id)) > 0 && e.hasQueue() {
		limit = 0
	}
	now := h.clock.Now()
	r := h.readOne(ctx, e, limit)
	found := h.search(ctx, h.searching, r, text, id, false)
	if limit == 0 && found.isAbsent() && !r.late { // It may be in a list of those that are not in the queue.
		r = h.readOne(ctx, e, searchLimit)
		found = h.search(ctx, h.searching, r, text, id, false)
	}
	p := &keyPage{Time: now.UTC(), Queue: e.named(), Incomplete: found.Incomplete}
	if err := cmp.Or(r.err, r.missing); err != nil {
		p.Error = err.Error()
	}
	if len(found.Keys) == 0 {
		p.Key = keyReport{Key: short(text, maxKey), Bytes: len(text), State: stateAbsent, ID: id}
		if r.missing != nil {
			p.Key.State, p.Refresh = stateUnknown, refreshSeconds
		}
		return p
	}
	finish(found.Keys, e.id, now)
	if p.Key = found.Keys[0]; !found.isAbsent() {
		p.Key.Actions = h.actionsOf(r).forKey(p.Key)
		if found.cheap { // To look for an absent key, all lists are asked for.
			p.Refresh = refreshSeconds
		}
	}
	return p
}
