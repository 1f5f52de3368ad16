package workqueuetest

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
)

// idleCases are about what an idle queue costs.
func idleCases() []testCase {
	return []testCase{
		bubbled("NoGoroutineWhileIdle", "A queue has a goroutine of its own only while a key waits for its time.", tryNoGoroutineWhileIdle),
		bubbled("NoTimerWhileIdle", "A queue has a timer only while a key waits for its time.", tryNoTimerWhileIdle),
		bubbled("NoGoroutineAfterShutDown", "No goroutine of the queue is left when a method that shuts down returns.", tryNoGoroutineAfterShutDown),
		unbubbled("IdleQueueIsGarbage", "A queue without references is garbage, with its keys, even if it was not shut down.", tryIdleQueueIsGarbage),
	}
}

func tryNoGoroutineWhileIdle(r *run) {
	base := testkit.Goroutines()
	q := r.queue(Config[string]{})
	base.WantMore(r, "new", 0)
	for range 3 {
		q.Add("a")
		r.process(q, "a added", "a")
		base.WantMore(r, "while no key waits", 0)
		d, ok := q.(delaying)
		if !ok {
			continue
		}
		d.AddAfter("a", 0)
		base.WantMore(r, "after AddAfter without a delay", 0)
		r.take(q)
		d.AddAfter("a", time.Second)
		d.AddAfter("b", time.Minute)
		r.pass(time.Second)
		r.process(q, "a due", "a")
		r.pass(time.Hour)
		r.process(q, "b due", "b")
		base.WantMore(r, "when no key waits any more", 0)
	}
}

func tryNoTimerWhileIdle(r *run) {
	c := r.needFakeClock()
	q := capable[delaying](r, Config[string]{})
	r.pass(0)
	if c.HasWaiters() {
		r.Fatalf("a new queue has a timer")
	}
	q.AddAfter("a", time.Second)
	r.pass(time.Second)
	r.process(q, "a due", "a")
	if c.HasWaiters() {
		r.Fatalf("a queue in which no key waits any more has a timer")
	}
	q.AddAfter("a", time.Second)
	q.AddAfter("b", time.Hour)
	r.pass(0)
	q.ShutDown()
	if c.HasWaiters() {
		r.Fatalf("a queue that was shut down while keys waited has a timer")
	}
}

func tryNoGoroutineAfterShutDown(r *run) {
	base := testkit.Goroutines()
	r.eachEnder(func(q fifo, e ender) {
		if d, ok := q.(delaying); ok {
			d.AddAfter("a", time.Hour)
			r.pass(0)
		}
		e.start(r, q).mustReturn("with a key that waits")
		base.WantMore(r, "after "+e.name, 0)
		if e.drain {
			r.wantOnlyTheDrain(base, e)
		}
		if !r.suite.NoMetrics {
			q := r.queue(Config[string]{Name: queueName, MetricsProvider: &testkit.Recorder{}})
			r.pass(0)
			e.start(r, q).mustReturn("of an empty queue with metrics")
			base.WantMore(r, "with metrics, after "+e.name, 0)
		}
	})
}

// wantOnlyTheDrain asserts that a drain ends the waiting loop and its timer before it waits itself.
func (r *run) wantOnlyTheDrain(base testkit.GoroutineSet, drain ender) {
	q := r.queue(Config[string]{})
	q.Add("held")
	r.hold(q, "held")
	if d, ok := q.(delaying); ok {
		d.AddAfter("a", time.Hour)
		r.pass(0)
	}
	end := drain.start(r, q)
	end.mustBlock("with a key held")
	if drain.name == "ShutDownWithDrain" || !r.suite.PartialStats {
		base.WantMore(r, "the drainer apart, during "+drain.name, 1)
	}
	q.Done("held")
	end.mustReturn("with nothing left")
	base.WantMore(r, "after "+drain.name, 0)
}
