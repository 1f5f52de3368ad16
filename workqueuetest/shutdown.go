package workqueuetest

import (
	"context"
	"time"
)

// shutDownCases are about methods that shut down. Most cases about them are scripts.
func shutDownCases() []testCase {
	return []testCase{
		bubbled("ShutDownTwice", "Every method that shuts down may be called any number of times, by any number of callers, in any order.", tryShutDownTwice),
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
