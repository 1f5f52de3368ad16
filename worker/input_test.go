package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

func TestBadInput(t *testing.T) {
	handle := func(context.Context, string) error { return nil }
	ended, cancel := context.WithCancel(t.Context())
	cancel() // A Run that accepts bad input ends at once.
	for _, c := range []struct {
		name    string
		queue   stringQueue
		handler handler
		options options
		text    string
	}{
		{"nil handler", newQueue(), nil, options{}, "worker: the handler is nil"},
		{"nil queue", nil, handle, options{}, "worker: the queue is nil"},
		{"workers", newQueue(), handle, options{Workers: -1}, "worker: Options.Workers is negative: -1"},
		{"retries", newQueue(), handle, options{MaxRetries: -2}, "worker: Options.MaxRetries is negative: -2"},
		{"drain timeout", newQueue(), handle, options{DrainTimeout: -time.Second}, "worker: Options.DrainTimeout is negative: -1s"},
		{"nearly NoGrace", newQueue(), handle, options{CancelGrace: -2}, "worker: Options.CancelGrace is negative: -2ns"},
		{"handler timeout", newQueue(), handle, options{HandlerTimeout: -1}, "worker: Options.HandlerTimeout is negative: -1ns"},
		{"stuck after", newQueue(), handle, options{StuckAfter: -1}, "worker: Options.StuckAfter is negative: -1ns"},
		{"drain", newQueue(), handle, options{Drain: 7}, "worker: Options.Drain is none of Running, All and Nothing: 7"},
		{"drain of a queue to keep", newQueue(), handle, options{Drain: worker.All, KeepQueue: true}, "worker: Options.Drain is All, which shuts the queue down, and KeepQueue forbids that"},
		{"plain queue to keep", plain{newQueue()}, handle, options{KeepQueue: true}, "worker: Options.KeepQueue needs a queue that is Extended: a Get that is given up would keep its key"},
		{"several", nil, nil, options{Workers: -1}, "worker: Options.Workers is negative: -1\nworker: the handler is nil\nworker: the queue is nil"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.queue != nil {
				c.queue.Add("a")
			}
			err := worker.Run(ended, c.queue, c.handler, c.options)
			if err == nil || err.Error() != c.text {
				t.Errorf("Run returned %v, want %s", err, c.text)
			}
			if c.queue != nil && (c.queue.Len() != 1 || c.queue.ShuttingDown()) {
				t.Error("the queue was touched")
			}
		})
	}
	var none context.Context
	if err := worker.Run(none, newQueue(), handle, options{}); err == nil || err.Error() != "worker: Run without a context" {
		t.Errorf("Run(nil) returned %v", err)
	}
}

func TestRunTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		p := worker.New(q, func(context.Context, string) error { return nil }, options{})
		r := run(t, p)
		if err := p.Run(t.Context()); err == nil || err.Error() != "worker: Run was called before on this pool" {
			t.Errorf("the second Run returned %v", err)
		}
		r.endCleanly()
		if err := p.Run(t.Context()); err == nil {
			t.Errorf("the third Run returned %v", err)
		}
	})
}
