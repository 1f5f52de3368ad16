package worker

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

// With Options.List a pool brings all keys by itself. One goroutine lists. Another one adds the keys of the
// last list that succeeded, each at its moment of the period, round after round: a list that fails or takes
// long delays no key that is known.

// A list that fails is tried again after listRetry, then twice that and so on, up to listRetryMax or Resync.
const (
	listRetry    = time.Second
	listRetryMax = time.Minute
)

// resync adds the keys of the last list at their moments. It belongs to the goroutine that adds. A round is
// one period, in which each key of the list comes once. Without Resync there are no rounds and no keys here.
type resync[T comparable] struct {
	pool  *Pool[T]
	begun time.Time      // when the round began
	keys  []listedKey[T] // in the order of their moments
	next  int            // the index of the key that comes next
}

// listedKey is a key and its moment, as the time since the round has begun.
type listedKey[T comparable] struct {
	offset time.Duration
	key    T
}

// startResync starts what Options.List asks for. It has ended when the channel is closed.
func (p *Pool[T]) startResync() (end func(), ended <-chan struct{}) {
	ctx, end := context.WithCancel(p.startCtx)
	done := make(chan struct{})
	if p.options.List == nil {
		close(done)
		return end, done
	}
	r, lists := &resync[T]{pool: p}, make(chan []T)
	go p.keepListing(ctx, lists)
	go func() {
		defer close(done)
		for r.await(ctx, lists) {
			r.addDue(ctx, r.pool.options.Clock.Now())
		}
		for range lists { // until List has returned
		}
	}()
	return end, done
}

// await waits for the next key's moment, or takes a list. It returns false at the end of ctx or of lists.
func (r *resync[T]) await(ctx context.Context, lists <-chan []T) bool {
	untilNext := time.Duration(math.MaxInt64)
	if len(r.keys) > 0 {
		untilNext = r.keys[r.next].offset - r.pool.options.Clock.Since(r.begun)
	}
	timer := r.pool.options.Clock.NewTimer(untilNext)
	defer timer.Stop()
	select {
	case <-timer.C():
	case keys, open := <-lists:
		if !open {
			return false
		}
		r.takeList(ctx, keys, r.pool.options.Clock.Now())
		r.pool.hasListed.Store(true)
	case <-ctx.Done():
		return false
	}
	return true
}

// takeList begins a round with a new list. Of the first list it adds all keys at once.
func (r *resync[T]) takeList(ctx context.Context, keys []T, now time.Time) {
	if !r.pool.hasListed.Load() {
		for i := 0; i < len(keys) && ctx.Err() == nil; i++ {
			r.addListed(keys[i])
		}
	}
	period := r.pool.options.Resync
	if period == 0 {
		return
	}
	r.addDue(ctx, now) // keys of the list before that have come due meanwhile
	r.begun, r.keys, r.next = now, make([]listedKey[T], len(keys)), 0
	for i, key := range keys {
		offset := r.pool.tracker.untilMoment(key, period, now)
		if offset > period { // A moment within a thousandth of a period: untilMoment leaves it out.
			offset -= period
		}
		r.keys[i] = listedKey[T]{offset, key}
	}
	slices.SortStableFunc(r.keys, func(a, b listedKey[T]) int { return cmp.Compare(a.offset, b.offset) })
}

// addDue adds the keys whose moment has come, and begins the next round after the last key. If the machine
// slept for many rounds, it adds each key once for all of them. The next call adds what is due in this round.
func (r *resync[T]) addDue(ctx context.Context, now time.Time) {
	period := r.pool.options.Resync
	for range r.keys {
		since := now.Sub(r.begun)
		if r.keys[r.next].offset > since || ctx.Err() != nil {
			return
		}
		r.addListed(r.keys[r.next].key)
		if r.next++; r.next == len(r.keys) {
			passed := max(period, since.Truncate(period)) // more than one after a sleep
			r.next, r.begun = 0, r.begun.Add(passed)
		}
	}
}

// addListed adds a key behind the others, by its priority. It should interrupt no handler, and an add with a
// priority is never quiet, so a key that is being handled here gets none. (It may interrupt a call that is
// just beginning: start comes a moment after the queue has handed the key out.)
func (r *resync[T]) addListed(key T) {
	t := r.pool.tracker
	t.mu.Lock()
	handled := t.findRunningLocked(key) != nil
	t.mu.Unlock()
	if t.priorities != nil && !handled {
		t.priorities.AddWithPriority(key, *t.options.ListPriority, 0)
	} else {
		r.pool.queue.AddCause(key, workqueue.Cause{Reason: "resync", Quiet: true})
	}
}

// keepListing sends each list that succeeds, and closes lists when ctx ends or no further list is wanted.
func (p *Pool[T]) keepListing(ctx context.Context, lists chan<- []T) {
	defer close(lists)
	for retry := listRetry; ctx.Err() == nil; {
		wait := p.options.Resync
		switch keys, err := p.list(ctx); {
		case err == nil:
			retry = listRetry
			select {
			case lists <- keys:
			case <-ctx.Done():
			}
			if wait == 0 {
				return
			}
		case ctx.Err() == nil:
			if wait == 0 || wait > retry {
				wait = retry
			}
			retry = min(2*retry, listRetryMax)
			p.tracker.log(ctx, slog.LevelError, "The keys could not be listed", "err", err, "again", wait)
		}
		sleep(ctx, p.options.Clock, wait)
	}
}

// list calls Options.List, and counts.
func (p *Pool[T]) list(ctx context.Context) (keys []T, err error) {
	t, started := p.tracker, p.options.Clock.Now()
	all, err := p.options.List(ctx)
	if err == nil && all != nil {
		for key := range all {
			if err = ctx.Err(); err != nil {
				break
			}
			keys = append(keys, key)
		}
	}
	ended := p.options.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := &t.mu.counted; err == nil {
		c.Listed, c.ListedAt, c.ListTook = len(keys), ended, ended.Sub(started)
	} else if ctx.Err() == nil {
		c.ListsFailed++
	}
	return keys, err
}
