package debug

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// oneKeyReport is what a key's own page shows.
type oneKeyReport struct {
	Time  time.Time `json:"time"`
	Queue queueName `json:"queue"`
	Key   keyReport `json:"key"`
	// Incomplete reports that there was no time to look at all keys.
	Incomplete bool   `json:"incomplete,omitempty"`
	Error      string `json:"error,omitempty"`

	Refresh int `json:"-"`
}

// keyPage reports the key of e that query asks for. A key that has been found once is looked up, and not
// searched for again.
func (h *Handler) keyPage(ctx context.Context, e *entry, query url.Values) *oneKeyReport {
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
	p := &oneKeyReport{Time: now.UTC(), Queue: e.named(), Incomplete: found.Incomplete}
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

// lookUp asks the queue and its pools for k anew. Later answers win: the queue's, then what the pools' lists
// say (describe), then each pool's own answer (addPool). A failing or given-up key that is not in the queue
// keeps its state, because that may come from a list alone.
func (r *reading) lookUp(k *keyReport, known *poolKeys) {
	k.Calls = nil
	if q := r.entry.queue; r.entry.hasQueue() {
		r.askQueue(func() {
			now, ok := q.SnapshotKey(k.raw)
			switch {
			case ok:
				*k = newKeyReport(now)
			case k.State != stateFailing && k.State != stateGivenUp:
				*k = keyReport{raw: k.raw, State: stateAbsent}
			}
		})
	}
	if r.missing != nil && k.State == stateAbsent {
		k.State = stateUnknown
	}
	known.describe(k)
	if r.missing != nil {
		return // A pool asks the queue.
	}
	r.anyPool(func(p *worker.Inspector) bool { k.addPool(p.SnapshotKey(k.raw)); return true })
	slices.SortStableFunc(k.Calls, func(a, b callReport) int { return b.Started.Compare(a.Started) })
}
