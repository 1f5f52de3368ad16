package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Run returns in time although the queue holds keys back: here the keys of a group that is at its limit,
// because a handler does not return. They are all reported, if the queue can show them, and taken out when
// they can be.
func TestQueueThatHoldsKeysBack(t *testing.T) {
	for _, c := range []struct {
		keys  string
		o     options
		after time.Duration
		left  string // what is queued and not started
	}{
		{"a1 a2 a3", options{Workers: 2, Drain: worker.Running}, 15 * time.Second, "a2 a3"},
		{"a1 a2 a3", options{Workers: 2, Drain: worker.All}, 15 * time.Second, "a2 a3"},
		{"a1 a2 a3", options{Workers: 2, Drain: worker.Nothing}, 5 * time.Second, "a2 a3"},
		{"a1 a2 b1 b2 c1", options{Drain: worker.Nothing, CancelGrace: worker.NoGrace}, 0, "a2 b1 b2 c1"},
	} {
		t.Run(fmt.Sprint(c.keys, " drain=", c.o.Drain), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newPriorityQueue(priorityqueue.Config[string]{
					Group: func(key string) string { return key[:1] },
					Limit: func(string) int { return 1 },
				})
				addAll(q, c.keys)
				o := c.o
				o.DrainTimeout, o.CancelGrace = 10*time.Second, cmp.Or(o.CancelGrace, 5*time.Second)
				p := worker.New(q, func(context.Context, string) error { time.Sleep(time.Hour); return nil }, o)
				r := run(t, p)
				r.cancel()
				r.after(c.after + 100*time.Millisecond)
				_ = r.returned()
				equal(t, "unfinished", p.Left().Unfinished, "a1")
				equal(t, "not started", slices.Sorted(slices.Values(p.Left().NotStarted)), strings.Fields(c.left)...)
				r.after(2 * time.Hour)
				wantMatchedDones(t, q)
			})
		})
	}
}

// heldBack returns a queue that holds back all keys but one as long as that is held, and a pool over what
// wrap makes of it, with a handler that returns when release is closed.
func heldBack(n int, wrap func(*priorityqueue.Queue[string]) stringQueue) (p *worker.Pool[string],
	release chan struct{}) {
	q := newPriorityQueue(priorityqueue.Config[string]{
		Group: func(string) string { return "" },
		Limit: func(string) int { return 1 },
	})
	for i := range n {
		q.Add(fmt.Sprintf("%04d", i))
	}
	release = make(chan struct{})
	return worker.New(wrap(q), func(context.Context, string) error {
		<-release
		return nil
	}, options{Drain: worker.Nothing, CancelGrace: worker.NoGrace}), release
}

// fewAtATime is a queue whose Snapshot has at most three keys.
type fewAtATime struct{ *priorityqueue.Queue[string] }

func (q fewAtATime) Snapshot(limit int) workqueue.Snapshot[string] {
	return q.Queue.Snapshot(min(limit, 3))
}

// However many keys are held back, and however few a Snapshot has, they are all left.
func TestLeftHasAllKeysHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, release := heldBack(50, func(q *priorityqueue.Queue[string]) stringQueue { return fewAtATime{q} })
		r := run(t, p)
		r.cancel()
		r.after(time.Second)
		_ = r.returned()
		if e := p.Left(); len(e.NotStarted) != 49 || !slices.Equal(e.NotStarted[:3],
			[]string{"0001", "0002", "0003"}) {
			t.Errorf("left: %v", e.NotStarted)
		}
		close(release)
	})
}
