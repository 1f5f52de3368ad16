package worker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// lateQueue hands out a key when the context has just ended, which GetContext may.
type lateQueue struct{ extended }

func (q lateQueue) GetContext(ctx context.Context) (string, error) {
	if q.ShuttingDown() || ctx.Err() != nil {
		return q.extended.GetContext(ctx)
	}
	<-ctx.Done()
	return q.extended.GetContext(context.WithoutCancel(ctx))
}

// A key that is got while the context ends may have been added after that. It is not started.
func TestKeyThatIsGotTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		for _, key := range []string{"a", "b", "c"} {
			q.Add(key)
		}
		var j journal
		r := run(t, worker.New(lateQueue{q}, sleeper(&j), options{Workers: 2}))
		r.cancel()
		e := left(t, r.returned())
		slices.Sort(e.NotStarted)
		if !slices.Equal(e.NotStarted, []string{"a", "b", "c"}) || j.take() != nil {
			t.Errorf("left: %+v", e)
		}
		wantMatchedDones(t, q)
	})
}

// slowGet takes a second to return a key that it has taken out of the queue when the context has just ended.
type slowGet struct{ lateQueue }

func (q slowGet) GetContext(ctx context.Context) (string, error) {
	down := q.ShuttingDown()
	key, err := q.lateQueue.GetContext(ctx)
	if !down && err == nil {
		time.Sleep(time.Second)
	}
	return key, err
}

// Run waits for a worker that has a key in hand, to report it.
func TestKeyThatTakesLongToGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Add("a")
		q.Add("b")
		r := run(t, worker.New(slowGet{lateQueue{q}}, sleeper(new(journal)), options{Drain: worker.Nothing, CancelGrace: worker.NoGrace}))
		r.cancel()
		r.after(time.Second)
		if e := left(t, r.returned()); !slices.Equal(e.NotStarted, []string{"a", "b"}) {
			t.Errorf("left: %+v", e)
		}
		wantMatchedDones(t, q)
	})
}
