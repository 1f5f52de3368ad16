package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// TestPhases stops a pool with two keys that take 10 s each, before Run and a second after it has begun.
// After each Stop it asks for two workers instead of one.
func TestPhases(t *testing.T) {
	const running, all, nothing = worker.Running, worker.All, worker.Nothing
	type drains = []worker.Drain
	for _, c := range []struct {
		before, during drains
		at             time.Duration // when Run returns
		left           string
	}{
		{drains{running}, nil, 0, "2 queued and not started: a, b"},
		{drains{all}, nil, 10 * time.Second, "nothing"},
		{drains{nothing}, nil, 0, "2 queued and not started: a, b"},
		{drains{running, running}, nil, 0, "2 queued and not started: a, b"},
		{drains{running, all}, nil, 0, "2 queued and not started: a, b"},
		{drains{running, nothing}, nil, 0, "2 queued and not started: a, b"},
		{drains{all, running}, nil, 0, "2 queued and not started: a, b"},
		{drains{all, all}, nil, 10 * time.Second, "nothing"},
		{drains{all, nothing}, nil, 0, "2 queued and not started: a, b"},
		{drains{nothing, running}, nil, 0, "2 queued and not started: a, b"},
		{drains{nothing, all}, nil, 0, "2 queued and not started: a, b"},
		{drains{nothing, nothing}, nil, 0, "2 queued and not started: a, b"},

		{drains{all}, drains{running}, 10 * time.Second, "nothing"},
		{drains{all}, drains{all}, 10 * time.Second, "nothing"},
		{drains{all}, drains{nothing}, time.Second, "2 still running: a, b"},

		{nil, drains{running}, 10 * time.Second, "1 queued and not started: b"},
		{nil, drains{all}, 11 * time.Second, "nothing"},
		{nil, drains{nothing}, time.Second, "1 still running: a; 1 queued and not started: b"},
		{nil, drains{running, running}, 10 * time.Second, "1 queued and not started: b"},
		{nil, drains{running, all}, 10 * time.Second, "1 queued and not started: b"},
		{nil, drains{running, nothing}, time.Second, "1 still running: a; 1 queued and not started: b"},
		{nil, drains{all, running}, 11 * time.Second, "nothing"}, // The second worker had started b.
		{nil, drains{all, all}, 11 * time.Second, "nothing"},
		{nil, drains{all, nothing}, time.Second, "2 still running: a, b"},
		{nil, drains{nothing, running}, time.Second, "1 still running: a; 1 queued and not started: b"},
		{nil, drains{nothing, all}, time.Second, "1 still running: a; 1 queued and not started: b"},
		{nil, drains{nothing, nothing}, time.Second, "1 still running: a; 1 queued and not started: b"},
	} {
		t.Run(fmt.Sprint("before=", c.before, "/during=", c.during), func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				addAll(q, "a b")
				p := worker.New(q, takes(10*time.Second), options{DrainTimeout: time.Hour, CancelGrace: worker.NoGrace})
				stop := func(drains []worker.Drain) {
					for _, d := range drains {
						p.Stop(d)
						setWorkers(t, p, 2)
						synctest.Wait()
					}
				}
				stop(c.before)
				r := run(t, p)
				if c.at > 0 {
					r.after(time.Second)
					stop(c.during)
				}
				if time.Since(r.begun) < c.at {
					r.after(c.at - 1)
					r.goesOn()
				}
				r.after(c.at)
				err := r.returned()
				left := strings.ReplaceAll(p.Left().String(), "b, a", "a, b") // Two workers may have begun in any order.
				if err != nil || left != c.left {
					t.Errorf("Run returned %v, left: %s, want: %s", err, left, c.left)
				}
				setWorkers(t, p, 5)
				p.Stop(all)
				unfinished := len(p.Left().Unfinished)
				if st := p.Stats(); st.Wanted != 0 || st.Living != unfinished || st.Ended != (unfinished == 0) {
					t.Errorf("after Run: %+v", st)
				}
				r.after(time.Hour)
				if st := p.Stats(); st.Living != 0 || !st.Ended {
					t.Errorf("after the last handler: %+v", st)
				}
				wantMatchedDones(t, q)
			})
		})
	}
}

// lateEnd is a queue that takes its time to say that it is shut down.
type lateEnd struct {
	extended
	said chan struct{}
}

func (q lateEnd) Next(ctx context.Context) (workqueue.HandOut[string], error) {
	key, err := q.extended.Next(ctx)
	if errors.Is(err, workqueue.ErrShutDown) {
		<-q.said
	}
	return key, err
}

// One of two workers holds a key that was added again, and the other one has heard that the queue, which is
// shut down, is empty. Then one worker is wanted, and the first one leaves when it is done. The other one
// finds itself alone: it must look once more.
func TestKeyOfAWorkerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := lateEnd{newQueue(), make(chan struct{})}
		calls, finish := 0, make(chan struct{})
		q.Add("a")
		p := worker.New(q, func(context.Context, string) error {
			calls++
			<-finish
			return nil
		}, options{Workers: 2})
		r := run(t, p)
		q.Add("a")
		q.ShutDown()
		synctest.Wait()
		setWorkers(t, p, 1)
		close(finish)
		synctest.Wait()
		if st := p.Stats(); st.Living != 1 || q.Len() != 1 {
			t.Errorf("one worker has left, and the key is queued: %+v", st)
		}
		close(q.said)
		r.returnedLeaving("nothing")
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
		wantMatchedDones(t, q)
	})
}
