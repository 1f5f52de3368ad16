package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue/worker"
)

// A key that asks for itself at once too often waits in the queue, as after any delay.
func TestSlowDownAtTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("a")
		r := run(t, worker.New(q, answers(worker.RequeueAfter(0)), options{KeepQueue: true}))
		r.after(time.Minute)
		r.endCleanly()
		next := worker.New(q, fine, options{})
		r = run(t, next)
		r.after(10 * time.Second)
		if n := next.Stats().Handled; n != 1 {
			t.Errorf("the next pool has handled %d keys", n)
		}
		r.endCleanly()
	})
}

// A key that is interrupted again and again is slowed down also if its handler has arranged a hold and
// released it, in the call or right after it, and if a hook does that. A hold that is not released comes
// after the slow-down.
func TestSlowDownBesideHold(t *testing.T) {
	interrupts := func(ctx context.Context, q stringQueue, key string) error {
		until := worker.CallOf(ctx).UntilAdded()
		q.Add(key)
		<-until.Done()
		return until.Err()
	}
	for name, c := range map[string]struct {
		byHook   bool
		released bool
		soon     bool   // right after the call
		most     uint64 // how many calls there may be in a minute
	}{
		"released":            {released: true, most: 25},
		"released in a hook":  {byHook: true, released: true, most: 25},
		"released soon":       {soon: true, most: 25},
		"until its limit":     {most: 3},
		"a hook's, likewise ": {byHook: true, most: 3},
	} {
		t.Run(name, func(t *testing.T) {
			overNotifying(t, func(t *testing.T, q notifying) {
				hold := func(ctx context.Context) {
					release := worker.CallOf(ctx).Hold("the world", 29*time.Second)
					if c.released {
						release()
					} else if c.soon {
						time.AfterFunc(time.Microsecond, release)
					}
				}
				o := options{}
				if c.byHook {
					o.OnFinish = func(ctx context.Context, _ outcome) { hold(ctx) }
				}
				q.Add("a")
				p := worker.New(q, func(ctx context.Context, key string) error {
					if !c.byHook {
						hold(ctx)
					}
					return interrupts(ctx, q, key)
				}, o)
				r := run(t, p)
				r.after(time.Minute)
				if n := p.Stats().Handled; n > c.most || n < c.most/2 {
					t.Errorf("%d calls in a minute", n)
				}
				r.cancel()
				r.after(2 * time.Minute)
				r.returnedLeaving("1 queued and not started: a")
				wantMatchedDones(t, q)
			})
		})
	}
}

// A key that is slowed down by a hold can be seen and released, though its handler has arranged none.
func TestSlowDownIsShown(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("a")
		p := worker.New(q, answers(worker.ErrAdded), options{})
		r := run(t, p)
		r.after(time.Minute)
		before := p.Stats().Handled
		k := p.SnapshotKey("a")
		if k.OnHold == nil || !strings.Contains(k.OnHold.Reason, "slowed down") {
			t.Errorf("%+v", k)
		}
		if !p.Release("a") {
			t.Error("nothing is released")
		}
		r.after(time.Minute)
		if n := p.Stats().Handled; n != before+1 {
			t.Errorf("%d calls after the release, %d before", n, before)
		}
		r.endLeaving("1 queued and not started: a")
	})
}

// A key that is slowed down for longer than the limit of its hold was not on hold to that limit, no matter
// when the handler has released it.
func TestSlowDownIsNoHoldToLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		logger, logs := newLogger()
		q.Add("a")
		p := worker.New(q, holdsBriefly(time.Millisecond), options{Logger: logger})
		r := run(t, p)
		r.after(time.Minute)
		if s := p.Stats(); s.HoldsToLimit != 0 || s.HoldDurations == nil {
			t.Errorf("%+v", s)
		}
		if strings.Contains(logs.String(), "on hold to its limit") {
			t.Errorf("logged:\n%s", logs)
		}
		r.endLeaving("1 queued and not started: a")
	})
}

// holdsBriefly returns a handler that is always interrupted, and releases its hold at the end of its call.
func holdsBriefly(limit time.Duration) handler {
	return func(ctx context.Context, _ string) error {
		time.AfterFunc(time.Microsecond, worker.CallOf(ctx).Hold("the world", limit))
		return worker.ErrAdded
	}
}

// lateClock is a clock whose timers fire a millisecond late.
type lateClock struct{ clock.RealClock }

func (c lateClock) NewTimer(d time.Duration) clock.Timer {
	return c.RealClock.NewTimer(d + time.Millisecond)
}

// A timer that fires late does not end the slow-down.
func TestSlowDownByALateTimer(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("a")
		p := worker.New(q, holdsBriefly(time.Hour), options{Clock: lateClock{}})
		r := run(t, p)
		r.after(time.Minute)
		if n := p.Stats().Handled; n > 25 {
			t.Errorf("%d calls in a minute", n)
		}
		r.endLeaving("1 queued and not started: a")
	})
}
