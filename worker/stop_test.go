package worker_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

func TestStop(t *testing.T) {
	add := func(q stringQueue) {
		for _, key := range []string{"3s", "4s", "5s"} {
			q.Add(key)
		}
	}
	t.Run("Running", func(t *testing.T) {
		inBubble(t, func(t *testing.T, q stringQueue) {
			add(q)
			p := worker.New(q, sleeper(new(journal)), options{Drain: worker.All})
			r := run(t, p)
			p.Stop(worker.Running)
			p.Stop(worker.Running)
			p.Stop(worker.All) // Too late.
			synctest.Wait()
			q.Add("6s") // All would have shut the queue down.
			r.after(3 * time.Second)
			if e := left(t, r.returned()); !slices.Equal(e.NotStarted, []string{"4s", "5s", "6s"}) {
				t.Errorf("left: %+v", e)
			}
		})
	})
	t.Run("All", func(t *testing.T) {
		inBubble(t, func(t *testing.T, q stringQueue) {
			add(q)
			p := worker.New(q, sleeper(new(journal)), options{})
			r := run(t, p)
			p.Stop(worker.All)
			r.after(12 * time.Second)
			if err := r.returned(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("All, then the end of the context", func(t *testing.T) {
		inBubble(t, func(t *testing.T, q stringQueue) {
			add(q)
			p := worker.New(q, sleeper(new(journal)), options{})
			r := run(t, p)
			p.Stop(worker.All)
			r.after(5 * time.Second)
			r.cancel()
			r.after(7 * time.Second)
			if e := left(t, r.returned()); !slices.Equal(e.NotStarted, []string{"5s"}) {
				t.Errorf("left: %+v", e)
			}
		})
	})
	t.Run("the end of the context with All, then Running", func(t *testing.T) {
		inBubble(t, func(t *testing.T, q stringQueue) {
			add(q)
			p := worker.New(q, sleeper(new(journal)), options{Drain: worker.All, DrainTimeout: 6 * time.Second, CancelGrace: worker.NoGrace})
			r := run(t, p)
			r.cancel()
			r.after(5 * time.Second)
			p.Stop(worker.Running)
			r.after(6 * time.Second) // The limit is that of the first one.
			if e := left(t, r.returned()); !slices.Equal(e.Unfinished, []string{"4s"}) || !slices.Equal(e.NotStarted, []string{"5s"}) {
				t.Errorf("left: %+v", e)
			}
			r.after(time.Minute)
		})
	})
	t.Run("before Run", func(t *testing.T) {
		inBubble(t, func(t *testing.T, q stringQueue) {
			add(q)
			p := worker.New(q, sleeper(new(journal)), options{})
			p.Stop(worker.Running)
			if e := left(t, run(t, p).returned()); len(e.NotStarted) != 3 {
				t.Errorf("left: %+v", e)
			}
		})
	})
	t.Run("before Run, without workers", func(t *testing.T) {
		for _, drain := range []worker.Drain{worker.Running, worker.All} {
			inBubble(t, func(t *testing.T, q stringQueue) {
				add(q)
				p := worker.New(q, sleeper(new(journal)), options{CancelGrace: time.Minute})
				setWorkers(t, p, 0)
				p.Stop(drain)
				if e := left(t, run(t, p).returned()); len(e.NotStarted) != 3 {
					t.Errorf("left: %+v", e)
				}
			})
		}
	})
	t.Run("All before Run", func(t *testing.T) {
		inBubble(t, func(t *testing.T, q stringQueue) {
			add(q)
			p := worker.New(q, sleeper(new(journal)), options{})
			p.Stop(worker.All)
			r := run(t, p)
			r.after(12 * time.Second)
			if err := r.returned(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("Nothing, again and again", func(t *testing.T) {
		inBubble(t, func(t *testing.T, q stringQueue) {
			add(q)
			p := worker.New(q, sleeper(new(journal)), options{CancelGrace: worker.NoGrace})
			r := run(t, p)
			synctest.Wait()
			for range 3 {
				p.Stop(worker.Nothing)
			}
			if e := left(t, r.returned()); !slices.Equal(e.Unfinished, []string{"3s"}) {
				t.Errorf("left: %+v", e)
			}
			if st := p.Stats(); st.TimedOut != 0 {
				t.Errorf("%d calls have timed out, without a HandlerTimeout", st.TimedOut)
			}
			r.after(3 * time.Second)
			if st := p.Stats(); st.Handled != 1 || st.TimedOut != 0 {
				t.Errorf("Stats() = %+v, without a HandlerTimeout", st)
			}
		})
	})
}
