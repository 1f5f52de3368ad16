package controllerruntime_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientgo "k8s.io/client-go/util/workqueue"

	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/foreign"
	"github.com/keyedqueue/workqueue/worker"
)

// A controller's queue drops what is queued when it is shut down. A pool on it loses no key unseen: the queue
// returns the keys, and Left has them. (Package foreign has controller-runtime's own.)
func TestPoolOnAQueueThatDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := foreign.RateLimiting(controllerruntime.NewTypedQueue("",
			clientgo.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour)))
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			q.Add(key)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var handled []string
		var logs bytes.Buffer
		p := worker.New(q, func(_ context.Context, key string) error {
			if handled = append(handled, key); len(handled) == 1 {
				q.Add(key)
				cancel()
				time.Sleep(time.Second) // The queue is shut down meanwhile.
			}
			return nil
		}, worker.Options[string]{Drain: worker.All, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		if len(handled) != 1 || p.Left().String() != "5 queued and not started: b, c, d, e, a" ||
			q.Stats().Dropped != 5 {
			t.Errorf("%q were handled, %v is left, %d were dropped", handled, p.Left(), q.Stats().Dropped)
		}
		if !strings.Contains(logs.String(), "Keys are left undone") {
			t.Errorf("logged: %s", logs.String())
		}
	})
}

// DropQueued returns each key that ShutDown has dropped once, and nothing before it.
func TestDropQueuedAfterShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := clientgo.DefaultTypedControllerRateLimiter[string]()
		q := controllerruntime.NewTypedQueue("", limiter).(*controllerruntime.Queue[string])
		q.Add("a")
		q.AddWithPriority("b", 1, 0)
		if keys := q.DropQueued(); keys != nil || q.Len() != 2 {
			t.Errorf("before the shutdown: %q", keys)
		}
		q.ShutDown()
		q.ShutDown()
		if keys := q.DropQueued(); !slices.Equal(keys, []string{"b", "a"}) {
			t.Errorf("%q", keys)
		}
		if keys := q.DropQueued(); len(keys) != 0 {
			t.Errorf("%q, again", keys)
		}
	})
}
