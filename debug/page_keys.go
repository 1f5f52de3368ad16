package debug

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"time"
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
	// Refresh is after how many seconds the page reloads: 0 if each reload would go over many keys.
	Refresh int `json:"-"`
}

// HrefJSON is the address of the same as JSON.
func (p *keysPage) HrefJSON() string {
	return href("queue", p.Queue.ID, "state", p.State, "error", p.Section.Errors, "page", p.Page,
		"format", "json")
}

// keysPage lists the keys of e that have the state and, if they fail or were given up, the errors that query
// asks for.
func (h *Handler) keysPage(ctx context.Context, e *entry, query url.Values) *keysPage {
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	r := h.read(e, searchLimit)
	p := &keysPage{Time: r.at.UTC(), Queue: e.named(), State: query.Get("state")}
	turn, done, noTurn := searchTurn(ctx, h.searching, maxPatience)
	defer done()
	errorText := ""
	if isSet(p.State) {
		errorText = cut(query.Get("error"), maxError)
	}
	var keys []knownKey
	if noTurn == nil {
		for k := range r.keysWith(turn, p.State, errorText) {
			if p.Total++; p.Total <= maxListed {
				keys = append(keys, k)
			}
		}
	}
	p.More = r.isPartial() || turn.Err() != nil || p.Total > len(keys)
	slices.SortStableFunc(keys, func(a, b knownKey) int {
		switch p.State {
		case stateQueued:
			return a.inQueue.Since.Compare(b.inQueue.Since)
		case stateWaiting:
			return a.inQueue.Due.Compare(b.inQueue.Due)
		case stateFailing:
			return cmp.Compare(b.inQueue.Requeues, a.inQueue.Requeues)
		}
		return 0 // The others are in order.
	})
	p.pager = newPager(query, len(keys), maxKeys, func(page int) string {
		return href("page", page, "queue", e.id, "state", p.State, "error", errorText)
	})
	keys = keys[(p.Page-1)*maxKeys:]
	p.Keys = r.reports(keys[:min(maxKeys, len(keys))], p.State)
	page := &queuePage{Queue: r.queueReport(), Actions: h.actionsOf(r), Errors: errorText}
	if errorText != "" {
		page.Matching = &matchingReport{More: p.More}
	}
	p.Section = page.fill(sections[sectionOf(p.State)], p.Keys)
	p.Section.Total, p.Section.State, p.Section.Errors = p.Total, "", errorText
	switch p.State {
	case stateQueued:
		p.Section.Title, p.Section.Hint = "Queued", "the oldest first, regardless of priorities"
	case stateFailing:
		p.Section.Hint += ", then those whose errors are not known"
	}
	if p.Error = page.Queue.Error; p.Error == "" && noTurn != nil {
		p.Error = noTurn.Error()
	}
	if p.More && errorText == "" {
		p.Section.Empty = "Not known."
	}
	if noTurn == nil && r.looked <= fewKeys {
		p.Refresh = refreshSeconds
	}
	return p
}

// reports returns what pages show of keys in that state, after asking the queue about those of which it has
// said nothing. It leaves out given-up keys that fail again.
func (r *reading) reports(keys []knownKey, state string) []keyReport {
	for i := range keys {
		r.ask(&keys[i])
	}
	keys = slices.DeleteFunc(keys, func(k knownKey) bool { return state == stateGivenUp && k.set() != state })
	return mapped(keys, r.report)
}
