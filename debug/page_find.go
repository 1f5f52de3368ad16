package debug

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// findPage has the keys that were found in all queues.
type findPage struct {
	Time       time.Time   `json:"time"`
	Registered int         `json:"registered"`
	Found      foundReport `json:"found"`
	// Error is why no queue was searched.
	Error string `json:"error,omitempty"`
}

// Refresh is after how many seconds the page reloads: 0 if each reload would go over many keys.
func (p *findPage) Refresh() int {
	if p.Found.looked > fewKeys || p.Error != "" {
		return 0
	}
	return refreshSeconds
}

func (p *findPage) HrefJSON() string { return href("key", p.Found.Text, "format", "json") }

// findPage looks for text in all queues, as search does in one.
func (h *Handler) findPage(ctx context.Context, text string) *findPage {
	p := &findPage{Time: h.clock.Now().UTC(), Registered: len(h.entries()), Found: *newFoundReport(text, "")}
	ctx, done, noTurn := searchTurn(ctx, h.searching, searchTime)
	defer done()
	if noTurn != nil {
		p.Error, p.Found.Incomplete = noTurn.Error(), true
		return p
	}
	all, answered := h.readAll(ctx), make(map[*entry]bool)
	var asked []*entry
	for _, r := range all {
		if !r.late {
			asked = append(asked, r.entry)
		}
	}
	answers := sideBySide(h, searchers, asked, func(e *entry) *foundReport {
		r := h.ask(ctx, e, searchLimit)
		if r == nil {
			return nil
		}
		r.err = nil
		// This search has its turn already.
		found := h.search(ctx, make(chan struct{}, 1), r, text, "", false)
		found.Incomplete = found.Incomplete || r.err != nil
		return found
	})
	for range asked {
		var found *foundReport
		select {
		case found = <-answers:
		case <-ctx.Done():
			select { // An answer that is there counts.
			case found = <-answers:
			default:
			}
		}
		if found != nil {
			p.Found.addFrom(found)
			p.Found.looked += found.looked
			answered[found.of] = !found.Incomplete
		}
	}
	for _, r := range all {
		if !answered[r.entry] {
			p.Found.Unanswered = append(p.Found.Unanswered, r.entry.named())
		}
	}
	p.Found.Incomplete = len(p.Found.Unanswered) > 0
	slices.SortFunc(p.Found.Unanswered, func(a, b queueName) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortStableFunc(p.Found.Keys, func(a, b keyReport) int {
		return cmp.Compare(a.Queue.Name, b.Queue.Name)
	})
	finish(p.Found.Keys, "", p.Time)
	return p
}
