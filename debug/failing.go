package debug

import (
	"context"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	// countTime is how long it may take to go over all these keys.
	countTime = 5 * time.Second
	// maxSeen bounds the memory that it takes to count keys once, and how many given-up keys a queue is asked for.
	maxSeen = 10_000
)

// everyTrouble are all keys that fail or were given up. The other sets of keys are called as these states.
const everyTrouble = "all"

const noSuchSet = "The sets of keys are failing, given_up and all."

func isSet(name string) bool {
	return name == stateFailing || name == stateGivenUp || name == everyTrouble
}

// failure is a key that fails or was given up.
type failure struct {
	worker.FailedKey[any]
	// state is failing, given_up, or "" if the pool has ended.
	state string
	// pool knows the key, or is nil; kept reports that the queue itself keeps it as given up.
	pool *worker.Inspector
	kept bool
}

// givenUp is a key that the queue itself keeps as given up, and counted one whose failures only the limiter counts.
func givenUp(k workqueue.GivenUpKey[any]) failure {
	known := worker.FailedKey[any]{Key: k.Key, Attempt: k.Attempts, Err: k.Err, Time: k.Time}
	return failure{FailedKey: known, state: stateGivenUp, kept: true}
}

func counted(k workqueue.KeySnapshot[any]) failure {
	return failure{FailedKey: worker.FailedKey[any]{Key: k.Key}, state: stateFailing}
}

// troubled yields the keys of a set whose errors contain a text: those that the queue keeps, those that its pools know and,
// with limiter, and if text is empty, also those that only the limiter counts. None of the first maxSeen keys comes twice.
// It sets r.partial if there may be keys that are in no list.
func (r *reading) troubled(set, text string, limiter bool) iter.Seq[failure] {
	q := r.entry.queue
	return func(yield func(failure) bool) {
		seen := make(map[any]bool)
		once := func(f failure) (more bool) {
			if seen[f.Key] {
				return true
			}
			if len(seen) < maxSeen {
				seen[f.Key] = true
			}
			return !errorContains(f.Err, text) || yield(f)
		}
		if set != stateFailing && q.GivenUp != nil {
			keys := q.GivenUp(maxSeen + 1)
			r.partial = r.partial || len(keys) > maxSeen
			for _, k := range keys[:min(len(keys), maxSeen)] {
				if !once(givenUp(k)) {
					return
				}
			}
		}
		for _, state := range []string{stateGivenUp, stateFailing} {
			if set != state && set != everyTrouble {
				continue
			}
			for _, p := range r.pools {
				for k := range r.listed(p.pool, state) {
					if !once(failure{FailedKey: k, state: state, pool: p.pool}) {
						return
					}
				}
			}
		}
		if set == stateGivenUp || !limiter || text != "" {
			return
		}
		full := len(r.keys.Failing) >= searchLimit
		for _, k := range r.keys.Failing {
			// A full list lacks some keys, perhaps. If the pools know all of its keys, they know the others, too.
			r.partial = r.partial || full && !seen[k.Key]
			if !once(counted(k)) {
				return
			}
		}
		if q.SnapshotKeys != nil {
			for k := range q.SnapshotKeys() {
				if k.Requeues > 0 && !once(counted(k)) {
					return
				}
			}
		}
	}
}

// listed returns the keys that p knows in that state: all of them, if it can list them.
func (r *reading) listed(p *worker.Inspector, state string) iter.Seq[worker.FailedKey[any]] {
	all := map[string]func() iter.Seq[worker.FailedKey[any]]{stateFailing: p.FailingKeys, stateGivenUp: p.DroppedKeys}[state]
	if all != nil {
		return all()
	}
	s := p.Snapshot(searchLimit)
	some := map[string][]worker.FailedKey[any]{stateFailing: s.Failing, stateGivenUp: s.Dropped}[state]
	r.partial = r.partial || len(some) >= searchLimit
	return slices.Values(some)
}

// errorContains reports whether an error contains a text, or does so as the page shows it.
func errorContains(err, text string) bool {
	return strings.Contains(err, text) || strings.Contains(text, `\`) && strings.Contains(printable(err), text)
}

// isGone reports that the pool has forgotten the key since it was yielded.
func (f failure) isGone() bool {
	if f.pool == nil || f.pool.SnapshotKey == nil {
		return false
	}
	now := f.pool.SnapshotKey(f.Key)
	return now.Failing == nil && now.Dropped == nil
}

// countReport is how many keys an action on many keys would be for.
type countReport struct {
	Count int `json:"count"`
	// More reports that there may be more: there was no time to count all, or only a part was listed.
	More  bool   `json:"more"`
	Error string `json:"error,omitempty"`
}

// visit calls f for the keys of a set whose errors contain a text, until ctx, which is that of the caller's searchTurn, ends.
// It reports whether there may be more keys: there was no time for all, or only a part was listed.
func (r *reading) visit(ctx context.Context, set, text string, f func(failure)) (more bool) {
	r.guard(func() {
		if more = ctx.Err() != nil; more {
			return
		}
		for k := range r.troubled(set, text, true) {
			if more = ctx.Err() != nil; more {
				return
			}
			f(k)
		}
	})
	return more || r.partial
}

// count reports how many keys of e there are in the set that query names.
func (h *Handler) count(ctx context.Context, e *entry, query url.Values) *countReport {
	r := h.readOne(ctx, e, searchLimit)
	switch {
	case r.late:
		return &countReport{Error: r.err.Error(), More: true}
	case !isSet(query.Get("count")):
		return &countReport{Error: noSuchSet}
	}
	c := new(countReport)
	r.err = nil
	ctx, next := searchTurn(ctx, h.searching, countTime)
	defer next()
	c.More = r.visit(ctx, query.Get("count"), query.Get("error"), func(failure) { c.Count++ })
	if r.err != nil {
		c.Error = r.err.Error()
	}
	return c
}
