package workqueue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

func TestFirstInFirstOut(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		var next, want int
		// Waves that grow and shrink, so that the buffers of the queue do, and wrap.
		for wave := range 40 {
			for range wave * 7 {
				q.Add(fmt.Sprint(next))
				next++
			}
			for range wave * 6 {
				hold(t, q, fmt.Sprint(want))
				q.Done(fmt.Sprint(want))
				want++
			}
			wantLen(t, q, next-want)
		}
		for ; want < next; want++ {
			hold(t, q, fmt.Sprint(want))
		}
		wantLen(t, q, 0)
	})
}

func TestKeyIsQueuedOnce(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		for _, key := range []string{"a", "b", "a", "c", "b", "a", "", ""} {
			q.Add(key)
		}
		wantLen(t, q, 4)
		if n := q.Stats().Adds; n != 4 {
			t.Errorf("Stats().Adds = %d, want 4", n)
		}
		// An Add of a queued key does not change its place in the line.
		process(t, q, "a", "b", "c", "")
	})
}

func TestAddWhileProcessing(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		q.Add("a")
		hold(t, q, "a")
		q.Add("a")
		q.Add("b")
		q.Add("a")
		wantLen(t, q, 1)
		if st := q.Stats(); st.Adds != 3 || st.Queued != 1 || st.Processing != 1 {
			t.Errorf("Stats() = %+v, want 3 adds, 1 queued, 1 processing", st)
		}
		q.Done("a")
		wantLen(t, q, 2)
		// Done put it at the end of the line, once.
		process(t, q, "b", "a")
		if st := q.Stats(); st.Queued != 0 || st.Processing != 0 {
			t.Errorf("Stats() = %+v, want nothing queued and processing", st)
		}
	})
}

func TestDoneWakesGetterOfDirtyKey(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		q.Add("a")
		hold(t, q, "a")
		get := startGet[string](q)
		q.Add("a")
		get.mustBlock(t, "Get of a key that another worker holds")
		q.Done("a")
		if g := get.mustReturn(t, "Get"); g.key != "a" {
			t.Errorf("Get() = %v", g)
		}
	})
}

func TestAddAfterShutDown(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		q.Add("held")
		q.Add("queued")
		hold(t, q, "held")
		q.ShutDown()
		q.Add("new")
		q.Add("queued")
		q.Add("held") // would be queued again by Done
		q.Done("held")
		if n := q.Stats().Adds; n != 2 {
			t.Errorf("Stats().Adds = %d, want 2", n)
		}
		process(t, q, "queued")
		wantShutDown(t, q)
	})
}

// Get after shutdown hands out what is queued, including what is queued only then.
func TestGetAfterShutDown(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		for _, key := range []string{"a", "b", "c"} {
			q.Add(key)
		}
		hold(t, q, "a")
		q.Add("a")
		q.ShutDown()
		hold(t, q, "b")
		if key, err := q.GetContext(t.Context()); key != "c" || err != nil {
			t.Fatalf("GetContext() = %q, %v, want c", key, err)
		}
		// A worker holds a, and will bring it back. Get does not wait for that.
		wantShutDown(t, q)
		q.Done("a")
		process(t, q, "a")
		wantShutDown(t, q)
	})
}

func TestShutDownWakesEveryGetter(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		var gets []*call[got[string]]
		for range 5 {
			gets = append(gets, startGet[string](q), startGetContext(t.Context(), q))
		}
		for _, get := range gets {
			get.mustBlock(t, "Get of an empty queue")
		}
		q.ShutDown()
		for _, get := range gets {
			if g := get.mustReturn(t, "Get after ShutDown"); g.err != workqueue.ErrShutDown || g.key != "" {
				t.Errorf("got %q, %v, want ErrShutDown", g.key, g.err)
			}
		}
	})
}

// Each Add lets exactly one sleeping getter have the key, however the adds are spread over time.
func TestAddWakesGetters(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[int]) {
		for _, burst := range []int{1, 2, 7} {
			q := build(options[int]{})
			var gets []*call[got[int]]
			for range 14 {
				gets = append(gets, startGet[int](q))
			}
			seen := make(map[int]bool)
			for first := 0; first < len(gets); first += burst {
				synctest.Wait()
				for key := first; key < first+burst; key++ {
					q.Add(key)
				}
				synctest.Wait()
				clear(seen)
				for _, get := range gets {
					if g := get.result.Load(); g != nil {
						seen[g.key] = true
					}
				}
				if len(seen) != first+burst {
					t.Fatalf("%d getters have a key after %d adds in bursts of %d", len(seen), first+burst, burst)
				}
			}
			q.ShutDown()
		}
	})
}

func TestGetContextOfDoneContext(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		expired, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		q := build(options[string]{})
		for range 2 { // empty, and with keys
			for want, ctx := range map[error]context.Context{
				context.Canceled: canceled, context.DeadlineExceeded: expired,
			} {
				if key, err := q.GetContext(ctx); key != "" || !errors.Is(err, want) {
					t.Fatalf("GetContext() = %q, %v, want %v", key, err, want)
				}
			}
			q.Add("a")
			q.Add("b")
		}
		if st := q.Stats(); st.Queued != 2 || st.Processing != 0 {
			t.Errorf("Stats() = %+v, want both keys queued", st)
		}
		process(t, q, "a", "b")
	})
}

func TestGetContextGivesUp(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		impatient := startGetContext(ctx, q)
		impatient.mustBlock(t, "GetContext of an empty queue")
		patient := startGet[string](q)
		patient.mustBlock(t, "Get of an empty queue")

		time.Sleep(time.Minute - 1)
		impatient.mustBlock(t, "GetContext before its deadline")
		time.Sleep(time.Nanosecond)
		if g := impatient.mustReturn(t, "GetContext after its deadline"); g.key != "" || g.err != context.DeadlineExceeded {
			t.Errorf("GetContext() = %v, want DeadlineExceeded", g)
		}
		q.Add("a")
		if g := patient.mustReturn(t, "Get"); g.key != "a" {
			t.Errorf("Get() = %v, want a", g)
		}
	})
}

// A getter may be told of a key and see its context end in the same instant. It then must not keep the
// wake-up to itself. In a bubble, an expired timer and an Add can be had at the same time, and which
// of the two the getter sees is left to chance; hence the rounds.
func TestGetContextPassesItsWakeUpOn(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[int]) {
		for key := range 50 {
			q := build(options[int]{})
			ctx, cancel := context.WithCancel(t.Context())
			first := startGetContext(ctx, q)
			synctest.Wait()
			second := startGet[int](q)
			synctest.Wait()
			q.Add(key)
			cancel()
			synctest.Wait()
			g := first.mustReturn(t, "GetContext")
			if g.err != nil {
				g = second.mustReturn(t, "Get beside a GetContext that gave up")
			}
			if g.key != key || g.err != nil {
				t.Fatalf("got %v, want %d", g, key)
			}
			q.Done(key)
			q.ShutDown()
			synctest.Wait()
		}
	})
}

func TestDoneOfKeyThatNoWorkerHolds(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		unmatched := func(want uint64) {
			t.Helper()
			if n := q.Stats().UnmatchedDones; n != want {
				t.Errorf("Stats().UnmatchedDones = %d, want %d", n, want)
			}
		}
		q.Done("unknown")
		unmatched(1)
		wantLen(t, q, 0)

		// In client-go this queues the key a second time (kubernetes/kubernetes#141079).
		q.Add("a")
		q.Done("a")
		unmatched(2)
		wantLen(t, q, 1)
		hold(t, q, "a")
		wantLen(t, q, 0)

		q.Done("a")
		q.Done("a")
		unmatched(3)
		wantLen(t, q, 0)

		// Twice, with the key queued again in between: the second Done must not end the turn of the
		// worker that comes next.
		q.Add("a")
		hold(t, q, "a")
		q.Add("a")
		q.Done("a")
		q.Done("a")
		unmatched(4)
		process(t, q, "a")
		if st := q.Stats(); st.Queued != 0 || st.Processing != 0 {
			t.Errorf("Stats() = %+v, want nothing queued and processing", st)
		}
		if err := workqueue.CheckInvariants[string](q); err != nil {
			t.Error(err)
		}
	})
}

func TestStatsOfUnnamedQueue(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{})
		if st := q.Stats(); st != (workqueue.Stats{}) {
			t.Errorf("Stats() of a new queue = %+v", st)
		}
		q.Add("a")
		q.Add("b")
		hold(t, q, "a")
		time.Sleep(time.Hour)
		want := workqueue.Stats{Queued: 1, Processing: 1, Adds: 2}
		if st := q.Stats(); st != want {
			t.Errorf("Stats() = %+v, want %+v", st, want)
		}
	})
}

// The constructors without Typed in their names, and those without config, build the same queues.
func TestQueueConstructors(t *testing.T) {
	for name, q := range map[string]workqueue.TypedInterface[any]{
		"New":                workqueue.New(),
		"NewNamed":           workqueue.NewNamed("name"),
		"NewWithConfig":      workqueue.NewWithConfig(workqueue.QueueConfig{}),
		"NewTyped":           workqueue.NewTyped[any](),
		"NewTypedWithConfig": workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[any]{}),
	} {
		t.Run(name, func(t *testing.T) {
			defer q.ShutDown()
			q.Add(1)
			q.Add("a")
			q.Add(1)
			q.Add(struct{ int }{1})
			process[any](t, q, 1, "a", struct{ int }{1})
			wantName := ""
			if name == "NewNamed" {
				wantName = "name"
			}
			if got := q.(workqueue.Extended[any]).Stats().Name; got != wantName {
				t.Errorf("Stats().Name = %q, want %q", got, wantName)
			}
		})
	}
}

// The key that was handed out last is found without a look-up, which must not find any other.
func TestDoneInAnyOrder(t *testing.T) {
	type key struct{ a, b string }
	keys := []key{{"a", "1"}, {"a", "2"}, {"b", "1"}}
	everyLayer(t, func(t *testing.T, build builder[key]) {
		for n := 1; n <= len(keys); n++ {
			for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {1, 0, 2}} {
				q := build(options[key]{})
				for _, k := range keys[:n] {
					q.Add(k)
				}
				hold(t, q, keys[:n]...)
				q.Add(keys[n-1])
				q.Done(key{"a", "3"}) // nobody has it
				held := n
				for _, i := range order {
					q.Done(keys[i])
					if i < n {
						held--
					}
					if st := q.Stats(); st.Processing != held {
						t.Fatalf("%d keys, %v: %d are held after Done of %d, want %d", n, order, st.Processing, i, held)
					}
					if err := workqueue.CheckInvariants[key](q); err != nil {
						t.Fatal(err)
					}
				}
				if st := q.Stats(); st.UnmatchedDones != uint64(1+len(keys)-n) || st.Queued != 1 {
					t.Fatalf("%d keys, %v: %+v", n, order, st)
				}
				q.Done(keys[n-1]) // is queued, and the latest
				process(t, q, keys[n-1])
				q.Done(keys[n-1]) // is gone
				if st := q.Stats(); st.UnmatchedDones != uint64(3+len(keys)-n) {
					t.Fatalf("%d keys, %v: %+v", n, order, st)
				}
			}
		}
	})
}
