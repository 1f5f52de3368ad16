package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// A key that interrupts itself again and again, and has a hold, too, pauses when the hold is released before the pause ends. That is no
// hold that has come to its limit, and a shutdown ends it.
func TestPauseThatOutlastsHold(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		var fine atomic.Bool
		p := worker.New(q, func(ctx context.Context, key string) error {
			if fine.Load() {
				return nil
			}
			call := worker.CallOf(ctx)
			call.Hold("the cache shows it", time.Minute, func(release func()) { time.AfterFunc(time.Millisecond, release) })
			until := call.UntilAdded()
			q.Add(key)
			<-until.Done()
			return until.Err()
		}, options{Drain: worker.All})
		q.Add("a")
		r := run(t, p)
		r.after(time.Minute)
		if st := p.Stats(); st.Looping != 1 || st.HeldToLimit != 0 {
			t.Errorf("%+v", st)
		}
		fine.Store(true)
		r.cancel()
		r.returnedLeaving("nothing")
	})
}

// shutsDownMeanwhile is a queue that is shut down while ShuttingDown returns, at the last of so many calls.
type shutsDownMeanwhile struct {
	notifying
	calls    atomic.Int64
	shutDown func()
}

func (q *shutsDownMeanwhile) ShuttingDown() bool {
	before := q.notifying.ShuttingDown()
	if q.calls.Load() > 0 && q.calls.Add(-1) == 0 {
		q.shutDown()
		time.Sleep(time.Millisecond)
	}
	return before
}

// A pause that begins while the queue is shut down does not delay the end.
func TestPauseDuringShutdown(t *testing.T) {
	for name, answer := range map[string]func(q *shutsDownMeanwhile, last bool) error{
		"release": func(q *shutsDownMeanwhile, last bool) error {
			return worker.Hold("it has happened", time.Minute, func(release func()) {
				time.AfterFunc(time.Microsecond, func() {
					if last {
						q.calls.Store(1)
					}
					release()
				})
			})
		},
		"interruption": func(q *shutsDownMeanwhile, last bool) error {
			q.Add("a")
			if last {
				q.calls.Store(3) // The first ones are of carryOut and addAgain.
			}
			return worker.ErrAdded
		},
	} {
		t.Run(name, func(t *testing.T) {
			overNotifying(t, func(t *testing.T, q notifying) {
				late := &shutsDownMeanwhile{notifying: q}
				var fine, last atomic.Bool
				p := worker.New(late, func(context.Context, string) error {
					if fine.Load() {
						return nil
					}
					return answer(late, last.Load())
				}, options{Workers: 2, Drain: worker.All})
				q.Add("a")
				r := run(t, p)
				late.shutDown = func() {
					fine.Store(true)
					r.cancel()
				}
				r.after(time.Minute)
				last.Store(true)
				var end time.Duration
				for !fine.Load() {
					end += time.Second
					r.after(time.Minute + end)
				}
				r.after(time.Minute + end + time.Second)
				r.returnedLeaving("nothing")
			})
		})
	}
}
