package workqueue_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
)

// The tests of this file run outside of bubbles, because a goroutine that waits for a mutex is not at
// rest, and because the race detector is to see goroutines that really run at once. How long they run
// is in stressTime's comment.

// everyLayerStressed runs f for each layer, again and again until the test's time is over.
func everyLayerStressed[T comparable](t *testing.T, f func(*testing.T, builder[T])) {
	t.Helper()
	all := layers[T]()
	for _, l := range all {
		t.Run(l.name, func(t *testing.T) {
			limit := stressTime(t) / time.Duration(len(all))
			rounds := 0
			for began := time.Now(); !t.Failed() && (rounds == 0 || time.Since(began) < limit); rounds++ {
				f(t, l.build)
			}
			t.Log(rounds, "rounds")
		})
	}
}

// Many workers and producers on few keys: no key is held by two workers, and none is lost.
func TestStressExclusivity(t *testing.T) {
	const keys, producers, workers, adds = 5, 3, 4, 300
	everyLayerStressed(t, func(t *testing.T, build builder[int]) {
		q := build(options[int]{})
		var holders [keys]atomic.Int32
		// A worker must come to see each version that was written before an Add.
		var version, seen [keys]atomic.Int64
		var working, producing sync.WaitGroup
		for worker := range workers {
			working.Go(func() {
				for {
					key, err := 0, error(nil)
					if worker%2 == 0 {
						key, err = q.GetContext(context.Background())
					} else if k, shutdown := q.Get(); shutdown {
						err = workqueue.ErrShutDown
					} else {
						key = k
					}
					if err != nil {
						return
					}
					if n := holders[key].Add(1); n != 1 {
						t.Errorf("%d workers hold key %d", n, key)
					}
					seen[key].Store(version[key].Load())
					holders[key].Add(-1)
					q.Done(key)
					if rand.IntN(10) == 0 {
						q.Done(1000) // held by nobody
					}
				}
			})
		}
		for range producers {
			producing.Go(func() {
				for range adds {
					key := rand.IntN(keys)
					version[key].Add(1)
					if d, ok := q.(delayer[int]); ok && rand.IntN(4) == 0 {
						d.AddAfter(key, time.Duration(rand.IntN(2)))
						q.Add(key)
					} else {
						q.Add(key)
					}
				}
			})
		}
		producing.Wait()
		q.ShutDownWithDrain()
		for key := range keys {
			if v, s := version[key].Load(), seen[key].Load(); v != s {
				t.Errorf("key %d: version %d was added, and the last one seen is %d", key, v, s)
			}
		}
		if st := q.Stats(); st.Queued+st.Processing+st.Waiting != 0 {
			t.Errorf("Stats() after a drain = %+v", st)
		}
		working.Wait()
	})
}

// A getter is cancelled at the moment at which a key arrives. Either it has the key, or another getter
// gets it: one that already sleeps and would sleep for ever if the wake-up were lost.
func TestStressCancelRacesWithAdd(t *testing.T) {
	everyLayerStressed(t, func(t *testing.T, build builder[int]) {
		q := build(options[int]{})
		handed := make(chan int, 4)
		var all sync.WaitGroup
		all.Go(func() {
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				q.Done(key)
				handed <- key
			}
		})
		for key := range 100 {
			ctx, cancel := context.WithCancel(context.Background())
			for range 2 {
				all.Go(func() {
					got, err := q.GetContext(ctx)
					if err == nil {
						q.Done(got)
						handed <- got
					} else if err != context.Canceled && err != workqueue.ErrShutDown {
						t.Errorf("GetContext() = %v", err)
					}
				})
			}
			all.Go(cancel)
			q.Add(key)
			select {
			case got := <-handed:
				if got != key {
					t.Errorf("got key %d, want %d", got, key)
				}
			case <-time.After(20 * time.Second):
				t.Errorf("key %d reaches nobody", key)
				q.ShutDown()
				all.Wait()
				return
			}
		}
		q.ShutDown()
		all.Wait()
	})
}

// Several drains, with and without a limit, race with the workers and, in every second round, with
// ShutDown. Every one of them returns, and says what is true.
func TestStressDrain(t *testing.T) {
	everyLayerStressed(t, func(t *testing.T, build builder[int]) {
		q := build(options[int]{})
		for key := range 50 {
			q.Add(key)
			if d, ok := q.(delayer[int]); ok {
				d.AddAfter(100+key, time.Duration(rand.IntN(int(200*time.Microsecond))))
			}
		}
		withShutDown := rand.IntN(2) == 0
		var workers, drainers sync.WaitGroup
		var processed atomic.Int64
		for range 3 {
			workers.Go(func() {
				for {
					key, shutdown := q.Get()
					if shutdown {
						return
					}
					processed.Add(1)
					q.Done(key)
				}
			})
		}
		for i := range 6 {
			drainers.Go(func() {
				switch i % 3 {
				case 0:
					q.ShutDownWithDrain()
				case 1:
					switch err := q.ShutDownContext(context.Background()); {
					case err == nil:
						if st := q.Stats(); st.Queued+st.Processing+st.Waiting != 0 {
							t.Errorf("Stats() after a drain = %+v", st)
						}
					case err != workqueue.ErrShutDown || !withShutDown:
						t.Errorf("ShutDownContext() = %v", err)
					}
				case 2:
					ctx, cancel := context.WithTimeout(context.Background(), 50*time.Microsecond)
					defer cancel()
					for q.ShutDownContext(ctx) != nil {
						ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
						defer cancel()
					}
				}
			})
		}
		if withShutDown {
			drainers.Go(q.ShutDown)
		}
		drainers.Wait()
		workers.Wait()
		st := q.Stats()
		if uint64(processed.Load()) != st.Adds {
			t.Errorf("%d keys processed, of %d added", processed.Load(), st.Adds)
		}
		if n := st.Adds + st.Dropped; n != 50+st.Retries {
			t.Errorf("%d keys added and %d dropped, of %d", st.Adds, st.Dropped, 50+st.Retries)
		}
	})
}

// Everything at once, with metrics: for the race detector, and to see that it ends.
func TestStressEveryMethod(t *testing.T) {
	everyLayerStressed(t, func(t *testing.T, build builder[int]) {
		r := &recorder{}
		q := build(options[int]{name: "q", provider: r})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 200 {
					key := rand.IntN(8)
					switch rand.IntN(6) {
					case 0:
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(100))*time.Microsecond)
						if k, err := q.GetContext(ctx); err == nil {
							q.Done(k)
						}
						cancel()
					case 1:
						q.Stats()
						q.Len()
						q.ShuttingDown()
					case 2:
						if l, ok := q.(workqueue.TypedRateLimitingInterface[int]); ok {
							l.AddRateLimited(key)
							l.NumRequeues(key)
							l.Forget(key)
						}
					case 3:
						if d, ok := q.(delayer[int]); ok {
							d.AddAfter(key, time.Duration(rand.IntN(100))*time.Microsecond)
						}
					default:
						q.Add(key)
					}
				}
			})
		}
		all.Wait()
		all.Go(q.ShutDownWithDrain)
		for {
			key, shutdown := q.Get()
			if shutdown {
				break
			}
			q.Done(key)
		}
		all.Wait()
		if err := workqueue.CheckInvariants[int](q); err != nil {
			t.Error(err)
		}
		r.want(t, "in the end", values{"depth": 0, "unfinished": 0, "longest": 0})
	})
}
