package worker

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker/internal/rounds"
)

// With Options.List a pool brings all keys by itself. One goroutine lists. Another one adds the keys of the
// last list that succeeded, each at its moment of the period, round after round: a list that fails or takes
// long delays no key that is known.

// A list that fails is tried again after listRetry, then twice that and so on, up to listRetryMax or Resync.
const (
	listRetry    = time.Second
	listRetryMax = time.Minute
)

// lowPriority is controller-runtime's LowPriority, with which its informers add what has not changed.
const lowPriority = -100

// startResync starts what Options.List asks for. It has ended when the channel is closed.
func (p *Pool[T]) startResync() (end func(), ended <-chan struct{}) {
	ctx, end := context.WithCancel(p.startCtx)
	done := make(chan struct{})
	if p.options.List == nil {
		close(done)
		return end, done
	}
	lists := make(chan []T)
	go p.keepListing(ctx, lists)
	go func() {
		defer close(done)
		p.addListed(ctx, lists)
		for range lists { // until List has returned
		}
	}()
	return end, done
}

// addListed adds the keys of lists, of the first one at once and then each at its moment of the period, until
// ctx or lists end.
func (p *Pool[T]) addListed(ctx context.Context, lists <-chan []T) {
	var r rounds.Rounds[T] // without keys if there is no period
	addAll := func(keys iter.Seq[T]) {
		for key := range keys {
			if ctx.Err() != nil {
				return
			}
			p.addOneListed(key)
		}
	}
	for {
		timer := p.options.Clock.NewTimer(r.UntilNext(p.options.Clock.Now()))
		select {
		case <-timer.C():
		case keys, open := <-lists:
			if timer.Stop(); !open {
				return
			}
			if !p.hasListed.Load() {
				addAll(slices.Values(keys))
			}
			if now, period := p.options.Clock.Now(), p.options.Resync; period > 0 {
				addAll(r.Due(now)) // keys of the list before that have come due meanwhile
				r.Begin(keys, period, now, func(key T) time.Duration {
					return p.tracker.untilMoment(key, period, now)
				})
			}
			p.hasListed.Store(true)
		case <-ctx.Done():
			timer.Stop()
			return
		}
		addAll(r.Due(p.options.Clock.Now()))
	}
}

// addOneListed adds a key behind the others, by its priority. It should interrupt no handler, and an add with
// a priority is never quiet, so a key that is being handled here gets none.
func (p *Pool[T]) addOneListed(key T) {
	t := p.tracker
	t.mu.Lock()
	isRunning := t.findRunningLocked(key) != nil
	t.mu.Unlock()
	if t.priorities != nil && !isRunning {
		t.priorities.AddWithPriority(key, lowPriority, 0)
	} else {
		p.queue.AddCause(key, workqueue.Cause{Reason: "resync", Quiet: true})
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
			p.tracker.logger.ErrorContext(ctx, "The keys could not be listed", "err", err, "again", wait)
		}
		await(ctx, p.options.Clock.NewTimer(wait))
	}
}

// list calls Options.List, and notes whether it succeeds.
func (p *Pool[T]) list(ctx context.Context) (keys []T, err error) {
	t := p.tracker
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
		c.ListedAt = ended
	} else if ctx.Err() == nil {
		c.ListsFailed++
	}
	return keys, err
}
