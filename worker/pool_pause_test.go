package worker_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// A pause keeps keys in the queue for its time, or until Resume. Running handlers continue, and an end of the
// pool ends the pause.
func TestPauseAndResume(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var handled atomic.Int32
		p := worker.New(q, func(context.Context, string) error {
			time.Sleep(time.Second)
			handled.Add(1)
			return nil
		}, options{Workers: 3, Drain: worker.All})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		want := func(when string, n int32, paused bool, until time.Duration) {
			t.Helper()
			synctest.Wait()
			s := p.Stats()
			if handled.Load() != n || s.Paused != paused || s.Wanted != 3 && s.Wanted != 5 {
				t.Errorf("%s: %d handled, %+v", when, handled.Load(), s)
			}
			if until == 0 != s.PausedUntil.IsZero() || until != 0 && time.Until(s.PausedUntil) != until {
				t.Errorf("%s: paused until %v", when, s.PausedUntil)
			}
		}
		q.Add("runs")
		synctest.Wait()
		p.Pause(-1)
		want("no pause", 0, false, 0)
		p.Pause(time.Minute)
		time.Sleep(time.Second)
		q.Add("a")
		time.Sleep(29 * time.Second)
		want("in the pause", 1, true, 30*time.Second)
		p.Pause(time.Hour) // It replaces the first one.
		time.Sleep(59 * time.Minute)
		want("in the longer pause", 1, true, time.Minute)
		time.Sleep(2 * time.Minute)
		want("after it", 2, false, 0)
		p.Pause(math.MaxInt64)
		q.Add("b")
		if err := p.SetWorkers(5); err != nil {
			t.Error(err)
		}
		time.Sleep(24 * time.Hour)
		want("in a pause without an end", 2, true, 0)
		p.Resume()
		p.Resume()
		time.Sleep(2 * time.Second)
		want("resumed", 3, false, 0)
		p.Pause(time.Hour)
		q.Add("c")
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if handled.Load() != 4 {
			t.Errorf("the drain has handled %d keys in all", handled.Load())
		}
		p.Pause(time.Hour)
		if p.Stats().Paused {
			t.Error("a pool that has ended is paused")
		}
	})
}

// A pool may be paused before it runs.
func TestPauseBeforeRun(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		p := worker.New(q, fine, options{})
		p.Pause(time.Minute)
		q.Add("a")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if n := p.Stats().Handled; n != 0 {
			t.Errorf("%d handled in the pause", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := p.Stats().Handled; n != 1 {
			t.Errorf("%d handled after it", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
