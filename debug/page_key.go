package debug

import (
	"context"
	"net/url"
)

// keyPage shows one key.
type keyPage struct {
	page
	storyReport
	Row keyRow
}

// keyPage reports the key of e that query asks for.
func (h *Handler) keyPage(ctx context.Context, e *entry, query url.Values) *keyPage {
	text, id := query.Get("key"), query.Get("id")
	r := h.read(e, 0)
	s, found := h.search(ctx, r, text, id)
	p := &keyPage{Row: keyRow{QueueID: e.id}}
	p.storyReport = storyReport{Time: r.at.UTC(), Queue: e.named(), Incomplete: found.Incomplete}
	switch {
	case s.exact:
		p.Row = r.row(s.keys[0].knownKey, h.actionsOf(r))
	case r.missing != nil:
		p.Row.keyReport = keyReport{Key: short(text, maxKey), Bytes: len(text), State: stateUnknown, ID: id}
	default:
		p.Row.keyReport = keyReport{Key: short(text, maxKey), Bytes: len(text), State: stateAbsent, ID: id}
	}
	if p.Key = p.Row.keyReport; r.missing != nil {
		p.Error = r.missing.Error()
	}
	refreshes := p.Key.State != stateAbsent && r.looked <= fewKeys
	p.page = newPage(&p.storyReport, refreshes, "queue", e.id, "key", p.Key.Key, "id", p.Key.ID)
	return p
}
