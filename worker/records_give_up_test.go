package worker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// recordingQueue notes the calls of three methods.
type recordingQueue struct {
	extended
	j *journal
}

func (q recordingQueue) Forget(key string) { q.extended.Forget(key); q.j.add("forget " + key) }
func (q recordingQueue) Done(key string)   { q.j.add("done " + key); q.extended.Done(key) }
func (q recordingQueue) Fail(ctx context.Context, key string, f workqueue.Failure) (workqueue.Retry, error) {
	r, err := q.extended.Fail(ctx, key, f)
	q.j.add(fmt.Sprint("fail ", key, " ", r.Attempt, " ", r.GivenUp, ": ", f.Err))
	return r, err
}

// The queue hears of each failure once, before Done, and of nothing else: it forgets by itself what it gives
// up.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		q := recordingQueue{newQueue(), &j}
		q.Add("x")
		r := run(t, worker.New(q, broken, options{MaxRetries: 1}))
		r.after(time.Minute)
		equal(t, "calls", j.take(), "fail x 1 false: broken", "done x", "fail x 2 true: broken", "done x")
		r.endCleanly()
	})
}
