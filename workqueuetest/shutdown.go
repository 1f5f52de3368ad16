package workqueuetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
)

// shutDownCases are about shutdown. Those about drains are in drain.go.
func shutDownCases() []testCase {
	return []testCase{
		bubbled("ShutDownTwice", "Every method that shuts down may be called any number of times, by any number of callers, in any order.", tryShutDownTwice),
		bubbled("ShutDownEndsDrain", "ShutDown ends waiting drains, even if the queue was shut down before.", tryShutDownEndsDrain),
		bubbled("ShutDownDropsWaiting", "Every way to shut down drops the keys that wait for their time, and counts them.", tryShutDownDropsWaiting),
		bubbled("ShutDownContextGivesUp", "ShutDownContext waits no longer than its context, and may be called again to wait on.", tryShutDownContextGivesUp),
	}
}

func tryShutDownTwice(r *run) {
	r.eachEnder(func(q fifo, first ender) {
		if q.ShuttingDown() {
			r.Fatalf("ShuttingDown() = true of a new queue")
		}
		q.Add("a")
		r.process(q, "a added", "a")
		var calls []*call[error]
		for range 10 {
			calls = append(calls, first.start(r, q))
		}
		for _, c := range calls {
			if err := c.mustReturn("of an empty queue, ten at once"); err != nil {
				r.Fatalf("%s of an empty queue = %v", first.name, err)
			}
		}
		for _, e := range enders(q) {
			if err := e.start(r, q).mustReturn("after " + first.name); err != nil {
				r.Fatalf("%s after %s = %v", e.name, first.name, err)
			}
			r.wantShutDown(q, e.name+" after "+first.name)
		}
		r.check(q)
	})
}

func tryShutDownEndsDrain(r *run) {
	r.eachDrain(func(q fifo, drain ender) {
		var want error
		if drain.name == "ShutDownContext" {
			want = workqueue.ErrShutDown
		}
		q.Add("a")
		q.Add("b")
		r.hold(q, "a")
		for _, when := range []string{"after an Add", "after ShutDown"} {
			var drains []*call[error]
			for range 3 {
				drains = append(drains, drain.start(r, q))
			}
			drains[0].mustBlock(when)
			start(r, "ShutDown", func() bool { q.ShutDown(); return true }).mustReturn("during a drain")
			for _, d := range drains {
				if err := d.mustReturn(when + " and another ShutDown"); !errors.Is(err, want) {
					r.Fatalf("%s ended by ShutDown = %v, want %v", drain.name, err, want)
				}
			}
		}
		// It ends only the drains that were waiting then.
		again := drain.start(r, q)
		again.mustBlock("after two ShutDowns")
		q.Done("a")
		again.mustBlock("with a key queued")
		r.process(q, "a done", "b")
		if err := again.mustReturn("with nothing left"); err != nil {
			r.Fatalf("%s = %v", drain.name, err)
		}
	})
}

func tryShutDownDropsWaiting(r *run) {
	if _, ok := r.queue(Config[string]{}).(delaying); !ok {
		r.lacks("AddAfter")
	}
	r.eachEnder(func(q fifo, e ender) {
		d := q.(delaying)
		q.Add("held")
		r.hold(q, "held")
		for i := range 100 {
			d.AddAfter(fmt.Sprint(i), time.Duration(i+1)*time.Second)
		}
		d.AddAfter("held", time.Second)
		end := e.start(r, q)
		end.mustWaitIf(e.drain, "with a key held")
		want := workqueue.Stats{Processing: 1, Adds: 1, Retries: 101, Dropped: 101}
		r.wantStats(q, "after "+e.name, want)
		r.pass(time.Hour)
		r.wantLen(q, "an hour after "+e.name, 0)
		d.AddAfter("late", time.Second)
		d.AddAfter("late", 0)
		r.wantLen(q, "AddAfter after "+e.name, 0)
		q.Done("held")
		end.mustReturn("with nothing left")
		want.Processing = 0
		r.wantStats(q, "in the end", want)
		r.wantShutDown(q, "in the end")
	})
}

func tryShutDownContextGivesUp(r *run) {
	q := capable[extended](r, Config[string]{})
	shutDown := func(ctx context.Context) *call[error] {
		return start(r, "ShutDownContext", func() error { return q.ShutDownContext(ctx) })
	}
	q.Add("a")
	r.hold(q, "a")
	q.Add("a")
	if err := shutDown(canceled()).mustReturn("of a done context"); err != context.Canceled {
		r.Fatalf("ShutDownContext() = %v, want Canceled", err)
	}
	if !q.ShuttingDown() {
		r.Fatalf("ShuttingDown() = false after a drain that gave up")
	}
	q.Add("b")
	r.wantLen(q, "Add after a drain that gave up", 0)
	patient := shutDown(context.Background())
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		impatient := shutDown(ctx)
		time.Sleep(time.Minute - 1)
		impatient.mustBlock("before its deadline")
		time.Sleep(time.Nanosecond)
		if err := impatient.mustReturn("after its deadline"); err != context.DeadlineExceeded {
			r.Fatalf("ShutDownContext() = %v, want DeadlineExceeded", err)
		}
		cancel()
	}
	patient.mustBlock("beside those that gave up")
	q.Done("a")
	r.process(q, "a done", "a")
	if err := patient.mustReturn("with nothing left"); err != nil {
		r.Fatalf("ShutDownContext() = %v, want nil", err)
	}
	if err := shutDown(canceled()).mustReturn("with nothing left"); err != nil {
		r.Fatalf("ShutDownContext() = %v with nothing left, want nil whatever the context is", err)
	}
	r.wantShutDown(q, "in the end")
}
