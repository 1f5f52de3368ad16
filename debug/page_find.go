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
	p.page = newPage(&p.everywhereReport, "key", text)
	ctx, done, noTurn := searchTurn(ctx, h.searching, searchTime)
	defer done()
	if noTurn != nil {
		p.Error, p.Found.Incomplete = noTurn.Error(), true
		p.refreshIf(false)
		return p
	}
	looked := 0
	for _, e := range entries {
		r := h.read(e, 0)
		part, cancel := context.WithTimeout(ctx, searchTime/4)
		s := h.search(part, make(chan struct{}, 1), r, text, "") // This one has its turn already.
		cancel()
		p.Found.add(s.report(r), e.named())
		looked += r.looked
		if s.incomplete {
			p.Found.Unanswered = append(p.Found.Unanswered, e.named())
		}
	}
	p.Found.Incomplete = len(p.Found.Unanswered) > 0
	p.Keys = rowsOf("", p.Found.Keys, nil)
	p.refreshIf(looked <= fewKeys)
	return p
}

// add adds what was found in one queue. Keys that are called exactly so take the place of others.
func (f *foundReport) add(found foundReport, in queueName) {
	switch {
	case found.Exact && !f.Exact:
		f.Exact, f.More, f.Keys = true, found.More, f.Keys[:0]
	case found.Exact != f.Exact:
		return
	default:
		f.More = f.More || found.More
	}
	for _, k := range found.Keys {
		k.Queue = &in
		f.Keys = append(f.Keys, k)
	}
	if len(f.Keys) > maxFound {
		f.Keys, f.More = f.Keys[:maxFound], true
	}
}
