package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

func TestShutDownIsIdempotent(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		if q.ShuttingDown() {
			t.Error("ShuttingDown() = true of a new queue")
		}
		q.Add("a")
		var calls []*call[bool]
		for range 10 {
			calls = append(calls, start(func() bool { q.ShutDown(); return true }))
		}
		for _, c := range calls {
			c.mustReturn(t, "ShutDown")
		}
		q.ShutDown()
		process(t, q, "a")
		wantShutDown(t, q)
		q.ShutDown()
		q.ShutDownWithDrain()
		if err := q.ShutDownContext(t.Context()); err != nil {
			t.Errorf("ShutDownContext() of an empty queue = %v", err)
		}
		wantShutDown(t, q)
	})
}

// drains are the two ways to call for a drain. Both return nil when everything is finished.
func drains(q workqueue.Extended[string]) map[string]func() error {
	return map[string]func() error{
		"ShutDownWithDrain": func() error { q.ShutDownWithDrain(); return nil },
		"ShutDownContext":   func() error { return q.ShutDownContext(context.Background()) },
	}
}

func TestDrainOfEmptyQueue(t *testing.T) {
	for _, name := range []string{"ShutDownWithDrain", "ShutDownContext"} {
		t.Run(name, func(t *testing.T) {
			everyLayer(t, func(t *testing.T, build builder[string]) {
				q := build(options[string]{})
				q.Add("a")
				process(t, q, "a")
				get := startGet[string](q)
				synctest.Wait()
				if err := drains(q)[name](); err != nil {
					t.Errorf("%s() = %v", name, err)
				}
				if g := get.mustReturn(t, "Get during a drain"); g.err == nil {
					t.Errorf("Get() = %v, want shutdown", g)
				}
				q.Add("b")
				wantShutDown(t, q)
			})
		})
	}
}

// A drain waits for the keys that are queued, those that workers hold, and those that workers hold and
// that have been added again.
func TestDrainWaitsForEveryKey(t *testing.T) {
	for _, name := range []string{"ShutDownWithDrain", "ShutDownContext"} {
		t.Run(name, func(t *testing.T) {
			everyLayer(t, func(t *testing.T, build builder[string]) {
				q := build(options[string]{})
				for _, key := range []string{"held", "held and dirty", "queued"} {
					q.Add(key)
				}
				hold(t, q, "held", "held and dirty")
				q.Add("held and dirty")
				drain := start(drains(q)[name])
				drain.mustBlock(t, "drain with all keys")
				if !q.ShuttingDown() {
					t.Error("ShuttingDown() = false during a drain")
				}
				q.Add("too late")
				q.Done("held")
				q.Done("held and dirty") // queued again
				drain.mustBlock(t, "drain with queued keys")
				hold(t, q, "queued")
				q.Done("queued")
				drain.mustBlock(t, "drain with a queued key")
				hold(t, q, "held and dirty")
				drain.mustBlock(t, "drain with a held key")
				q.Done("held and dirty")
				if err := drain.mustReturn(t, "drain of everything"); err != nil {
					t.Errorf("%s() = %v", name, err)
				}
				wantShutDown(t, q)
			})
		})
	}
}

// Keys that are only queued when the drain begins, with nobody holding any: client-go returns at once.
func TestDrainWaitsForQueuedKeys(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		q.Add("a")
		drain := startDrain[string](q)
		drain.mustBlock(t, "ShutDownWithDrain with a queued key")
		process(t, q, "a")
		drain.mustReturn(t, "ShutDownWithDrain")
	})
}

func TestDrainIsFedToSleepingGetters(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		for range 3 {
			go func() {
				for {
					key, shutdown := q.Get()
					if shutdown {
						return
					}
					time.Sleep(time.Second)
					q.Done(key)
				}
			}()
		}
		for i := range 9 {
			q.Add(fmt.Sprint(i))
			synctest.Wait()
			q.Add(fmt.Sprint(i)) // while it is held
		}
		began := time.Now()
		q.ShutDownWithDrain()
		if st := q.Stats(); st.Queued+st.Processing != 0 {
			t.Errorf("Stats() after a drain = %+v", st)
		}
		// Nine keys, three of them held when they were added again, three workers: four seconds.
		if d := time.Since(began); d != 4*time.Second {
			t.Errorf("the drain took %v, want 4 s", d)
		}
	})
}

// client-go wakes one drainer of several.
func TestEveryDrainerWakes(t *testing.T) {
	for _, how := range []string{"Done", "ShutDown"} {
		t.Run(how, func(t *testing.T) {
			everyLayer(t, func(t *testing.T, build builder[string]) {
				q := build(options[string]{})
				q.Add("a")
				hold(t, q, "a")
				var plain []*call[bool]
				var contexts []*call[error]
				for range 3 {
					plain = append(plain, startDrain[string](q))
					contexts = append(contexts, startShutDownContext(t.Context(), q))
				}
				plain[2].mustBlock(t, "ShutDownWithDrain")
				var want error
				if how == "Done" {
					q.Done("a")
				} else {
					q.ShutDown()
					want = workqueue.ErrShutDown
				}
				for i := range plain {
					plain[i].mustReturn(t, "ShutDownWithDrain")
					if err := contexts[i].mustReturn(t, "ShutDownContext"); !errors.Is(err, want) {
						t.Errorf("ShutDownContext() = %v, want %v", err, want)
					}
				}
			})
		})
	}
}

// A ShutDown ends the drains that wait when it is called, and no others.
func TestDrainAfterShutDown(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		q.Add("a")
		q.Add("b")
		hold(t, q, "a")
		q.ShutDown()
		drain := startShutDownContext(t.Context(), q)
		drain.mustBlock(t, "ShutDownContext after ShutDown")
		q.ShutDown()
		if err := drain.mustReturn(t, "ShutDownContext"); err != workqueue.ErrShutDown {
			t.Errorf("ShutDownContext() = %v, want ErrShutDown", err)
		}
		again := startShutDownContext(t.Context(), q)
		q.Done("a")
		again.mustBlock(t, "ShutDownContext with a queued key")
		process(t, q, "b")
		if err := again.mustReturn(t, "ShutDownContext"); err != nil {
			t.Errorf("ShutDownContext() = %v", err)
		}
	})
}

func TestShutDownContextGivesUp(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		q.Add("a")
		hold(t, q, "a")
		q.Add("a")

		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.ShutDownContext(canceled); err != context.Canceled {
			t.Errorf("ShutDownContext() = %v, want Canceled", err)
		}
		if !q.ShuttingDown() {
			t.Error("ShuttingDown() = false after a drain that gave up")
		}
		q.Add("b")
		wantLen(t, q, 0)

		// It may be called again, any number of times, and each call has its own limit.
		forever := startShutDownContext(t.Context(), q)
		for range 3 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := q.ShutDownContext(ctx); err != context.DeadlineExceeded || time.Since(began) != time.Minute {
				t.Errorf("ShutDownContext() = %v after %v, want DeadlineExceeded after 1m", err, time.Since(began))
			}
			cancel()
		}
		forever.mustBlock(t, "ShutDownContext beside those that gave up")

		q.Done("a")
		process(t, q, "a")
		if err := forever.mustReturn(t, "ShutDownContext"); err != nil {
			t.Errorf("ShutDownContext() = %v", err)
		}
		if err := q.ShutDownContext(canceled); err != nil {
			t.Errorf("ShutDownContext() of a drained queue = %v, want nil whatever the context is", err)
		}
		wantShutDown(t, q)
	})
}

// The drains of the layers above the FIFO are not merely promoted from it: they drop what waits, before
// they wait themselves. In client-go the loop goes on until its next heartbeat.
func TestShutDownDropsWaitingKeys(t *testing.T) {
	ends := map[string]func(delayer[string]){
		"ShutDown":          func(q delayer[string]) { q.ShutDown() },
		"ShutDownWithDrain": func(q delayer[string]) { q.ShutDownWithDrain() },
		"ShutDownContext":   func(q delayer[string]) { _ = q.ShutDownContext(context.Background()) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[string]) {
				base := newGoroutineCount()
				q := build(options[string]{})
				began := time.Now()
				q.Add("held")
				hold(t, q, "held")
				for i := range 100 {
					q.AddAfter(fmt.Sprint(i), time.Duration(i+1)*time.Second)
				}
				q.AddAfter("held", time.Second)
				call := start(func() bool { end(q); return true })
				synctest.Wait()
				if st := q.Stats(); st.Waiting != 0 || st.Dropped != 101 {
					t.Errorf("Stats() = %+v, want nothing waiting and 101 dropped", st)
				}
				if name != "ShutDown" {
					call.mustBlock(t, "drain with a held key")
					base.want(t, "during the drain", 1) // the drainer itself
				}
				time.Sleep(time.Hour)
				wantLen(t, q, 0)
				q.Done("held")
				call.mustReturn(t, name)
				base.want(t, "after "+name, 0)
				q.AddAfter("late", time.Second)
				if st := q.Stats(); st.Waiting != 0 || st.Dropped != 101 || st.Retries != 101 {
					t.Errorf("Stats() = %+v, want 101 dropped and no more", st)
				}
				if d := time.Since(began); d != time.Hour {
					t.Errorf("shutting down took %v", d-time.Hour)
				}
				wantShutDown(t, q)
			})
		})
	}
}

// A key that comes due while the queue is shut down is either queued, and then the drain waits for it,
// or counted as dropped.
func TestShutDownWhileKeysComeDue(t *testing.T) {
	const keys = 300
	everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[int]) {
		for round := range 40 {
			q := build(options[int]{})
			for key := range keys {
				q.AddAfter(key, time.Second)
			}
			processed := 0
			worker := start(func() bool {
				for {
					key, shutdown := q.Get()
					if shutdown {
						return true
					}
					processed++
					q.Done(key)
				}
			})
			time.Sleep(time.Second) // The loop wakes at this very moment.
			for range round % 10 {
				runtime.Gosched()
			}
			q.ShutDownWithDrain()
			st := q.Stats()
			if st.Queued+st.Processing+st.Waiting != 0 {
				t.Fatalf("Stats() after a drain = %+v", st)
			}
			worker.mustReturn(t, "worker")
			if processed+int(st.Dropped) != keys {
				t.Fatalf("%d keys processed and %d dropped, of %d", processed, st.Dropped, keys)
			}
		}
	})
}
