package workqueuetest

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

func drainCases() []testCase {
	return []testCase{
		bubbled("DrainWaitsForQueuedKeys", "A drain waits for queued keys, even if no worker holds any.", tryDrainWaitsForQueuedKeys),
		bubbled("DrainWaitsForHeldKeys", "A drain waits for the keys that workers hold.", tryDrainWaitsForHeldKeys),
		bubbled("DrainWaitsForKeysAddedWhileHeld", "A drain waits for the keys that Done queues again.", tryDrainWaitsForDirtyKeys),
		bubbled("EveryDrainEnds", "When nothing is left, every drain returns.", tryEveryDrainEnds),
		bubbled("DrainWithWorkers", "Sleeping and busy workers finish everything, and the drain returns with the last Done.", tryDrainWithWorkers),
		bubbled("DrainWhileKeysComeDue", "A key that comes due while the queue is drained is either processed, or counted as dropped.", tryDrainWhileKeysComeDue),
	}
}

func tryDrainWaitsForQueuedKeys(r *run) {
	r.eachDrain(func(q fifo, drain ender) {
		q.Add("a")
		q.Add("b")
		d := drain.start(r, q)
		// kubernetes/kubernetes#141079
		d.mustBlock("with two keys queued")
		r.hold(q, "a")
		q.Done("a")
		d.mustBlock("with a key queued")
		r.process(q, "a done", "b")
		d.mustReturn("with nothing left")
	})
}

func tryDrainWaitsForHeldKeys(r *run) {
	r.eachDrain(func(q fifo, drain ender) {
		q.Add("a")
		q.Add("b")
		r.hold(q, "a", "b")
		d := drain.start(r, q)
		d.mustBlock("with two keys held")
		if !q.ShuttingDown() {
			r.Fatalf("ShuttingDown() = false during %s", drain.name)
		}
		q.Done("b")
		d.mustBlock("with a key held")
		q.Done("a")
		d.mustReturn("with nothing left")
	})
}

func tryDrainWaitsForDirtyKeys(r *run) {
	r.eachDrain(func(q fifo, drain ender) {
		q.Add("a")
		r.hold(q, "a")
		q.Add("a")
		d := drain.start(r, q)
		q.Done("a")
		d.mustBlock("with a key queued that was added while held")
		r.hold(q, "a")
		d.mustBlock("with that key held")
		q.Done("a")
		d.mustReturn("with nothing left")
	})
}

// client-go wakes only one of several drains.
func tryEveryDrainEnds(r *run) {
	q := r.queue(Config[string]{})
	q.Add("a")
	r.hold(q, "a")
	var drains []*call[error]
	for range 3 {
		for _, e := range enders(q)[1:] {
			drains = append(drains, e.start(r, q))
		}
	}
	for _, d := range drains {
		d.mustBlock("with a key held")
	}
	q.Done("a")
	for _, d := range drains {
		if err := d.mustReturn("beside other drains, with nothing left"); err != nil {
			r.Fatalf("%s = %v", d.what, err)
		}
	}
}

func tryDrainWithWorkers(r *run) {
	r.eachDrain(func(q fifo, drain ender) {
		var processed atomic.Int64
		for range 3 {
			r.start(func() {
				for {
					key, shutdown := q.Get()
					if shutdown {
						return
					}
					time.Sleep(time.Second)
					processed.Add(1)
					q.Done(key)
				}
			}, func() {})
		}
		for i := range 9 {
			q.Add(fmt.Sprint(i))
			synctest.Wait()
			q.Add(fmt.Sprint(i)) // the first three are held
		}
		began := time.Now()
		if err := drain.end(q); err != nil {
			r.Fatalf("%s = %v", drain.name, err)
		}
		if n := processed.Load(); n != 12 {
			r.Fatalf("%s returned with %d keys processed, of 12", drain.name, n)
		}
		if d := time.Since(began); d != 4*time.Second {
			r.Fatalf("three workers took %v for twelve keys of a second each, want 4s", d)
		}
	})
}

func tryDrainWhileKeysComeDue(r *run) {
	const keys = 300
	for round := range 20 {
		q := capable[delaying](r, Config[string]{})
		for key := range keys {
			q.AddAfter(fmt.Sprint(key), time.Second)
		}
		processed := 0
		worker := start(r, "a worker's Get", func() bool {
			for {
				key, shutdown := q.Get()
				if shutdown {
					return true
				}
				processed++
				q.Done(key)
			}
		})
		synctest.Wait()
		if r.fake != nil {
			r.fake.Step(time.Second)
		} else {
			time.Sleep(time.Second)
		}
		for range round % 10 {
			runtime.Gosched()
		}
		q.ShutDownWithDrain()
		worker.mustReturn("after a drain")
		r.wantLen(q, "after a drain", 0)
		if e, ok := q.(extended); ok && !r.suite.PartialStats {
			n := uint64(processed)
			r.wantStats(q, "after a drain", workqueue.Stats{Adds: n, Retries: keys, Dropped: keys - n})
			r.check(e)
		}
	}
}
