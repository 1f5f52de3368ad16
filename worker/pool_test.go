package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// gauge is a handler that takes a second and knows how many of its calls there are.
type gauge struct {
	mu            sync.Mutex
	running, most int
	handled       []string
}

func (g *gauge) handle(ctx context.Context, key string) error {
	g.mu.Lock()
	g.running++
	g.most = max(g.most, g.running)
	g.mu.Unlock()
	time.Sleep(time.Second)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.handled = append(g.handled, key)
	return nil
}

func (g *gauge) now() int {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}

// reset returns the largest number of calls at once since the last reset.
func (g *gauge) reset() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	most := g.most
	g.most = g.running
	return most
}

func setWorkers(t *testing.T, p *worker.Pool[string], n int) {
	t.Helper()
	if err := p.SetWorkers(n); err != nil {
		t.Fatal(err)
	}
}

func TestSetWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var g gauge
		addNumbers(q, 100)
		p := worker.New(q, g.handle, options{Workers: 2})
		r := run(t, p)
		check := func(what string, n, want int) {
			t.Helper()
			if n != want {
				t.Errorf("%s: %d handlers, want %d", what, n, want)
			}
		}
		check("at the beginning", g.now(), 2)
		setWorkers(t, p, 5)
		check("growing is immediate", g.now(), 5)
		r.after(500 * time.Millisecond)
		setWorkers(t, p, 3)
		check("shrinking lets handlers finish", g.now(), 5)
		r.after(time.Second)
		g.reset()
		r.after(10500 * time.Millisecond)
		check("shrinking starts no other", g.reset(), 3)
		for _, n := range []int{0, 4, 3} {
			setWorkers(t, p, n)
		}
		r.after(20500 * time.Millisecond)
		if n := g.reset(); n != 4 && n != 3 {
			t.Errorf("%d handlers after changes", n)
		}
		r.after(25500 * time.Millisecond)
		check("in the end", g.reset(), 3)
		r.after(time.Minute)
		r.endCleanly()
		check("all", len(g.handled), 100)
		setWorkers(t, p, 10) // Run has returned: nothing happens.
		check("after the end", p.Stats().Living, 0)
		if err := p.SetWorkers(-1); err == nil || err.Error() != "worker: SetWorkers of a negative number: -1" {
			t.Errorf("SetWorkers(-1) returned %v", err)
		}
	})
}

// With no worker the pool starts nothing, and Run does not return. Keys stay in order.
func TestPause(t *testing.T) {
	for _, beforeRun := range []bool{false, true} {
		inBubble(t, func(t *testing.T, q stringQueue) {
			var g gauge
			p := worker.New(q, g.handle, options{})
			if beforeRun {
				setWorkers(t, p, 0)
			}
			r := run(t, p)
			setWorkers(t, p, 0)
			addAll(q, "a b c d e f g h i j")
			r.after(time.Hour)
			r.goesOn()
			if g.reset() != 0 {
				t.Error("a paused pool has started a key")
			}
			setWorkers(t, p, 1)
			r.after(time.Hour + 10*time.Second)
			equal(t, "after the pause", g.handled, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
			if g.reset() != 1 {
				t.Error("more than one worker")
			}
			r.endCleanly()
		})
	}
}

func TestPauseWhileHandling(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var g gauge
		addAll(q, "a b")
		p := worker.New(q, g.handle, options{})
		r := run(t, p)
		setWorkers(t, p, 0)
		setWorkers(t, p, 1) // The old worker stays, or there would be two.
		if n := g.now(); n != 1 {
			t.Errorf("%d handlers", n)
		}
		setWorkers(t, p, 0)
		r.after(time.Hour)
		equal(t, "handled", g.handled, "a")
		r.cancel()
		r.returnedLeaving("1 queued and not started: b")
	})
}

// Paused, a pool ends as always.
func TestEndOfAPausedPool(t *testing.T) {
	for _, drain := range []worker.Drain{worker.Running, worker.All} {
		t.Run(fmt.Sprint("drain=", drain), func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				var g gauge
				p := worker.New(q, g.handle, options{Workers: 2, Drain: drain})
				r := run(t, p)
				setWorkers(t, p, 0)
				addAll(q, "a b c")
				synctest.Wait()
				r.cancel()
				_ = r.returned()
				equal(t, "left", slices.Sorted(slices.Values(p.Left().NotStarted)), "a", "b", "c")
			})
		})
	}
}

// When somebody else has shut the queue down, a pool that is paused does not end: the key that was added
// while it was handled still waits for a worker, also if another one has found the queue empty before.
func TestPauseAfterTheShutDown(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var g gauge
		q.Add("a")
		p := worker.New(q, g.handle, options{Workers: 2})
		r := run(t, p)
		q.Add("a")
		q.ShutDown()
		synctest.Wait() // The second worker waits for the Done of the first.
		setWorkers(t, p, 0)
		r.after(time.Hour)
		r.goesOn()
		setWorkers(t, p, 2)
		r.after(time.Hour + time.Second)
		r.returnedLeaving("nothing")
		equal(t, "handled", g.handled, "a", "a")
	})
}

// pausingQueue calls pause as soon as a worker has learned that the queue is shut down.
type pausingQueue struct {
	extended
	pause func()
}

func (q *pausingQueue) Next(ctx context.Context) (workqueue.HandOut[string], error) {
	key, err := q.extended.Next(ctx)
	if errors.Is(err, workqueue.ErrShutDown) {
		q.pause()
	}
	return key, err
}

// A pool that is paused just when its last worker finds the queue shut down does not end before the pause
// does.
func TestPauseAtTheShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &pausingQueue{extended: newQueue()}
		p := worker.New(q, fine, options{})
		q.pause = sync.OnceFunc(func() { setWorkers(t, p, 0) })
		r := run(t, p)
		q.ShutDown()
		r.after(time.Hour)
		r.goesOn()
		setWorkers(t, p, 1)
		r.after(2 * time.Hour)
		r.returnedLeaving("nothing")
	})
}

// TestStress is for the race detector: real goroutines, and every Get has its Done.
func TestStress(t *testing.T) {
	for name, queue := range map[string]stringQueue{"root": newFastQueue()} {
		t.Run(name, func(t *testing.T) {
			p := worker.New(queue, func(ctx context.Context, key string) error {
				switch rand.IntN(20) {
				case 0, 1:
					return errBroken
				case 2, 3:
					panic("one of many")
				case 4, 5:
					return worker.RequeueAfter(time.Microsecond)
				case 6:
					runtime.Goexit()
				case 7:
					queue.Add(key)
					return worker.Terminal(errBroken)
				}
				return nil
			}, options{Workers: 4, Drain: worker.All, HandlerTimeout: time.Minute, StuckAfter: time.Millisecond})
			result := make(chan error)
			go func() { result <- p.Run(t.Context()) }()
			var adders sync.WaitGroup
			for range 2 {
				adders.Go(func() {
					for i := range 20_000 {
						queue.Add(fmt.Sprint(rand.IntN(50)))
						if i%500 == 0 {
							setWorkers(t, p, rand.IntN(6))
						}
					}
				})
			}
			adders.Wait()
			setWorkers(t, p, 3)
			p.Stop(worker.All)
			if err, l := <-result, p.Left(); err != nil || len(l.Unfinished) > 0 || len(l.NotStarted) > 0 {
				t.Errorf("Run returned %v, left: %v", err, l)
			}
			if st := stats(queue); st.Processing != 0 || st.Queued != 0 || st.UnmatchedDones != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

func newFastQueue() stringQueue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](0, 0))
}

// Idle workers that have not yet noticed the end when Run looks who is still busy are not busy. It is the
// real scheduler that has to hit this moment, so there are many ends.
func TestIdleWorkersAreNotUnfinished(t *testing.T) {
	for range 300 {
		q := newFastQueue()
		result := make(chan error)
		handled := make(chan struct{})
		p := worker.New(q, func(context.Context, string) error {
			handled <- struct{}{}
			return nil
		}, options{Workers: 8, DrainTimeout: 1, CancelGrace: worker.NoGrace})
		go func() { result <- p.Run(t.Context()) }()
		for i := range 16 {
			q.Add(fmt.Sprint(i))
			<-handled
		}
		for stats(q).Processing > 0 {
			runtime.Gosched()
		}
		p.Stop(worker.Running)
		if err := <-result; err != nil || !p.Left().Empty() {
			t.Fatalf("Run returned %v, left: %v", err, p.Left())
		}
	}
}

func TestBadInput(t *testing.T) {
	handle := fine
	ended, cancel := context.WithCancel(t.Context())
	cancel() // A Run that accepts bad input ends at once.
	for _, c := range []struct {
		name    string
		queue   stringQueue
		handler handler
		options options
		text    string
	}{
		{"nil handler", newQueue(), nil, options{}, "worker: the handler is nil"},
		{"nil queue", nil, handle, options{}, "worker: the queue is nil"},
		{"workers", newQueue(), handle, options{Workers: -1}, "worker: Options.Workers is negative: -1"},
		{"retries", newQueue(), handle, options{MaxRetries: -2},
			"worker: Options.MaxRetries is -2: the only negative value is NoRetries"},
		{"drain timeout", newQueue(), handle, options{DrainTimeout: -time.Second},
			"worker: Options.DrainTimeout is negative: -1s"},
		{"nearly NoGrace", newQueue(), handle, options{CancelGrace: -2},
			"worker: Options.CancelGrace is negative: -2ns"},
		{"handler timeout", newQueue(), handle, options{HandlerTimeout: -1},
			"worker: Options.HandlerTimeout is negative: -1ns"},
		{"resync", newQueue(), handle, options{Resync: -1}, "worker: Options.Resync is negative: -1ns"},
		{"resync of nothing", newQueue(), handle, options{Resync: 1}, "worker: Options.Resync needs List"},
		{"stuck after", newQueue(), handle, options{StuckAfter: -1},
			"worker: Options.StuckAfter is negative: -1ns"},
		{"drain", newQueue(), handle, options{Drain: 7},
			"worker: Options.Drain is not Running, All or Nothing: 7"},
		{"drain of a queue to keep", newQueue(), handle, options{Drain: worker.All, KeepQueue: true},
			"worker: Options.Drain is All, which shuts the queue down, and KeepQueue forbids that"},
		{"a queue of others", plain{newQueue()}, handle, options{}, "worker: the queue, a worker_test.plain, is no " +
			"workqueue.ExtendedRateLimiting. If it wraps a queue of this project, embed " +
			"workqueue.ExtendedRateLimiting instead of TypedRateLimitingInterface. Of any other queue " +
			"foreign.RateLimiting makes one: call it once, and use only what it returns"},
		{"several", nil, nil, options{Workers: -1},
			"worker: the queue is nil\nworker: Options.Workers is negative: -1\nworker: the handler is nil"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.queue != nil {
				c.queue.Add("a")
			}
			err := worker.Run(ended, c.queue, c.handler, c.options)
			if err == nil || err.Error() != c.text {
				t.Errorf("Run returned %v, want %s", err, c.text)
			}
			if c.queue != nil && (c.queue.Len() != 1 || c.queue.ShuttingDown()) {
				t.Error("the queue was touched")
			}
		})
	}
	var none context.Context
	if err := worker.Run(none, newQueue(), handle, options{}); err == nil ||
		err.Error() != "worker: Run without a context" {
		t.Errorf("Run(nil) returned %v", err)
	}
}

func TestRunTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		p := worker.New(q, fine, options{})
		r := run(t, p)
		if err := p.Run(t.Context()); err == nil || err.Error() != "worker: Run was called before on this pool" {
			t.Errorf("the second Run returned %v", err)
		}
		r.endCleanly()
		if err := p.Run(t.Context()); err == nil {
			t.Errorf("the third Run returned %v", err)
		}
	})
}
