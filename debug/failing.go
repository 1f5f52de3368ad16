package debug

import (
	"context"
	"hash/maphash"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	// countTime is how long it may take to go over all these keys.
	countTime = 5 * time.Second
	// maxSeen is how many keys a count or an action is for, and bounds the memory that it takes to meet each
	// once.
	maxSeen = 1 << 20
	// maxGivenUp is how many given-up keys a queue is asked for.
	maxGivenUp = 10_000
)

// allSets names all keys that fail or were given up. The other sets are named as these states.
const allSets = "all"

var errNoSuchSet = refuse(http.StatusBadRequest, "The sets of keys are failing, given_up and all.")

func isSet(name string) bool {
	return name == stateFailing || name == stateGivenUp || name == allSets
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

// keptFailure returns the failure of a key that the queue itself keeps as given up.
func keptFailure(k workqueue.GivenUpKey[any]) failure {
	known := worker.FailedKey[any]{Key: k.Key, Attempt: k.Attempts, Err: k.Err, Time: k.Time}
	return failure{FailedKey: known, state: stateGivenUp, kept: true}
}

// report returns what is shown of the key, as far as its failure says.
func (f failure) report() keyReport {
	k := keyReport{raw: f.Key, State: f.state}
	k.addFailure(f)
	return k
}

// countedFailure returns the failure of a key that only the limiter counts.
func countedFailure(k workqueue.KeySnapshot[any]) failure {
	return failure{FailedKey: worker.FailedKey[any]{Key: k.Key}, state: stateFailing}
}

// keysOfSet yields the keys of a set whose errors contain a text, each once: the given-up keys that the queue
// keeps, and the keys that its pools know. With limiter, and without a text, also the failing keys that only
// the limiter counts: their errors are not known. It sets r.partial if there may be keys that are in no list.
func (r *reading) keysOfSet(ctx context.Context, set, text string, limiter bool) iter.Seq[failure] {
	return func(yield func(failure) bool) {
		seen, seed := make(map[uint64]struct{}), maphash.MakeSeed() // Hashes take less memory than keys.
		each := func(keys iter.Seq[failure]) (more bool) {
			for f := range keys {
				hash := maphash.Comparable(seed, f.Key)
				if _, again := seen[hash]; again {
					continue
				}
				if len(seen) == maxSeen {
					r.partial = true
					return false
				}
				if seen[hash] = struct{}{}; errorContains(f.Err, text) && !yield(f) {
					return false
				}
			}
			return true
		}
		r.partial = r.partial || r.missing != nil
		if set != stateFailing && !(each(r.keptGivenUp) && each(r.givenUpInPools)) || set == stateGivenUp {
			return
		}
		unlisted := 0
		if !each(r.failingInPools(&unlisted)) {
			return
		}
		if !limiter || text != "" {
			r.partial = r.partial || unlisted > 0 // Their errors are not known.
			return
		}
		listed := len(seen)
		if each(r.counted(ctx)) {
			r.partial = r.partial || len(seen)-listed < unlisted
		}
	}
}

// keptGivenUp yields the keys that the queue itself keeps as given up.
func (r *reading) keptGivenUp(yield func(failure) bool) {
	if r.entry.queue.GivenUp == nil || r.missing != nil {
		return
	}
	began := time.Now()
	keys := r.entry.queue.GivenUp(maxGivenUp + 1)
	endedEarly := r.stats.Shared != nil && time.Since(began) >= patience // A queue on a server gives up then.
	r.partial = r.partial || endedEarly || len(keys) > maxGivenUp
	for _, k := range keys[:min(len(keys), maxGivenUp)] {
		if !yield(keptFailure(k)) {
			return
		}
	}
}

// givenUpInPools yields the keys that the pools list as given up.
func (r *reading) givenUpInPools(yield func(failure) bool) {
	for _, p := range r.pools {
		for k := range p.pool.GivenUpKeys() {
			if !yield(failure{FailedKey: k, state: stateGivenUp, pool: p.pool}) {
				return
			}
		}
		r.partial = r.partial || p.pool.Stats().GivenUpUnlisted > 0
	}
}

// failingInPools yields the failing keys that the pools list, and sets how many more they only count.
func (r *reading) failingInPools(unlisted *int) iter.Seq[failure] {
	return func(yield func(failure) bool) {
		for _, p := range r.pools {
			for k := range p.pool.FailingKeys() {
				*unlisted--
				if !yield(failure{FailedKey: k, state: stateFailing, pool: p.pool}) {
					return
				}
			}
			*unlisted += p.pool.Stats().Failing // Afterwards: a key that fails meanwhile is unlisted.
		}
	}
}

// counted yields the keys whose failures the limiter counts.
func (r *reading) counted(ctx context.Context) iter.Seq[failure] {
	return func(yield func(failure) bool) {
		for _, k := range r.keys.Failing {
			if !yield(countedFailure(k)) {
				return
			}
		}
		// Without pools a full list may lack keys that are not in the queue.
		r.partial = r.partial || len(r.pools) == 0 && len(r.keys.Failing) >= searchLimit
		for k := range r.queueKeys(ctx) {
			if k.Requeues > 0 && !yield(countedFailure(k)) {
				return
			}
		}
		r.partial = r.partial || r.missing != nil
	}
}

// errorContains reports whether an error contains a text, or does so as the page shows it.
func errorContains(err, text string) bool {
	return strings.Contains(err, text) || strings.Contains(text, `\`) && strings.Contains(printable(err), text)
}

// isGone reports that the pool has forgotten the key since it was yielded.
func (f failure) isGone() bool {
	if f.pool == nil {
		return false
	}
	now := f.pool.SnapshotKey(f.Key)
	return now.Failing == nil && now.GivenUp == nil
}

// countReport is how many keys an action on many keys would be for.
type countReport struct {
	Count int `json:"count"`
	// More reports that there may be more: there was no time to count all, or only a part was listed.
	More  bool   `json:"more"`
	Error string `json:"error,omitempty"`

	status int
}

// visit calls f for the keys of a set whose errors contain a text, until ctx, which is that of the caller's
// searchTurn, ends. It reports whether there may be more keys: there was no time for all, or only a part was
// listed.
func (r *reading) visit(ctx context.Context, set, text string, f func(failure)) (more bool) {
	r.guard(func() {
		for k := range r.keysOfSet(ctx, set, text, true) {
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
	c := &countReport{status: http.StatusOK}
	if err := c.count(ctx, h, e, query.Get("count"), query.Get("error")); err != nil {
		c.Error, c.status = err.Error(), statusOf(err)
		c.More = c.More || c.status == http.StatusServiceUnavailable
	}
	return c
}

func (c *countReport) count(ctx context.Context, h *Handler, e *entry, set, text string) error {
	if !isSet(set) {
		return errNoSuchSet
	}
	r := h.readOne(ctx, e, searchLimit)
	if r.missing != nil {
		return r.missing
	}
	ctx, next, noTurn := searchTurn(ctx, h.searching, countTime)
	defer next()
	if noTurn != nil {
		return noTurn
	}
	r.err = nil
	c.More = r.visit(ctx, set, text, func(failure) { c.Count++ })
	return r.err
}

// matchingReport counts keys with certain errors.
type matchingReport struct {
	Failing int `json:"failing"`
	GivenUp int `json:"given_up"`
	// More reports that there was no time to count all.
	More bool `json:"more,omitempty"`
}

// listErrors lists the keys whose errors contain r.Errors, which the buttons for all of them are for, instead
// of all that fail or were given up.
func (r *detailReport) listErrors(ctx context.Context, h *Handler, read *reading) {
	groups := make(errorGroups)
	r.Failing, r.GivenUp, r.Matching = []keyReport{}, []keyReport{}, new(matchingReport)
	ctx, next, noTurn := searchTurn(ctx, h.searching, countTime)
	defer next()
	r.Matching.More = noTurn != nil || read.visit(ctx, allSets, r.Errors, func(f failure) {
		keys, n := &r.Failing, &r.Matching.Failing
		if f.state == stateGivenUp {
			keys, n = &r.GivenUp, &r.Matching.GivenUp
		}
		if *n++; len(*keys) < r.limit {
			k := f.report()
			k.State = "" // the list says it
			*keys = append(*keys, k)
		}
		groups.add(keyText(f.Key), f)
	})
	r.ErrorGroups = groups.sorted()
	// The pools' lists do not have the time of the next try.
	read.askEach(ctx, r.Failing, func(k *keyReport, now workqueue.KeySnapshot[any]) { k.Due = now.Due.UTC() })
}

// askEach calls f for each of keys that the queue has, with what it knows of the key now.
func (r *reading) askEach(ctx context.Context, keys []keyReport, f func(k *keyReport, now workqueue.KeySnapshot[any])) {
	for i := range keys {
		if !r.entry.hasQueue() || ctx.Err() != nil {
			return
		}
		r.askQueue(func() {
			if now, ok := r.entry.queue.SnapshotKey(keys[i].raw); ok {
				f(&keys[i], now)
			}
		})
	}
}
