package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// recordingQueue keeps what is given up.
type recordingQueue struct {
	workqueue.TypedRateLimitingInterface[string]
	events chan string
}

func (q recordingQueue) Forget(key string) {
	q.TypedRateLimitingInterface.Forget(key)
	q.events <- "forget " + key
}

func (q recordingQueue) GiveUp(key string, attempts int, err error) {
	q.events <- fmt.Sprint("give up ", key, " after ", attempts, ": ", err)
}

func (q recordingQueue) Done(key string) {
	q.events <- "done " + key
	q.TypedRateLimitingInterface.Done(key)
}

// A queue that records what is given up hears of each key that is dropped, between Forget and Done.
func TestGiveUpRecorder(t *testing.T) {
	q := recordingQueue{
		workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](1, 1)), make(chan string, 10),
	}
	q.Add("x")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Run(ctx, q, func(context.Context, string) error { return errors.New("declined") }, worker.Options[string]{MaxRetries: 1})
	}()
	for _, want := range []string{"done x", "forget x", "give up x after 2: declined", "done x"} {
		if got := <-q.events; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
