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

// listPriority is controller-runtime's LowPriority, with which its informers add what has not changed.
const listPriority = -100

// A list that fails is tried again after listRetry, then twice that and so on, up to listRetryMax or Resync.
const (
	listRetry    = time.Second
	listRetryMax = time.Minute
)

// resync adds the keys of the last list at their moments. It belongs to the goroutine that adds.
type resync[T comparable] struct {
	*Pool[T]
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
	r, lists := &resync[T]{Pool: p}, make(chan []T)
	go p.tracker.catchPanic(func() { p.keepListing(ctx, lists) })
	go func() {
		defer close(done)
		p.tracker.catchPanic(func() {
			for r.await(ctx, lists) {
				r.addDue(ctx, r.options.Clock.Now())
				r.hasListed.Store(true)
			}
		})
		for range lists { // until List has returned
		}
	}()
	return end, done
}

// await waits for the next key's moment, or for a list, with which a new round begins. It returns false at
// the end of ctx or of lists.
func (r *resync[T]) await(ctx context.Context, lists <-chan []T) bool {
	untilNext := time.Duration(math.MaxInt64)
	if len(r.keys) > 0 {
		untilNext = r.keys[r.next].offset - r.options.Clock.Since(r.begun)
	}
	timer := r.options.Clock.NewTimer(untilNext)
	defer timer.Stop()
	select {
	case <-timer.C():
	case keys, open := <-lists:
		if !open {
			return false
		}
		now := r.options.Clock.Now()
		r.addDue(ctx, now) // the last ones of the old round
		r.beginRound(keys, now)
	case <-ctx.Done():
		return false
	}
	return true
}

// beginRound begins a round of keys. Without Resync all of them come at once.
func (r *resync[T]) beginRound(keys []T, now time.Time) {
	r.begun, r.keys, r.next = now, make([]listedKey[T], len(keys)), 0
	period := r.options.Resync
	for i, key := range keys {
		r.keys[i].key = key
		if period > 0 { // untilMoment is up to a thousandth of a period longer. This makes it (0, period].
			r.keys[i].offset = (r.tracker.untilMoment(key, period, now)-1)%period + 1
		}
	}
	slices.SortStableFunc(r.keys, func(a, b listedKey[T]) int { return cmp.Compare(a.offset, b.offset) })
}

// addDue adds the keys whose moment has come, each once, and begins the next round after the last key. If the
// machine has slept, that is the round of now: the rounds in between are left out.
func (r *resync[T]) addDue(ctx context.Context, now time.Time) {
	period := r.options.Resync
	for range r.keys {
		since := now.Sub(r.begun)
		if r.keys[r.next].offset > since || ctx.Err() != nil {
			return
		}
		r.addListed(r.keys[r.next].key)
		if r.next++; r.next == len(r.keys) {
			r.next, r.begun = 0, r.begun.Add(max(period, since.Truncate(period)))
		}
	}
	if period == 0 {
		r.keys = nil
	}
}

// addListed adds a key quietly, behind the others. To add with a priority is never quiet, so a key that is
// being handled here keeps its priority.
func (r *resync[T]) addListed(key T) {
	t := r.tracker
	t.mu.Lock()
	handled := t.findRunningLocked(key) != nil
	t.mu.Unlock()
	if t.priorities != nil && !handled {
		t.priorities.AddWithPriority(key, listPriority, 0)
	} else {
		r.queue.AddCause(key, workqueue.Cause{Reason: "resync", Quiet: true})
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

// list calls Options.List, and counts. A panic ends the pool.
func (p *Pool[T]) list(ctx context.Context) (keys []T, err error) {
	t, started := p.tracker, p.options.Clock.Now()
	err = t.onOwnGoroutine(func() error {
		all, err := p.options.List(ctx)
		if err != nil || all == nil {
			return err
		}
		for key := range all {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			keys = append(keys, key)
		}
		return nil
	})
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
