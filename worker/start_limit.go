package worker

import (
	"context"
	"time"

	"github.com/keyedqueue/workqueue"
	"golang.org/x/time/rate"
)

// With Options.StartLimit workers wait before they take a key, so keys stay in the queue, where they are
// merged and ordered. One worker at a time waits for the limit and then for a key; the others wait behind it,
// at startGate. So no worker has a token without a key, and after an idle time at most a burst starts.

// maxStartWait is how long a worker waits until it looks at the limit again, which may have been changed.
const maxStartWait = time.Second

// get takes a key out of the queue when StartLimit allows it, as soon as there is one.
func (p *Pool[T]) get(ctx context.Context) (h workqueue.HandOut[T], err error) {
	limit := p.options.StartLimit
	if limit == nil {
		return p.queue.Next(ctx)
	}
	select {
	case p.startGate <- struct{}{}:
	case <-ctx.Done():
		return h, ctx.Err()
	}
	defer func() { <-p.startGate }()
	if err := p.awaitStart(ctx); err != nil {
		return h, err
	}
	if h, err = p.queue.Next(ctx); err == nil {
		limit.ReserveN(p.options.Clock.Now(), 1) // If others use the limit too, it may go into debt.
	}
	return h, err
}

// awaitStart waits until the limit has a token, which it does not take, nothing is left to limit or ctx ends.
func (p *Pool[T]) awaitStart(ctx context.Context) error {
	defer p.waitsForToken.Store(false)
	for ctx.Err() == nil {
		wait := untilToken(p.options.StartLimit, p.options.Clock.Now())
		if wait <= 0 || p.queue.ShuttingDown() && p.queue.Len() == 0 {
			return nil
		}
		p.waitsForToken.Store(true)
		await(ctx, p.options.Clock.NewTimer(min(wait, maxStartWait)))
	}
	return ctx.Err()
}

// untilToken returns after how long l has a token, but not much more than maxStartWait.
func untilToken(l *rate.Limiter, now time.Time) time.Duration {
	missing, limit := 1-l.TokensAt(now), l.Limit()
	if limit == rate.Inf || missing <= 0 {
		return 0
	}
	seconds := min(missing/float64(max(0, limit)), maxStartWait.Seconds()) // a rate of 0 gives infinity
	return 1 + time.Duration(seconds*float64(time.Second))
}
