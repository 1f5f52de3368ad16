package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

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
// released it in the call or right after it, and if a hook does that. A hold that is not released takes the
// place of the slow-down.
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
		soon     bool   // released half a millisecond later
		most     uint64 // how many calls there may be in a minute
	}{
		"released":            {released: true, most: 25},
		"released soon":       {soon: true, most: 25},
		"released in a hook":  {byHook: true, released: true, most: 25},
		"until its limit":     {most: 3},
		"a hook's, likewise ": {byHook: true, most: 3},
	} {
		t.Run(name, func(t *testing.T) {
			overNotifying(t, func(t *testing.T, q notifying) {
				hold := func(ctx context.Context) {
					release := worker.CallOf(ctx).Hold("the world", 29*time.Second)
					if c.released {
						release()
					}
					if c.soon {
						time.AfterFunc(time.Millisecond/2, release)
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
