package worker

import (
	"context"
	"testing"

	"github.com/keyedqueue/workqueue"
)

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

// After a time in which very many keys have failed, nothing of them is kept.
func TestFailuresGiveMemoryBack(t *testing.T) {
	var f failures[int]
	for key := range 10 {
		f.count(key)
	}
	for key := range 10 {
		if f.of(key) != 1 {
			t.Error("forgotten too early")
		}
		f.forget(key)
	}
	if f.counts != nil || f.keys.Load() != 0 {
		t.Errorf("kept: %v", f.counts)
	}
}
