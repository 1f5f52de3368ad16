package worker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// recordingQueue keeps what is given up.
type recordingQueue struct {
	stringQueue
	j *journal
}

func (q recordingQueue) Forget(key string) { q.stringQueue.Forget(key); q.j.add("forget " + key) }
func (q recordingQueue) Done(key string)   { q.j.add("done " + key); q.stringQueue.Done(key) }
func (q recordingQueue) NumRequeuesContext(_ context.Context, key string) (int, time.Duration, error) {
	return q.NumRequeues(key), 0, nil
}
func (q recordingQueue) GiveUp(key string, attempts int, err error) {
	q.j.add(fmt.Sprint("give up ", key, " after ", attempts, ": ", err))
}

// A queue that records what is given up hears of each key that is given up, between Forget and Done.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		q := recordingQueue{newQueue(), &j}
		q.Add("x")
		r := run(t, worker.New(q, broken, options{MaxRetries: 1}))
		r.after(time.Minute)
		equal(t, "calls", j.take(), "done x", "forget x", "give up x after 2: broken", "done x")
		r.endCleanly()
	})
}
