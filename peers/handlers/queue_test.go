package handlers

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	clientgo "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

func clientGoQueue() workqueue.TypedRateLimitingInterface[string] {
	return clientgo.NewTypedRateLimitingQueue(clientgo.NewTypedItemExponentialFailureRateLimiter[string](
		5*time.Millisecond, time.Minute))
}

// Over client-go's own queue, keys come in other orders, more often than they were added, and after a lease
// has ended, and none is lost.
func TestPerturbClientGo(t *testing.T) {
	orders, repeats, ended := make(map[string]bool), 0, 0
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			q := handlertest.Perturb(clientGoQueue(), seed, handlertest.Late, handlertest.Again, handlertest.Leases)
			ctx, stop := context.WithCancel(t.Context())
			order, calls := "", 0
			called, added := make(map[string]time.Time), make(map[string]time.Time)
			go func() {
				// One worker, which shares what it notes with the test: the other goroutine sleeps meanwhile.
				_ = worker.Run(ctx, q, func(ctx context.Context, key string) error {
					called[key] = time.Now()
					order += key
					calls++
					select {
					case <-time.After(7007 * time.Microsecond):
					case <-ctx.Done():
						if context.Cause(ctx) == handlertest.ErrLeaseEnded {
							ended++
						}
					}
					return nil
				}, worker.Options[string]{Workers: 1, Drain: worker.Nothing})
			}()
			for i := range 20 {
				key := fmt.Sprint(i % 5)
				q.Add(key)
				added[key] = time.Now()
				time.Sleep(3001 * time.Microsecond)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			for key, at := range added {
				if called[key].Before(at) {
					t.Errorf("seed %d: no call of %s after its last add", seed, key)
				}
			}
			orders[order] = true
			if calls > 20 {
				repeats++
			}
			stop()
		})
	}
	if len(orders) < 15 || repeats == 0 || ended == 0 {
		t.Errorf("%d orders, %d runs with more calls than adds, %d leases that ended", len(orders), repeats, ended)
	}
}

// A scenario may run over client-go's queue.
func TestClientGoInScenario(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared=", shared), func(t *testing.T) {
			handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
				apps := handlertest.NewWorld[string, int](s, "apps", nil)
				for i := range 3 {
					apps.Set(fmt.Sprint("app-", i), i)
				}
				s.Queue, s.Shared, s.Settle = clientGoQueue, shared, 30*time.Second
				s.Start = func(p *handlertest.Process) worker.Handler[string] {
					client := apps.Client(p)
					return func(ctx context.Context, key string) error {
						app, err := client.Get(ctx, key)
						if err != nil || app.Value >= 100 {
							return err
						}
						app.Value += 100
						_, err = client.Update(ctx, app)
						return err
					}
				}
			})
		})
	}
}
