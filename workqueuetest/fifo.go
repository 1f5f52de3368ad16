package workqueuetest

import (
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
)

// fifoCases are about Add, Done and the order of the keys.
func fifoCases() []testCase {
	return []testCase{
		bubbled("Order", "Keys come in the order in which they became queued.", tryOrder),
		bubbled("AddTwice", "Add of a queued key does nothing: it comes once, at its old place.", tryAddTwice),
		bubbled("AddWhileHeld", "A key that is added while a worker holds it comes again after Done, once, at the end of the line.", tryAddWhileHeld),
		bubbled("AddAfterShutDown", "After shutdown Add does nothing, also not for a key that a worker holds.", tryAddAfterShutDown),
		bubbled("DoneOfUnheldKey", "Done of a key that no worker holds changes nothing but the count of such calls.", tryDoneOfUnheldKey),
		bubbled("Stats", "Stats counts the keys that are queued and held, and the adds that changed something.", tryStats),
		bubbled("NothingWaitsForWorkers", "No method but Get and the drains waits for the work of other goroutines.", tryNothingWaits),
	}
}

func tryOrder(r *run) {
	q := r.queue(Config[string]{})
	next, want := 0, 0
	// Waves of different sizes, so that buffers grow, shrink and wrap around.
	for wave := range 30 {
		for range wave * 5 {
			q.Add(fmt.Sprint(next))
			next++
		}
		for range wave * 4 {
			key, _ := q.Get()
			if key != fmt.Sprint(want) {
				r.Fatalf("Get() = %q, want %q, of keys up to %d", key, fmt.Sprint(want), next-1)
			}
			q.Done(key)
			want++
		}
		r.wantLen(q, fmt.Sprintf("after %d adds and %d Gets", next, want), next-want)
	}
	r.check(q)
	for ; want < next; want++ {
		r.hold(q, fmt.Sprint(want))
	}
	r.wantLen(q, "with every key held", 0)
	r.check(q)
}

func tryAddTwice(r *run) {
	q := r.queue(Config[string]{})
	for _, key := range []string{"a", "b", "a", "c", "b", "a", "", ""} {
		q.Add(key)
	}
	r.wantLen(q, "four keys added twice", 4)
	r.wantStats(q, "four keys added twice", workqueue.Stats{Queued: 4, Adds: 4})
	r.process(q, "four keys added twice", "a", "b", "c", "")
}

func tryAddWhileHeld(r *run) {
	q := r.queue(Config[string]{})
	q.Add("a")
	r.hold(q, "a")
	q.Add("a")
	q.Add("b")
	q.Add("a")
	r.wantLen(q, "a held and added, b added", 1)
	r.wantStats(q, "a held and added, b added", workqueue.Stats{Queued: 1, Processing: 1, Adds: 3})
	if e, ok := q.(extended); ok && !r.suite.PartialStats && e.Stats().Again != 1 {
		r.Fatalf("a held and added: Stats().Again = %d, want 1", e.Stats().Again)
	}
	q.Done("a")
	r.check(q)
	r.wantLen(q, "a done", 2)
	r.process(q, "a done", "b", "a")
	r.wantStats(q, "everything done", workqueue.Stats{Adds: 3})
}

func tryAddAfterShutDown(r *run) {
	r.eachEnder(func(q fifo, e ender) {
		q.Add("held")
		q.Add("queued")
		r.hold(q, "held")
		end := e.start(r, q)
		end.mustWaitIf(e.drain, "with a key held")
		q.Add("new")
		q.Add("queued")
		q.Add("held") // Done would queue it again
		q.Done("held")
		r.process(q, "adds after "+e.name, "queued")
		end.mustReturn("with nothing left")
		r.wantStats(q, "adds after "+e.name, workqueue.Stats{Adds: 2})
		r.wantShutDown(q, "adds after "+e.name)
	})
}

func tryDoneOfUnheldKey(r *run) {
	q := r.queue(Config[string]{})
	q.Done("unknown")
	r.wantLen(q, "Done of an unknown key", 0)
	r.wantStats(q, "Done of an unknown key", workqueue.Stats{UnmatchedDones: 1})
	q.Add("a")
	q.Done("a")
	r.check(q)
	// In client-go this queues the key a second time (kubernetes/kubernetes#141079).
	r.wantLen(q, "Done of a queued key", 1)
	r.wantStats(q, "Done of a queued key", workqueue.Stats{Queued: 1, Adds: 1, UnmatchedDones: 2})
	r.hold(q, "a")
	second := r.startGet(q)
	second.mustBlock("of a second worker, with the only key held")
	q.Done("a")
	q.Done("a")
	second.mustBlock("of a second worker, with the only key done twice")
	q.Add("a")
	second.mustReturn("after an Add")
	q.Done("a")
	r.wantStats(q, "everything done", workqueue.Stats{Adds: 2, UnmatchedDones: 3})
	r.check(q)
}

func tryStats(r *run) {
	q := capable[extended](r, Config[string]{})
	if st := q.Stats(); st != (workqueue.Stats{}) {
		r.Fatalf("Stats() of a new queue = %+v, want zeros", st)
	}
	q.Add("a")
	q.Add("b")
	if n := q.Stats().Queued; n != 2 {
		r.Fatalf("Stats().Queued = %d with two keys queued", n)
	}
	r.hold(q, "a")
	r.wantStats(q, "a held, b queued", workqueue.Stats{Queued: 1, Processing: 1, Adds: 2})
	q.Done("a")
	if d, ok := q.(delaying); ok {
		d.AddAfter("a", time.Hour)
		d.AddAfter("c", time.Hour)
		d.AddAfter("c", time.Minute)
		d.AddAfter("d", 0)
		r.wantStats(q, "four calls of AddAfter", workqueue.Stats{Queued: 2, Waiting: 2, Adds: 3, Retries: 4})
	}
}

func tryNothingWaits(r *run) {
	q := r.queue(Config[string]{})
	q.Add("held")
	r.hold(q, "held")
	calls := func(when string) {
		all := map[string]func(){
			"Add":          func() { q.Add("held") },
			"Len":          func() { q.Len() },
			"Done":         func() { q.Done("unknown") },
			"ShuttingDown": func() { q.ShuttingDown() },
		}
		if d, ok := q.(delaying); ok {
			all["AddAfter"] = func() { d.AddAfter("held", 1) }
		}
		if l, ok := q.(limiting); ok {
			all["AddRateLimited"] = func() { l.AddRateLimited("held") }
			all["Forget"] = func() { l.Forget("held") }
			all["NumRequeues"] = func() { l.NumRequeues("held") }
		}
		if e, ok := q.(extended); ok {
			all["Stats"] = func() { e.Stats() }
			all["GetContext"] = func() { _, _ = e.GetContext(canceled()) }
		}
		for name, f := range all {
			start(r, name, func() bool { f(); return true }).mustReturn(when)
		}
	}
	get := r.startGet(q)
	get.mustBlock("with the only key held")
	calls("while a getter sleeps")
	drain := enders(q)[1].start(r, q)
	drain.mustBlock("with a key held")
	calls("during a drain")
	// Nothing is queued, so the getter must not wait for the worker's Done.
	if g := get.mustReturn("during a drain, with nothing queued"); g.err == nil {
		r.Fatalf("Get() = %q during a drain, with nothing queued", g.key)
	}
	q.Done("held")
	r.process(q, "a key that was added while held, during a drain", "held")
	drain.mustReturn("with nothing left")
	start(r, "ShutDown", func() bool { q.ShutDown(); return true }).mustReturn("after a drain")
	calls("after shutdown")
}
