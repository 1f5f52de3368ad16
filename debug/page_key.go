package debug

import (
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

	// Refresh is after how many seconds the page reloads: 0 if each reload would go over many keys.
	Refresh  int    `json:"-"`
	HrefJSON string `json:"-"`
}

// keyPage reports the key of e that query asks for.
func (h *Handler) keyPage(ctx context.Context, e *entry, query url.Values) *keyPage {
	text, id := query.Get("key"), query.Get("id")
	r := h.read(e, 0)
	s := h.search(ctx, h.searching, r, text, id)
	p := &keyPage{Time: r.at.UTC(), Queue: e.named(), Incomplete: s.incomplete}
	if r.missing != nil {
		p.Error = r.missing.Error()
	}
	if s.exact {
		p.Key = r.report(s.keys[0])
		p.Key.Actions = h.actionsOf(r).forKey(p.Key)
	} else {
		p.Key = keyReport{Key: short(text, maxKey), Bytes: len(text), State: stateAbsent, ID: id}
		if r.missing != nil {
			p.Key.State = stateUnknown
		}
	}
	if p.Key.State != stateAbsent && r.looked <= fewKeys {
		p.Refresh = refreshSeconds
	}
	p.HrefJSON = href("queue", e.id, "key", p.Key.Key, "id", p.Key.ID, "format", "json")
	return p
}
