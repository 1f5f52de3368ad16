package worker

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
)

// With Options.List a pool brings all keys by itself. One goroutine lists. Another one adds the keys of the
// last list that succeeded, each at its moment of the period, round after round: a list that fails or takes
// long delays no key that is known.

// listPriority is that of controller-runtime's LowPriority, with which its informers add what has not
// changed.
const listPriority = -100

// A list that fails is tried again after listRetry, then twice that and so on, up to listRetryMax or Resync.
const (
	listRetry    = time.Second
	listRetryMax = time.Minute
)

// resync lists the keys, and adds them at their moments.
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
	go p.tracker.catchPanic(func() { r.keepListing(ctx, lists) })
	go func() {
		defer close(done)
		p.tracker.catchPanic(func() {
			for r.await(ctx, lists) {
				r.addDue(ctx)
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
	timer := r.options.Clock.NewTimer(r.untilNext())
	defer timer.Stop()
	select {
	case <-timer.C():
	case keys, open := <-lists:
		if !open {
			return false
		}
		r.addDue(ctx) // the last ones of the old round
		r.beginRound(keys)
	case <-ctx.Done():
		return false
	}
	return true
}

// beginRound begins a round of keys. Without Resync all of them come at once.
func (r *resync[T]) beginRound(keys []T) {
	r.begun, r.keys, r.next = r.options.Clock.Now(), make([]listedKey[T], len(keys)), 0
	period := r.options.Resync
	for i, key := range keys {
		r.keys[i].key = key
		if period > 0 {
			// Every may take a thousandth of a period longer. Here each key comes within the period.
			r.keys[i].offset = (r.tracker.untilMoment(key, period, r.begun)-1)%period + 1
		}
	}
	slices.SortStableFunc(r.keys, func(a, b listedKey[T]) int { return cmp.Compare(a.offset, b.offset) })
}

// untilNext returns the time until the next key's moment.
func (r *resync[T]) untilNext() time.Duration {
	if len(r.keys) == 0 {
		return math.MaxInt64
	}
	return r.keys[r.next].offset - r.options.Clock.Since(r.begun)
}

// addDue adds the keys whose moment has come, each once, also if the machine has slept for many periods.
func (r *resync[T]) addDue(ctx context.Context) {
	for range r.keys {
		if r.untilNext() > 0 || ctx.Err() != nil {
			return
		}
		r.addListed(r.keys[r.next].key)
		if r.next++; r.next == len(r.keys) {
			r.next, r.begun = 0, r.begun.Add(r.options.Resync)
		}
	}
	if r.options.Resync == 0 {
		r.keys = nil
	}
}

// addListed adds a key quietly, behind the others. To add with a priority is never quiet, so a key that is
// being handled here keeps its priority.
func (p *Pool[T]) addListed(key T) {
	t := p.tracker
	t.mu.Lock()
	handled := t.findRunningLocked(key) != nil
	t.mu.Unlock()
	if t.priorities != nil && !handled {
		t.priorities.AddWithPriority(key, listPriority, 0)
	} else {
		p.queue.AddCause(key, workqueue.Cause{Reason: "resync", Quiet: true})
	}
}

// keepListing sends each list that succeeds, until ctx ends or no further list is wanted. Then it closes
// lists.
func (r *resync[T]) keepListing(ctx context.Context, lists chan<- []T) {
	defer close(lists)
	for retry := listRetry; ctx.Err() == nil; {
		pause := r.options.Resync
		switch keys, err := r.list(ctx); {
		case err == nil:
			retry = listRetry
			select {
			case lists <- keys:
			case <-ctx.Done():
			}
			if pause == 0 {
				return
			}
		case ctx.Err() == nil:
			if pause == 0 || pause > retry {
				pause = retry
			}
			retry = min(2*retry, listRetryMax)
			r.tracker.log(ctx, slog.LevelError, "The keys could not be listed", "err", err, "again", pause)
		}
		sleep(ctx, r.options.Clock, pause)
	}
}

// list calls Options.List, and counts. A panic ends the pool.
func (r *resync[T]) list(ctx context.Context) (keys []T, err error) {
	t, started := r.tracker, r.options.Clock.Now()
	err = t.onOwnGoroutine(func() error {
		all, err := r.options.List(ctx)
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
	ended := r.options.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := &t.mu.counted; err == nil {
		c.Listed, c.ListedAt, c.ListTook = len(keys), ended, ended.Sub(started)
	} else if ctx.Err() == nil {
		c.ListsFailed++
	}
	return keys, err
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}
