package workqueuetest

func drainCases() []testCase {
	return []testCase{
		bubbled("DrainWaitsForQueuedKeys", "A drain waits for queued keys, even if no worker holds any.", tryDrainWaitsForQueuedKeys),
		bubbled("DrainWaitsForHeldKeys", "A drain waits for the keys that workers hold.", tryDrainWaitsForHeldKeys),
		bubbled("DrainWaitsForKeysAddedWhileHeld", "A drain waits for the keys that Done queues again.", tryDrainWaitsForDirtyKeys),
		bubbled("EveryDrainEnds", "When nothing is left, every drain returns.", tryEveryDrainEnds),
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
