package debug

import (
	"cmp"
	"context"
	"slices"
)

// findPage shows the keys that were found in all queues.
type findPage struct {
	page
	everywhereReport
	Keys []keyRow
}

// findPage looks for text in all queues, one after the other.
func (h *Handler) findPage(ctx context.Context, text string) *findPage {
	entries := h.entries()
	slices.SortFunc(entries, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
	})
	p := &findPage{everywhereReport: everywhereReport{
		Time: h.clock.Now().UTC(), Registered: len(entries),
		Found: foundReport{Search: cut(text, maxKey), Keys: []keyReport{}},
	}}
	ctx, done, noTurn := searchTurn(ctx, h.searching, searchTime)
	defer done()
	if noTurn != nil {
		p.Error, p.Found.Incomplete = noTurn.Error(), true
		p.page = newPage(&p.everywhereReport, false, "key", text)
		return p
	}
	search, looked := &search{text: text}, 0
	for _, e := range entries {
		r := h.read(e, 0)
		part, cancel := context.WithTimeout(ctx, searchTime/4)
		if !search.goOver(part, r) {
			p.Found.Unanswered = append(p.Found.Unanswered, e.named())
		}
		cancel()
		looked += r.looked
	}
	unanswered := p.Found.Unanswered
	p.Found = search.report()
	p.Found.Unanswered, p.Found.Incomplete = unanswered, p.Found.Incomplete || len(unanswered) > 0
	for i := range p.Found.Keys {
		name := search.keys[i].in.entry.named()
		p.Found.Keys[i].Queue = &name
	}
	p.Keys = rowsOf("", p.Found.Keys, nil)
	p.page = newPage(&p.everywhereReport, looked <= fewKeys, "key", text)
	return p
}
