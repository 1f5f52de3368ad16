package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
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
	if len(p.mu.workers) != 0 {
		t.Errorf("%d workers", len(p.mu.workers))
	}
}

// The last errors are bounded in number, and the text of each is bounded.
func TestRecentIsBounded(t *testing.T) {
	r := recent[int]{max: 3}
	for _, key := range []int{1, 2, 3, 4, 3} {
		r.put(FailedKey[int]{Key: key})
	}
	var keys []int
	for _, f := range r.newest(10) {
		keys = append(keys, f.Key)
	}
	if !slices.Equal(keys, []int{3, 4, 2}) || len(r.byKey) != 3 || len(r.newest(2)) != 2 || len(r.newest(-1)) != 0 {
		t.Errorf("kept %v", keys)
	}
	for _, most := range []int{-1, 0} {
		none := recent[int]{max: most}
		none.put(FailedKey[int]{Key: 1})
		if len(none.newest(10)) != 0 {
			t.Errorf("kept one of %d", most)
		}
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestErrorText(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("short"), "short"},
		{errors.New(long), long[:1024]},
		{errors.New(long[:1024]), long[:1024]},
		{errors.New("x" + long), "x" + long[:1022]},
		{(*nilError)(nil), "<nil>"},
	} {
		if got := errorText(c.err); got != c.want {
			t.Errorf("%d bytes, want %d: %s", len(got), len(c.want), got)
		}
	}
}

// An error that is a nil pointer asks for nothing.
func TestNilPointersAreNoRequests(t *testing.T) {
	if r, ok := as[Requeue](error((*Requeue)(nil))); ok {
		t.Errorf("a nil *Requeue is %+v", r)
	}
	if r, ok := as[RequeueAfterError](error((*RequeueAfterError)(nil))); ok {
		t.Errorf("a nil *RequeueAfterError is %+v", r)
	}
}

func TestFewKeysAreNamed(t *testing.T) {
	keys := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	for n, want := range map[int]string{2: "1, 2", 10: "1, 2, 3, 4, 5, 6, 7, 8, 9, 10", 11: "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"} {
		if got := few(keys[:n]); got != want {
			t.Errorf("%d keys are %q, want %q", n, got, want)
		}
	}
}
