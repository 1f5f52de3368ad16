package worker_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// slowDones is a queue whose Done takes a second.
type slowDones struct{ extended }

func (q slowDones) Done(key string) {
	time.Sleep(time.Second)
	q.extended.Done(key)
}

// A key was added while it is on hold, and the Done of its hold takes long. By then all workers have found
// the queue shut down and empty. The key is handled nevertheless.
func TestSlowDoneOfAHoldAtTheEnd(t *testing.T) {
	for _, byOthers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q, calls := slowDones{newQueue()}, 0
			p := worker.New(q, func(ctx context.Context, key string) error {
				if calls++; calls == 1 {
					worker.CallOf(ctx).Hold("it is ready", time.Hour)
				}
				return nil
			}, options{Workers: 3})
			r := run(t, p)
			q.Add("a")
			synctest.Wait()
			q.Add("a")
			if byOthers {
				q.ShutDown()
			} else {
				p.Stop(worker.All)
			}
			r.after(2 * time.Second) // The Dones of the hold and of the second call.
			r.returnedLeaving("nothing")
			if calls != 2 {
				t.Errorf("%d calls", calls)
			}
			wantMatchedDones(t, q.extended)
		})
	}
}

// Drain All ends a hold that takes the only place of its group.
func TestDrainAllWithAHoldInAFullGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{
			Group: func(string) string { return "all" }, Limit: func(string) int { return 1 },
		})
		p := worker.New(q, func(ctx context.Context, key string) error {
			if key == "holds" {
				worker.CallOf(ctx).Hold("it is ready", time.Hour)
			}
			return nil
		}, options{Workers: 2, DrainTimeout: time.Minute})
		r := run(t, p)
		addAll(q, "holds waits")
		r.after(time.Second)
		if st := p.Stats(); st.Handled != 1 {
			t.Errorf("%d calls", st.Handled)
		}
		p.Stop(worker.All)
		r.returnedLeaving("nothing")
		if st := p.Stats(); st.Handled != 2 {
			t.Errorf("%d calls", st.Handled)
		}
	})
}

// A pool that ends hands back a key that it has interrupted. Another pool on the same queue handles it, with
// the failures that it had.
func TestAnotherPoolGetsWhatIsHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		first := run(t, worker.New(q, func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}, options{Drain: worker.Nothing, KeepQueue: true}))
		q.Add("a")
		synctest.Wait()
		var attempts []int
		second := worker.New(q, func(ctx context.Context, _ string) error {
			attempts = append(attempts, worker.CallOf(ctx).Attempt())
			return nil
		}, options{})
		r := run(t, second)
		first.endCleanly()
		synctest.Wait()
		if len(attempts) != 1 || attempts[0] != 1 {
			t.Errorf("attempts %v", attempts)
		}
		r.endCleanly()
		wantMatchedDones(t, q)
	})
}

// Release ends a hold, no matter how many releases were not called.
func TestReleaseOfAHoldThatWasArrangedTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var releases []func()
		p := worker.New(q, func(ctx context.Context, _ string) error {
			call := worker.CallOf(ctx)
			releases = []func(){call.Hold("one", time.Hour), call.Hold("two", time.Hour)}
			return nil
		}, options{})
		r := run(t, p)
		q.Add("a")
		synctest.Wait()
		if !p.Release("a") || p.Release("a") || held(q) != 0 {
			t.Errorf("%d keys are held after Release", held(q))
		}
		releases[0]()
		releases[1]()
		wantMatchedDones(t, q)
		r.endCleanly()
	})
}

// At its end the pool asks the server before it waits for a List that ignores its context.
func TestSettleBeforeAListThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		settle := func(ctx context.Context) ([]string, error) { return []string{"a"}, ctx.Err() }
		q := answeringQueue{leasedQueue{leasing.UnimplementedLeaser[string]{}, newQueue(), &j, nil}, settle}
		logger, logs := newLogger()
		end := make(chan struct{})
		r := run(t, worker.New(q, fine, options{Logger: logger, List: func(context.Context) (iter.Seq[string], error) {
			<-end
			return nil, nil
		}}))
		r.endLeaving("1 still running: a")
		if strings.Contains(logs.String(), "may not know") {
			t.Error(logs)
		}
		close(end)
	})
}

// badBounds is a provider whose buckets are in no order.
type badBounds struct{ workqueue.MetricsProvider }

func (badBounds) InspectPool(string, worker.Inspector) {}
func (badBounds) PoolHistogramBounds() []float64       { return []float64{2, 1} }

// Buckets without an order are not used, which is logged.
func TestBadBuckets(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		logger, logs := newLogger()
		p := worker.New(q, fine, options{Logger: logger, MetricsProvider: badBounds{}})
		q.Add("a")
		run(t, p).endCleanly()
		if d := p.Stats().Durations; d.Count() != 1 || len(d.Bounds) < 3 ||
			!strings.Contains(logs.String(), "PoolHistogramBounds of the provider are not used") {
			t.Errorf("%+v\n%s", d, logs)
		}
	})
}
