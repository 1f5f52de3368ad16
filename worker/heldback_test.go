package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Run returns in time whatever the queue holds back: here the keys of a group that is at its limit, because a
// handler does not return.
func TestQueueThatHoldsKeysBack(t *testing.T) {
	for _, drain := range []worker.Drain{worker.Running, worker.All, worker.Nothing} {
		for name, hide := range map[string]func(q stringQueue) stringQueue{
			"extended": func(q stringQueue) stringQueue { return q },
			"plain":    func(q stringQueue) stringQueue { return plain{q} },
		} {
			t.Run(fmt.Sprint(name, " drain=", drain), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newPriorityQueue(priorityqueue.Config[string]{
						Group: func(key string) string { return key[:1] },
						Limit: func(string) int { return 1 },
					})
					for _, key := range []string{"a1", "a2", "a3"} {
						q.Add(key)
					}
					p := worker.New(hide(q), func(context.Context, string) error {
						time.Sleep(time.Hour)
						return nil
					}, options{Workers: 2, Drain: drain, DrainTimeout: 10 * time.Second, CancelGrace: 5 * time.Second})
					r := run(t, p)
					r.cancel()
					end := 15 * time.Second
					if drain == worker.Nothing {
						end = 5 * time.Second
					}
					r.after(end + 100*time.Millisecond)
					e := left(t, r.returned())
					if !slices.Equal(e.Unfinished, []string{"a1"}) || name == "extended" && !slices.Equal(e.NotStarted, []string{"a2", "a3"}) {
						t.Errorf("left: %+v", e)
					}
					// They are taken out when they can be.
					r.after(2 * time.Hour)
					wantMatchedDones(t, q)
				})
			})
		}
	}
}

// The keys of many groups are all reported although some are held back.
func TestSomeKeysAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{
			Group: func(key string) string { return key[:1] },
			Limit: func(string) int { return 1 },
		})
		for _, key := range []string{"a1", "a2", "b1", "b2", "c1"} {
			q.Add(key)
		}
		r := run(t, worker.New(q, func(context.Context, string) error {
			time.Sleep(time.Hour)
			return nil
		}, options{Drain: worker.Nothing, CancelGrace: worker.NoGrace}))
		r.cancel()
		r.after(100 * time.Millisecond)
		e := left(t, r.returned())
		slices.Sort(e.NotStarted)
		if !slices.Equal(e.Unfinished, []string{"a1"}) || !slices.Equal(e.NotStarted, []string{"a2", "b1", "b2", "c1"}) {
			t.Errorf("left: %+v", e)
		}
		r.after(time.Hour)
		wantMatchedDones(t, q)
	})
}

// heldBack returns a queue that holds back all keys but one as long as that is held, and a pool over what wrap makes of
// it, with a handler that returns when release is closed.
func heldBack(n int, wrap func(*priorityqueue.Queue[string]) stringQueue) (p *worker.Pool[string], release chan struct{}) {
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

// hooked is a queue that calls a function before its Snapshot.
type hooked struct {
	*priorityqueue.Queue[string]
	beforeSnapshot func()
}

func (q hooked) Snapshot(limit int) workqueue.Snapshot[string] {
	q.beforeSnapshot()
	return q.Queue.Snapshot(limit)
}

// A key that was held back comes free while Left is put together. It was in neither what the queue had handed out
// before nor what the queue held back afterwards.
func TestLeftHasAKeyThatComesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q stringQueue
		var release chan struct{}
		p, release := heldBack(3, func(inner *priorityqueue.Queue[string]) stringQueue {
			q = hooked{inner, sync.OnceFunc(func() {
				close(release)
				synctest.Wait()
			})}
			return q
		})
		r := run(t, p)
		r.cancel()
		r.after(time.Second)
		if e := left(t, r.returned()); !slices.Equal(e.Unfinished, []string{"0000"}) || !slices.Equal(e.NotStarted, []string{"0001", "0002"}) {
			t.Errorf("left: %+v", e)
		}
		wantMatchedDones(t, q)
	})
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
		e := left(t, r.returned())
		if len(e.NotStarted) != 49 || !slices.Equal(e.NotStarted[:3], []string{"0001", "0002", "0003"}) {
			t.Errorf("left: %v", e.NotStarted)
		}
		close(release)
	})
}
