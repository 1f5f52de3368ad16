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

// keysPage shows the keys of one state, maxKeys a page.
type keysPage struct {
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

	section section
}

// keysPage lists the keys of e that have the state, and, if they fail or were given up, the errors that query asks for.
func (h *Handler) keysPage(ctx context.Context, e *entry, query url.Values) *keysPage {
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	now := h.clock.Now()
	r := h.readOne(ctx, e, searchLimit)
	r.partial = false
	p := &keysPage{Time: now.UTC(), Queue: queueName{e.id, e.name}, State: query.Get("state"), Keys: []keyReport{}}
	turn, next := searchTurn(ctx, h.searching, maxPatience)
	defer next()
	lists, known := r.keyLists()
	var all []keyReport
	errors := cut(query.Get("error"), maxError)
	switch set := p.State; {
	case r.late:
		p.More = true
	case set == stateFailing || set == stateGivenUp:
		p.More = r.visit(turn, set, errors, func(f failure) {
			if len(all) < maxListed {
				k := keyReport{raw: f.Key, State: f.state}
				k.addFailure(f)
				all = append(all, k)
			}
			p.Total++
		})
	default:
		all, p.More = r.keysIn(turn, workqueue.KeyState(set), lists)
		p.Total = len(all)
	}
	p.More = p.More || r.missing != none || p.Total > len(all)
	p.Pages = max(1, (len(all)+maxKeys-1)/maxKeys)
	p.Page, _ = strconv.Atoi(query.Get("page"))
	p.Page = min(max(p.Page, 1), p.Pages)
	all = all[(p.Page-1)*maxKeys:]
	p.Keys = append(p.Keys, all[:min(maxKeys, len(all))]...)
	for i := range p.Keys {
		k := &p.Keys[i]
		if fails := k.State == stateFailing; fails || k.State == stateGivenUp {
			if ctx.Err() == nil { // The lists of pools do not have the time of the next try.
				r.lookUp(k, known)
			}
			if fails || k.State == stateGivenUp { // One that was given up may be in the queue again.
				k.State = ""
			}
		} else {
			known.describe(k)
		}
	}
	finish(p.Keys, e.id, now)
	report := &detailReport{Queue: h.newQueueReport(r, now), Actions: h.actionsOf(r), Errors: errors}
	p.Error = report.Queue.Error
	switch report.keyLists = (keyLists{Running: p.Keys, Queued: p.Keys, Waiting: p.Keys, Failing: p.Keys, GivenUp: p.Keys}); p.State {
	case stateFailing:
		p.section = report.Section("failing", "Failing", "the last failure first, then those whose errors are not known", "No key is failing.")
	case stateGivenUp:
		p.section = report.Section("given-up", "Given up", "the last one first", "No key is given up.")
	case string(workqueue.KeyProcessing):
		p.section = report.Section("running", "Running", "longest first", "No worker holds a key.")
	case string(workqueue.KeyWaiting):
		p.section = report.Section("waiting", "Waiting", "next due first", "No key waits for its time.")
	default:
		p.section = report.Section("queued", "Queued", "the oldest first, whatever their priorities", "No key waits for a worker.")
	}
	p.section.Total, p.section.State, p.section.Errors = p.Total, "", report.Errors
	return p
}

// Section returns the keys for the page.
func (p *keysPage) Section() section { return p.section }

// keysIn returns the keys of the queue that are in that state, the oldest first, those that wait by their time, and whether there may
// be more.
func (r *reading) keysIn(ctx context.Context, state workqueue.KeyState, lists keyLists) (keys []keyReport, more bool) {
	if r.entry.queue.SnapshotKeys == nil {
		keys = map[workqueue.KeyState][]keyReport{
			workqueue.KeyProcessing: lists.Running, workqueue.KeyQueued: lists.Queued, workqueue.KeyWaiting: lists.Waiting,
		}[state]
		return keys, len(keys) >= searchLimit
	}
	began := time.Now()
	r.guard(func() {
		for k := range r.entry.queue.SnapshotKeys() {
			if more = len(keys) == maxListed || ctx.Err() != nil; more {
				return
			}
			if k.State == state {
				keys = append(keys, newKeyReport(k))
			}
			began = time.Now()
		}
		r.noteOutage(r.stats, began) // A queue on a server that has stopped to answer ends its list early.
	})
	slices.SortStableFunc(keys, func(a, b keyReport) int {
		if state == workqueue.KeyWaiting {
			return a.Due.Compare(b.Due)
		}
		return a.Since.Compare(b.Since)
	})
	return keys, more
}
