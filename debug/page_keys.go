package debug

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

// maxListed bounds the memory of a page of all keys of one state.
const maxListed = 100_000

// keysPage has the keys of one state, maxKeys a page.
type keysPage struct {
	Time  time.Time   `json:"time"`
	Queue queueName   `json:"queue"`
	State string      `json:"state"`
	Keys  []keyReport `json:"keys"`
	// Total is how many there are on all pages, and More reports that there may be more.
	Total int  `json:"total"`
	More  bool `json:"more,omitempty"`
	pager
	Error string `json:"error,omitempty"`

	Section section `json:"-"`
	cheap   bool
}

// Refresh is after how many seconds the page reloads: 0 if each reload would go over many keys.
func (p *keysPage) Refresh() int {
	if !p.cheap {
		return 0
	}
	return refreshSeconds
}

func (p *keysPage) HrefJSON() string { return p.hrefOf("page", p.Page, "format", "json") }

// hrefOf returns the address of the same keys with more in its query.
func (p *keysPage) hrefOf(more ...any) string {
	return href(append(more, "queue", p.Queue.ID, "state", p.State, "error", p.Section.Errors)...)
}

// keysPage lists the keys of e that have the state, and, if they fail or were given up, the errors that query
// asks for.
func (h *Handler) keysPage(ctx context.Context, e *entry, query url.Values) *keysPage {
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	now := h.clock.Now()
	r := h.readOne(ctx, e, searchLimit)
	p := &keysPage{Time: now.UTC(), Queue: e.named(), State: query.Get("state")}
	turn, done, noTurn := searchTurn(ctx, h.searching, maxPatience)
	defer done()
	filter := keyFilter{state: p.State}
	if isSet(p.State) {
		filter.errorText = cut(query.Get("error"), maxError)
	}
	var keys []knownKey
	p.More = r.late || noTurn != nil || r.visit(turn, filter, func(k knownKey) bool {
		if p.Total++; p.Total <= maxListed {
			keys = append(keys, k)
		}
		return true
	}) || p.Total > len(keys)
	if p.State != stateHeld && !isSet(p.State) { // The others are in order.
		slices.SortStableFunc(keys, func(a, b knownKey) int {
			if p.State == string(workqueue.KeyWaiting) {
				return a.snapshot.Due.Compare(b.snapshot.Due)
			}
			return a.snapshot.Since.Compare(b.snapshot.Since)
		})
	}
	p.pager = newPager(query, len(keys), maxKeys, func(page int) string { return p.hrefOf("page", page) })
	keys = keys[(p.Page-1)*maxKeys:]
	p.Keys = mapped(keys[:min(maxKeys, len(keys))], knownKey.report)
	if isSet(p.State) {
		r.complete(ctx, p.Keys)
	} else {
		known := r.poolKeys()
		for i := range p.Keys {
			known.describe(&p.Keys[i])
		}
	}
	finish(p.Keys, e.id, now)
	report := &queuePage{Queue: h.newQueueReport(r, now), Actions: h.actionsOf(r), Errors: filter.errorText}
	if filter.errorText != "" {
		report.Matching = &matchingReport{More: p.More}
	}
	p.Error = report.Queue.Error
	if noTurn != nil && p.Error == "" {
		p.Error = noTurn.Error()
	}
	all := sections[sectionOf(p.State)]
	switch p.State {
	case string(workqueue.KeyQueued):
		all.Title, all.Hint = "Queued", "the oldest first, regardless of priorities"
	case stateFailing:
		all.Hint += ", then those whose errors are not known"
	}
	p.cheap = noTurn == nil && r.looked <= fewKeys
	p.Section = report.fill(all, p.Keys)
	p.Section.Total, p.Section.State = p.Total, ""
	if p.More && filter.errorText == "" {
		p.Section.Empty = "Not known."
	}
	return p
}
