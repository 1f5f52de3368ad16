package debug

import (
	"cmp"
	"context"
	"slices"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// keyLists are the keys of a queue and of its pools.
type keyLists struct {
	Running []keyReport `json:"running"`
	Held    []keyReport `json:"held,omitempty"`
	Queued  []keyReport `json:"queued"`
	Waiting []keyReport `json:"waiting"`
	Failing []keyReport `json:"failing"`
	GivenUp []keyReport `json:"given_up"`
}

// poolKeys is what pools know of keys, and the queue of those that it keeps as given up, each key once in a
// list.
type poolKeys struct {
	running []worker.RunningKey[any] // longest first
	held    []worker.HeldKey[any]    // the one whose hold began first at the front
	failing []worker.FailedKey[any]  // the most failures first
	givenUp []worker.FailedKey[any]  // the last one first, without those that fail now
	// of has all of these by key.
	of map[any]*worker.KeySnapshot[any]
}

func (r *reading) poolKeys() *poolKeys {
	p := &poolKeys{of: make(map[any]*worker.KeySnapshot[any])}
	for _, k := range r.keys.givenUp {
		p.givenUp = append(p.givenUp, newKeptFailure(k).failed)
	}
	for _, s := range r.keys.pools {
		p.running = append(p.running, s.Running...)
		p.held = append(p.held, s.Held...)
		p.failing = append(p.failing, s.Failing...)
		p.givenUp = append(p.givenUp, s.GivenUp...)
	}
	at := func(key any) *worker.KeySnapshot[any] {
		if p.of[key] == nil {
			p.of[key] = new(worker.KeySnapshot[any])
		}
		return p.of[key]
	}
	slices.SortStableFunc(p.running, func(a, b worker.RunningKey[any]) int {
		return cmp.Compare(b.Duration, a.Duration)
	})
	for i, k := range p.running {
		at(k.Key).Running = &p.running[i]
	}
	slices.SortStableFunc(p.held, func(a, b worker.HeldKey[any]) int { return a.Since.Compare(b.Since) })
	for i, k := range p.held {
		at(k.Key).Held = &p.held[i]
	}
	slices.SortStableFunc(p.failing, func(a, b worker.FailedKey[any]) int {
		return cmp.Compare(b.Attempt, a.Attempt)
	})
	p.failing = slices.DeleteFunc(p.failing, func(f worker.FailedKey[any]) (again bool) {
		k := at(f.Key)
		again, k.Failing = k.Failing != nil, cmp.Or(k.Failing, &f)
		return again
	})
	slices.SortStableFunc(p.givenUp, func(a, b worker.FailedKey[any]) int { return b.Time.Compare(a.Time) })
	p.givenUp = slices.DeleteFunc(p.givenUp, func(f worker.FailedKey[any]) (again bool) {
		k := at(f.Key)
		if again = k.Failing != nil || k.GivenUp != nil; !again {
			k.GivenUp = &f
		}
		return again
	})
	return p
}

// describe adds to k what the pools know of it.
func (p *poolKeys) describe(k *keyReport) {
	k.addPool(*cmp.Or(p.of[k.raw], new(worker.KeySnapshot[any])))
}

// complete adds to failing or given-up keys what the queue knows of them, unless it is known when they come:
// when that is, and the state of those that are in the queue and do not wait.
func (r *reading) complete(ctx context.Context, keys []keyReport) {
	for i := range keys {
		if !r.entry.hasQueue() || ctx.Err() != nil {
			return
		}
		k := &keys[i]
		if !k.Due.IsZero() {
			continue
		}
		r.askQueue(func() {
			if snapshot, ok := r.entry.queue.SnapshotKey(k.raw); ok {
				now := newKeyReport(snapshot)
				if !k.givenUp && now.State == string(workqueue.KeyWaiting) {
					now.State = "" // Due says it.
				}
				now.Attempt, now.Error, now.givenUp = k.Attempt, k.Error, k.givenUp
				now.FailsSince, now.FailedAt = k.FailsSince, k.FailedAt
				*k = now
			}
		})
	}
}

// keyLists returns what the queue and its pools know of their keys. It does not set what finish sets.
func (r *reading) keyLists() (l keyLists, pools *poolKeys) {
	q, pools := r.keys, r.poolKeys()
	reports := func(keys []workqueue.KeySnapshot[any]) []keyReport {
		return mapped(keys, func(k workqueue.KeySnapshot[any]) keyReport {
			k.State = "" // the list says it
			return newKeyReport(k)
		})
	}
	l = keyLists{
		Running: reports(q.Processing), Queued: reports(q.Queued), Waiting: reports(q.Waiting),
		Failing: []keyReport{}, GivenUp: []keyReport{},
	}
	// The queue counts a key that is on hold as being processed. Not all of them may be listed.
	groupOf, allListed := make(map[any]string), r.workers.Held <= len(pools.held)
	l.Running = slices.DeleteFunc(l.Running, func(k keyReport) bool {
		groupOf[k.raw] = k.group
		known := cmp.Or(pools.of[k.raw], &worker.KeySnapshot[any]{})
		return known.Held != nil || !allListed && known.Running == nil
	})
	for _, k := range pools.held {
		group := groupOf[k.Key]
		l.Held = append(l.Held, keyReport{raw: k.Key, Group: short(group, maxName), group: group})
	}
	if len(l.Running) == 0 || len(pools.held) > 0 { // Keys on hold may have left no room for those that run.
		for _, running := range pools.running {
			if !slices.ContainsFunc(l.Running, func(k keyReport) bool { return k.raw == running.Key }) {
				l.Running = append(l.Running, keyReport{raw: running.Key})
			}
		}
	}
	for _, f := range pools.failing {
		l.Failing = append(l.Failing, keyReport{raw: f.Key, Requeues: f.Attempt})
	}
	for _, f := range pools.givenUp {
		l.GivenUp = append(l.GivenUp, keyReport{raw: f.Key})
	}
	// Behind the failing keys whose errors are known come those that only the limiter knows.
	for _, snapshot := range q.Failing {
		k := newKeyReport(snapshot)
		if k.State == string(workqueue.KeyWaiting) {
			k.State = "" // Due says it.
		}
		if i := slices.IndexFunc(l.Failing, func(f keyReport) bool { return f.raw == k.raw }); i >= 0 {
			l.Failing[i] = k
		} else {
			l.Failing = append(l.Failing, k)
		}
	}
	for _, keys := range l.all() {
		for i := range *keys {
			pools.describe(&(*keys)[i])
		}
	}
	return l, pools
}

func (l *keyLists) all() []*[]keyReport {
	return mapped(sections, func(s section) *[]keyReport { return s.of(l) })
}
