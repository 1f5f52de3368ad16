package handlertest_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

var perturbable = map[string]func() workqueue.TypedRateLimitingInterface[string]{
	"workqueue": func() workqueue.TypedRateLimitingInterface[string] {
		return workqueue.NewTypedRateLimitingQueue[string](nil)
	},
	"plain": func() workqueue.TypedRateLimitingInterface[string] {
		return plain{workqueue.NewTypedRateLimitingQueue[string](nil)}
	},
	"priorityqueue": func() workqueue.TypedRateLimitingInterface[string] {
		return priorityqueue.New[string](priorityqueue.Config[string]{})
	},
}

// The queue comes with everything that its contract allows, and loses nothing: after the last add of a key
// its handler is called.
func TestPerturb(t *testing.T) {
	for name, queue := range perturbable {
		t.Run(name, func(t *testing.T) {
			orders := make(map[string]bool)
			repeats, lost := 0, 0
			for seed := range uint64(40) {
				synctest.Test(t, func(t *testing.T) {
					q := handlertest.Perturb(queue(), seed, handlertest.Late, handlertest.Again, handlertest.Leases)
					var mu sync.Mutex
					called, added := make(map[string]time.Time), make(map[string]time.Time)
					order, calls := "", 0
					handler := func(ctx context.Context, key string) error {
						mu.Lock()
						called[key] = time.Now()
						order += key
						calls++
						mu.Unlock()
						select {
						case <-time.After(20 * time.Millisecond):
						case <-ctx.Done():
						}
						if context.Cause(ctx) == handlertest.ErrLeaseEnded {
							mu.Lock()
							lost++
							mu.Unlock()
						}
						return nil
					}
					ctx, stop := context.WithCancel(t.Context())
					ended := testkit.Start(func() error {
						return worker.Run(ctx, q, handler, worker.Options[string]{Workers: 3})
					})
					for i := range 20 {
						key := fmt.Sprint(i % 5)
						mu.Lock()
						added[key] = time.Now()
						mu.Unlock()
						q.Add(key)
						time.Sleep(3 * time.Millisecond)
					}
					time.Sleep(30 * time.Second)
					mu.Lock()
					for key, at := range added {
						if called[key].Before(at) {
							t.Errorf("seed %d: no call of %s after its last add", seed, key)
						}
					}
					orders[order] = true
					if calls > 20 {
						repeats++
					}
					mu.Unlock()
					stop()
					if err := ended.MustReturn(t, "Run"); err != nil {
						t.Error(err)
					}
				})
			}
			if len(orders) < 15 || repeats == 0 || lost == 0 {
				t.Errorf("%d orders, %d runs with more calls than adds, %d leases that ended", len(orders), repeats, lost)
			}
		})
	}
}

// Two runs of one seed are the same.
func TestPerturbSeed(t *testing.T) {
	story := func(seed uint64) (text string) {
		synctest.Test(t, func(*testing.T) {
			q := handlertest.Perturb(perturbable["workqueue"](), seed)
			began := time.Now()
			go func() {
				for {
					key, shutdown := q.Get()
					if shutdown {
						return
					}
					text += fmt.Sprint(key, time.Since(began), " ")
					time.Sleep(7007 * time.Microsecond)
					q.Done(key)
				}
			}()
			for i := range 30 {
				q.Add(fmt.Sprint(i % 7))
				time.Sleep(1013 * time.Microsecond) // Nothing else happens at these moments.
			}
			time.Sleep(time.Minute)
			q.ShutDown()
			synctest.Wait()
		})
		return text
	}
	different := make(map[string]bool)
	for seed := range uint64(20) {
		first := story(seed)
		if second := story(seed); first != second {
			t.Errorf("seed %d:\n%s\n%s", seed, first, second)
		}
		different[first] = true
	}
	if len(different) < 10 {
		t.Errorf("20 seeds have only %d stories", len(different))
	}
}

// A shutdown loses no add that is late.
func TestPerturbShutDown(t *testing.T) {
	for name, queue := range perturbable {
		for seed := range uint64(20) {
			synctest.Test(t, func(*testing.T) {
				q := handlertest.Perturb(queue(), seed, handlertest.Late)
				for i := range 10 {
					q.Add(fmt.Sprint(i))
				}
				q.ShutDown()
				n := 0
				for {
					key, shutdown := q.Get()
					if shutdown {
						break
					}
					q.Done(key)
					n++
				}
				if n != 10 {
					t.Errorf("%s, seed %d: %d keys after shutdown, want 10", name, seed, n)
				}
			})
		}
	}
}

// When a lease ends, another worker gets the key, and the Done of the first one gives nothing back that the
// second one holds.
func TestPerturbLease(t *testing.T) {
	ended := 0
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			q := handlertest.Perturb(perturbable["workqueue"](), seed, handlertest.Leases)
			leaser := q.(leasing.Leaser[string])
			q.Add("a")
			key, _ := q.Get()
			ctx, release := leaser.Lease(context.Background(), key)
			time.Sleep(time.Minute)
			if ctx.Err() == nil {
				if q.Len() != 0 {
					t.Errorf("seed %d: the key was handed out twice, and its lease has not ended", seed)
				}
				release()
				q.Done(key)
				return
			}
			ended++
			if context.Cause(ctx) != handlertest.ErrLeaseEnded {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			again, _ := q.Get()
			_, releaseAgain := leaser.Lease(context.Background(), again)
			release()
			q.Done(key)
			q.Add("a")
			if q.Len() != 0 {
				t.Errorf("seed %d: a late Done has given the key back while another worker has it", seed)
			}
			releaseAgain()
			q.Done(again)
			if q.Len() != 1 {
				t.Errorf("seed %d: the key, which was added while it was held, is not handed out again", seed)
			}
			q.ShutDown()
			time.Sleep(time.Minute)
		})
	}
	if ended == 0 {
		t.Error("no lease has ended")
	}
}

// A handler whose lease has ended asks for a hold: the hold ends at once, because another worker has the key.
func TestPerturbHoldAfterTheLease(t *testing.T) {
	ended := 0
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			q := handlertest.Perturb(perturbable["workqueue"](), seed, handlertest.Leases)
			var calls atomic.Int32
			var lost atomic.Bool
			pool := worker.New(q, func(ctx context.Context, _ string) error {
				if calls.Add(1) > 1 {
					return nil
				}
				select {
				case <-ctx.Done():
					lost.Store(true)
				case <-time.After(20 * time.Second):
					return nil
				}
				time.Sleep(time.Millisecond) // Another worker gets the key.
				worker.CallOf(ctx).Hold("something", time.Hour)
				return worker.RequeueAfter(0)
			}, worker.Options[string]{Workers: 2, Logger: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- pool.Run(ctx) }()
			q.Add("a")
			time.Sleep(time.Minute)
			before := calls.Load()
			q.Add("a")
			time.Sleep(time.Minute)
			if lost.Load() {
				ended++
				if calls.Load() == before || pool.Stats().OnHold > 0 {
					t.Errorf("seed %d: %d calls after an add, and %d keys on hold", seed, calls.Load()-before,
						pool.Stats().OnHold)
				}
			}
			cancel()
			<-done
		})
	}
	if ended == 0 {
		t.Error("no lease has ended")
	}
}

func TestPerturbBadInput(t *testing.T) {
	q := perturbable["workqueue"]()
	testkit.WantPanic(t, "Perturb", func() { handlertest.Perturb(q, 1, 8) }, "unknown Fault: 8")
	testkit.WantPanic(t, "Perturb", func() { handlertest.Perturb(q, 1, 0) }, "unknown Fault: 0")
	if _, leases := handlertest.Perturb(q, 1).(leasing.Leaser[string]); leases {
		t.Error("without Leases, the queue is a Leaser")
	}
}
