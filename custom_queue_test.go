package workqueue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// listQueue is a user's workqueue.Queue, as simple as possible.
type listQueue[T comparable] struct {
	// Keys are the queued keys, and Touched those that were added again meanwhile.
	Keys, Touched []T
	// On, unless nil, is called at the start of every method, with the method's name.
	On func(method string)
}

func (l *listQueue[T]) call(method string) {
	if l.On != nil {
		l.On(method)
	}
}

func (l *listQueue[T]) Touch(item T) { l.call("Touch"); l.Touched = append(l.Touched, item) }
func (l *listQueue[T]) Push(item T)  { l.call("Push"); l.Keys = append(l.Keys, item) }
func (l *listQueue[T]) Len() int     { l.call("Len"); return len(l.Keys) }

func (l *listQueue[T]) Pop() T {
	l.call("Pop")
	item := l.Keys[0]
	l.Keys = slices.Delete(l.Keys, 0, 1)
	return item
}

func TestTouch(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		order := &listQueue[string]{}
		var calls []string
		order.On = func(method string) {
			if method != "Len" {
				calls = append(calls, method)
			}
		}
		q := build(options[string]{order: order})
		for _, step := range []struct {
			what, want string
			do         func()
		}{
			{"Add", "Push", func() { q.Add("a") }},
			{"Add of a queued key", "Touch Touch", func() { q.Add("a"); q.Add("a") }},
			{"Get", "Pop", func() { hold(t, q, "a") }},
			{"Add of a key that a worker holds", "", func() { q.Add("a"); q.Add("a") }},
			{"Done of a dirty key", "Push", func() { q.Done("a") }},
			{"Add of a key that is queued again", "Touch", func() { q.Add("a") }},
			{"Done of a queued key", "", func() { q.Done("a") }},
			{"Get and Done", "Pop", func() { process(t, q, "a") }},
			{"Add after shutdown", "", func() { q.ShutDown(); q.Add("b") }},
		} {
			calls = nil
			if step.do(); strings.Join(calls, " ") != step.want {
				t.Errorf("%s: calls %q, want %q", step.what, calls, step.want)
			}
		}
		if !slices.Equal(order.Touched, []string{"a", "a", "a"}) {
			t.Errorf("touched %q", order.Touched)
		}
	})
}

// hoarder is a Queue that hands out each key several times.
type hoarder struct{ listQueue[string] }

func (h *hoarder) Push(item string) { h.Keys = append(h.Keys, item, item, item) }

// A Queue that has a key twice must not make two workers hold it.
func TestCustomQueueThatRepeatsKeys(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{order: &hoarder{}})
		q.Add("a")
		hold(t, q, "a")
		second := startGet[string](q)
		second.MustBlock(t, "Get of a key that is held, and still in the custom Queue")
		// As if it had been added meanwhile, once.
		if st := q.Stats(); st.Processing != 1 || st.Again != 1 || st.Adds != 2 {
			t.Errorf("Stats() = %+v, want 1 processing, and again, of 2 adds", st)
		}
		q.ShutDown()
		if g := second.MustReturn(t, "Get"); g.err == nil {
			t.Errorf("two workers hold key %q", g.key)
		}
		q.Done("a")
	})
}

// A Queue may have keys that were never added. They are handed out like others.
func TestCustomQueueWithItsOwnKeys(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[string]) {
		q := build(options[string]{order: &listQueue[string]{Keys: []string{"x", "y"}}})
		q.Add("a")
		wantLen(t, q, 3)
		hold(t, q, "x")
		if st := q.Stats(); st.Processing != 1 || st.Queued != 2 {
			t.Errorf("Stats() = %+v, want 1 processing, 2 queued", st)
		}
		q.Add("x")
		q.Done("x")
		drain := startDrain[string](q)
		drain.MustBlock(t, "drain")
		process(t, q, "y", "a", "x")
		drain.MustReturn(t, "drain")
		if st := q.Stats(); st.Processing != 0 || st.Queued != 0 || st.UnmatchedDones != 0 || st.Adds != 4 {
			t.Errorf("Stats() = %+v, want nothing left of 4 adds", st)
		}
	})
}

// dropper is a Queue that takes no keys.
type dropper struct{}

func (dropper) Touch(int) {}
func (dropper) Push(int)  {}
func (dropper) Len() int  { return 0 }
func (dropper) Pop() int  { panic("Pop of an empty Queue") }

// Keys that a custom Queue drops do not make a drain wait. (client-go's drain does not wait for them either.)
func TestQueueThatDropsKeysCanBeDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := options[int]{order: dropper{}}.typed()
		q.Add(1)
		q.ShutDownWithDrain()
		if st := q.Stats(); st.Queued != 0 || !st.ShuttingDown {
			t.Errorf("Stats() = %+v", st)
		}
	})
}

// A metric of such keys must not drift: as many keys leave as have come.
func TestMetricsOfCustomQueues(t *testing.T) {
	for name, order := range map[string]func() workqueue.Queue[string]{
		"own keys": func() workqueue.Queue[string] { return &listQueue[string]{Keys: []string{"x", "y"}} },
		"repeats":  func() workqueue.Queue[string] { return &hoarder{} },
	} {
		t.Run(name, func(t *testing.T) {
			everyLayer(t, func(t *testing.T, build builder[string]) {
				r := &testkit.Recorder{}
				c := testkit.NewFakeClock()
				q := build(options[string]{name: "q", provider: r, clock: c, order: order()})
				c.Step(1000)
				for i := range 5 {
					q.Add(fmt.Sprint(i))
				}
				for q.Len() > 0 {
					key, _ := q.Get()
					q.Done(key)
				}
				q.ShutDown()
				for _, gauge := range []string{"depth", "unfinished", "longest"} {
					if v := r.Value(gauge); v != 0 {
						t.Errorf("%s = %v after everything was processed", gauge, v)
					}
				}
				for _, latency := range r.Observations("latency") {
					if latency != 0 {
						t.Errorf("a latency of %v s, and no time passed since the adds", latency)
					}
				}
			})
		})
	}
}
