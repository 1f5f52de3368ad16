package workqueuetest

import (
	"context"
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

// getCases are about which getters get a key, and which wait.
func getCases() []testCase {
	return []testCase{
		bubbled("GetWaits", "Get waits while nothing is queued, also if workers hold keys that will be queued again.", tryGetWaits),
		bubbled("AddWakesGetters", "As many getters wake as there are keys for, however the adds are spread over time.", tryAddWakesGetters),
		bubbled("GetAfterShutDown", "After ShutDown, Get hands out what is queued, and then reports shutdown without waiting.", tryGetAfterShutDown),
		bubbled("ShutDownWakesGetters", "A shutdown wakes every getter that waits for a key.", tryShutDownWakesGetters),
		bubbled("GetContextOfDoneContext", "GetContext with a context that is done takes no key.", tryGetContextOfDoneContext),
		bubbled("GetContextGivesUp", "GetContext waits no longer than its context.", tryGetContextGivesUp),
	}
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

func tryGetAfterShutDown(r *run) {
	q := r.queue(Config[string]{})
	for _, key := range []string{"a", "b", "c"} {
		q.Add(key)
	}
	r.hold(q, "a")
	q.Add("a")
	q.ShutDown()
	r.hold(q, "b", "c")
	// A worker holds a and will return it. Get does not wait for that.
	r.wantShutDown(q, "with a held")
	q.Done("a")
	r.process(q, "a done", "a")
	r.wantShutDown(q, "in the end")
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
