package debug

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
)

// maxListed bounds the memory of a page of all keys of one state.
const maxListed = 100_000

// keysReport has the keys of one state, maxKeys a page.
type keysReport struct {
	Time  time.Time   `json:"time"`
	Queue queueName   `json:"queue"`
	State string      `json:"state"`
	Keys  []keyReport `json:"keys"`
	// Total is how many there are on all pages, and More reports that there may be more.
	Total int    `json:"total"`
	More  bool   `json:"more,omitempty"`
	Page  int    `json:"page"`
	Pages int    `json:"pages"`
	Error string `json:"error,omitempty"`

	Section section `json:"-"`
}

// keysPage lists the keys of e that have the state, and, if they fail or were given up, the errors that query
// asks for.
func (h *Handler) keysPage(ctx context.Context, e *entry, query url.Values) *keysReport {
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	now := h.clock.Now()
	r := h.readOne(ctx, e, searchLimit)
	p := &keysReport{Time: now.UTC(), Queue: e.named(), State: query.Get("state"), Keys: []keyReport{}}
	turn, next, noTurn := searchTurn(ctx, h.searching, maxPatience)
	defer next()
	known := r.poolKeys()
	var keys []keyReport
	errors := cut(query.Get("error"), maxError)
	switch set := p.State; {
	case r.late || noTurn != nil:
		p.More = true
	case set == stateFailing || set == stateGivenUp:
		p.More = r.visit(turn, set, errors, func(f failure) {
			if len(keys) < maxListed {
				keys = append(keys, f.report())
			}
			p.Total++
		})
	default:
		keys, p.More = r.keysInState(turn, set)
		p.Total = len(keys)
	}
	p.More = p.More || r.missing != nil || p.Total > len(keys)
	p.Pages = max(1, (len(keys)+maxKeys-1)/maxKeys)
	p.Page, _ = strconv.Atoi(query.Get("page"))
	p.Page = min(max(p.Page, 1), p.Pages)
	keys = keys[(p.Page-1)*maxKeys:]
	p.Keys = append(p.Keys, keys[:min(maxKeys, len(keys))]...)
	r.completeKeys(ctx, p.Keys, known)
	finish(p.Keys, e.id, now)
	report := &detailReport{Queue: h.newQueueReport(r, now), Actions: h.actionsOf(r), Errors: errors}
	if errors != "" {
		report.Matching = &matchingReport{More: p.More}
	}
	p.Error = report.Queue.Error
	if noTurn != nil && p.Error == "" {
		p.Error = noTurn.Error()
	}
	all := sections[sectionOf(p.State)]
	switch p.State {
	case string(workqueue.KeyQueued):
		all.Title, all.Hint = "Queued", "the oldest first, whatever their priorities"
	case stateFailing:
		all.Hint += ", then those whose errors are not known"
	}
	p.Section = report.fill(all, p.Keys)
	p.Section.Total, p.Section.State = p.Total, ""
	if p.More && errors == "" {
		p.Section.Empty = "Not known."
	}
	return p
}

// completeKeys adds what the queue and its pools know of keys. A failing or given-up key is looked up,
// because the lists of pools do not have the time of its next try. It keeps its state only if it was given up
// and is in the queue again.
func (r *reading) completeKeys(ctx context.Context, keys []keyReport, known *poolKeys) {
	for i := range keys {
		k := &keys[i]
		fails := k.State == stateFailing
		if !fails && k.State != stateGivenUp {
			known.describe(k)
			continue
		}
		if ctx.Err() == nil {
			r.lookUp(k, known)
		}
		if fails || k.State == stateGivenUp {
			k.State = ""
		}
	}
}

// keysInState returns the keys of the queue that are in that state, the oldest first, those that wait by
// their time, and whether there may be more. Keys on hold are in a state of their own.
func (r *reading) keysInState(ctx context.Context, state string) (keys []keyReport, more bool) {
	onHold := make(map[any]bool)
	for _, p := range r.pools {
		if p.stats.Held == 0 {
			continue
		}
		for k := range p.pool.HeldKeys() {
			if onHold[k.Key] = true; state == stateHeld && len(keys) < maxListed {
				held := keyReport{raw: k.Key}
				held.addHold(k)
				keys = append(keys, held)
			}
		}
	}
	if state == stateHeld {
		return keys, r.stats.Held > len(keys)
	}
	for k := range r.queueKeys(ctx) {
		if more = len(keys) == maxListed; more {
			break
		}
		if string(k.State) == state && !onHold[k.Key] {
			keys = append(keys, newKeyReport(k))
		}
	}
	slices.SortStableFunc(keys, func(a, b keyReport) int {
		if state == string(workqueue.KeyWaiting) {
			return a.Due.Compare(b.Due)
		}
		return a.Since.Compare(b.Since)
	})
	return keys, more || ctx.Err() != nil
}
