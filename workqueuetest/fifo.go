package workqueuetest

import (
	"context"
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

func orderCases() []testCase {
	return []testCase{
		bubbled("Order", "Keys come in the order in which they became queued.", tryOrder),
	}
}

// waitCases are about which calls wait, and what ends that.
func waitCases() []testCase {
	return []testCase{
		bubbled("NothingWaitsForWorkers", "No method but Get and the drains waits for the work of other goroutines.", tryNothingWaits),
		bubbled("GetWaits", "Get waits while nothing is queued, also if workers hold keys that will be queued again.", tryGetWaits),
		bubbled("AddWakesGetters", "As many getters wake as there are keys for, however the adds are spread over time.", tryAddWakesGetters),
		bubbled("ShutDownWakesGetters", "A shutdown wakes every getter that waits for a key.", tryShutDownWakesGetters),
		bubbled("GetContextOfDoneContext", "GetContext with a context that is done takes no key.", tryGetContextOfDoneContext),
		bubbled("GetContextGivesUp", "GetContext waits no longer than its context.", tryGetContextGivesUp),
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

func tryGetWaits(r *run) {
	q := r.queue(Config[string]{})
	get := r.startGet(q)
	get.mustBlock("of an empty queue")
	q.Add("a")
	if g := get.mustReturn("after an Add"); g.key != "a" || g.err != nil {
		r.Fatalf("Get() = %v, want a", g)
	}
	get = r.startGet(q)
	q.Add("a")
	get.mustBlock("with the only key held and added")
	q.Done("a")
	if g := get.mustReturn("after Done of a key that was added"); g.key != "a" || g.err != nil {
		r.Fatalf("Get() = %v, want a", g)
	}
}

func tryAddWakesGetters(r *run) {
	for _, burst := range []int{1, 2, 7} {
		q := r.queue(Config[string]{})
		var gets []*call[got]
		for range 14 {
			gets = append(gets, r.startGet(q))
		}
		for first := 0; first < len(gets); first += burst {
			synctest.Wait()
			for key := first; key < first+burst; key++ {
				q.Add(fmt.Sprint(key))
			}
			synctest.Wait()
			seen := make(map[string]bool)
			for _, get := range gets {
				if get.Returned() {
					seen[get.mustReturn("").key] = true
				}
			}
			if len(seen) != first+burst {
				r.Fatalf("%d getters have a key of their own after %d adds in bursts of %d", len(seen), first+burst, burst)
			}
		}
	}
}

func tryShutDownWakesGetters(r *run) {
	r.eachEnder(func(q fifo, e ender) {
		var gets []*call[got]
		for range 5 {
			gets = append(gets, r.startGet(q))
			if ext, ok := q.(extended); ok {
				gets = append(gets, r.startGetContext(context.Background(), ext))
			}
		}
		for _, get := range gets {
			get.mustBlock("of an empty queue")
		}
		e.start(r, q).mustReturn("of an empty queue")
		for _, get := range gets {
			if g := get.mustReturn("after " + e.name); g.err != workqueue.ErrShutDown || g.key != "" {
				r.Fatalf("%s = %q, %v, want no key and shutdown", get.what, g.key, g.err)
			}
		}
	})
}

func tryGetContextOfDoneContext(r *run) {
	q := capable[extended](r, Config[string]{})
	expired, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	for range 2 { // empty, and with keys
		for want, ctx := range map[error]context.Context{
			context.Canceled: canceled(), context.DeadlineExceeded: expired,
		} {
			g := r.startGetContext(ctx, q).mustReturn("with a context that is done")
			if g.key != "" || !errors.Is(g.err, want) {
				r.Fatalf("GetContext() = %q, %v, want no key and %v", g.key, g.err, want)
			}
		}
		q.Add("a")
		q.Add("b")
	}
	r.check(q)
	r.process(q, "a and b added", "a", "b")
}

func tryGetContextGivesUp(r *run) {
	q := capable[extended](r, Config[string]{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	impatient := r.startGetContext(ctx, q)
	impatient.mustBlock("of an empty queue")
	patient := r.startGet(q)
	patient.mustBlock("of an empty queue")
	time.Sleep(time.Minute - 1)
	impatient.mustBlock("before its deadline")
	time.Sleep(time.Nanosecond)
	if g := impatient.mustReturn("after its deadline"); g.key != "" || g.err != context.DeadlineExceeded {
		r.Fatalf("GetContext() = %q, %v, want no key and DeadlineExceeded", g.key, g.err)
	}
	q.Add("a")
	if g := patient.mustReturn("after an Add"); g.key != "a" {
		r.Fatalf("Get() = %v, want a", g)
	}
}
