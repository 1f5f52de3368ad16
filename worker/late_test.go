package worker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/keyedqueue/workqueue"
)

// A worker that gets a key just before Run looks which handlers are running must not start it after that
// look, because Run would not report it. The moment cannot be hit from outside.
func TestKeyThatIsGotTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		q.Add("a")
		q.Add("b")
		p := New(q, func(context.Context, string) error {
			t.Error("started")
			return nil
		}, Options[string]{})
		p.closed.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { result <- p.Run(ctx) }()
		synctest.Wait()
		cancel()
		var left *ShutdownError[string]
		if err := <-result; !errors.As(err, &left) || !slices.Equal(left.NotStarted, []string{"a", "b"}) {
			t.Errorf("Run returned %v", err)
		}
		if st := q.(workqueue.Extended[string]).Stats(); st.Processing != 0 || st.Queued != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// Once Run has returned there are no workers any more, whatever SetWorkers says.
func TestNoWorkersAfterTheEnd(t *testing.T) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	p := New(q, func(context.Context, string) error { return nil }, Options[string]{})
	p.Stop(All)
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.SetWorkers(3); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.workers) != 0 {
		t.Errorf("%d workers", len(p.workers))
	}
}
