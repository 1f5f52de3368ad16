package workqueuetest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// fifoCases are those that are too long or too unusual for a script.
func fifoCases() []testCase {
	return []testCase{
		bubbled("ManyDelays", "Keys come in the order of their times, whatever the order of the adds.", tryManyDelays),
		bubbled("NothingWaitsForWorkers", "No method but Get and the drains waits for the work of other goroutines.", tryNothingWaits),
		bubbled("GetContextOfDoneContext", "GetContext with a context that is done takes no key.", tryGetContextOfDoneContext),
		bubbled("GetContextGivesUp", "GetContext waits no longer than its context.", tryGetContextGivesUp),
		bubbled("ShutDownContextGivesUp", "ShutDownContext waits no longer than its context, and may be called again to wait on.", tryShutDownContextGivesUp),
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

func tryManyDelays(r *run) {
	const n = 300
	q := capable[delaying](r, Config[string]{})
	order := r.rand(0).Perm(n)
	want := make([]string, n)
	for key, place := range order {
		// No two at the same time; AddAfterTies is about those.
		q.AddAfter(fmt.Sprint(key), time.Duration(place+1)*time.Second)
		want[place] = fmt.Sprint(key)
	}
	r.pass(100 * time.Second)
	r.process(q, "the first 100 come due at once", want[:100]...)
	for _, key := range want[100:110] {
		r.pass(time.Second)
		r.process(q, "one by one", key)
	}
	r.pass(time.Hour)
	r.process(q, "the rest comes due at once", want[110:]...)
}

func tryNothingWaits(r *run) {
	q := r.queue(Config[string]{})
	q.Add("held")
	r.hold(q, "held")
	all := calls(q, func() time.Duration { return 0 })
	if d, ok := q.(delaying); ok {
		all["AddAfter"] = func(key string) { d.AddAfter(key, time.Second) }
	}
	all["Done"] = func(string) { q.Done("unknown") }
	noneWaits := func(when string) {
		for name, f := range all {
			start(r, name, func() bool { f("held"); return true }).mustReturn(when)
		}
	}
	get := r.startGet(q)
	get.mustBlock("with the only key held")
	noneWaits("while a getter sleeps")
	drain := enders(q)[1].start(r, q)
	drain.mustBlock("with a key held")
	noneWaits("during a drain")
	// Nothing is queued, so the getter must not wait for the worker's Done.
	if g := get.mustReturn("during a drain, with nothing queued"); g.err == nil {
		r.Fatalf("Get() = %q during a drain, with nothing queued", g.key)
	}
	q.Done("held")
	r.process(q, "a key that was added while held, during a drain", "held")
	drain.mustReturn("with nothing left")
	start(r, "ShutDown", func() bool { q.ShutDown(); return true }).mustReturn("after a drain")
	noneWaits("after shutdown")
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
