package sharding

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

// wantFacts fails unless the queue's facts have these names and values. A * in a value stands for anything.
func wantFacts(t *testing.T, q Queue[string], want ...string) {
	t.Helper()
	facts := workqueue.Inspect[string](q).Facts
	if facts == nil {
		t.Fatal("no facts")
	}
	var lines []string
	for _, f := range facts() {
		lines = append(lines, f.Name+": "+f.Value)
	}
	text := strings.Join(lines, "\n")
	for _, w := range want {
		found := false
		for _, line := range lines {
			before, after, _ := strings.Cut(w, "*")
			found = found || strings.HasPrefix(line, before) && strings.HasSuffix(line, after)
		}
		if !found {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}

// The debug page shows who holds what, what moves, and why it does not.
func TestFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, name := &faulty{Store: Memory()}, func(name string) string { return name }
		a := mustJoin(t, store, Config{Name: "a", Slots: 4, HandoverTimeout: 4 * time.Second, newID: name})
		time.Sleep(time.Second)
		q := newQueueOf(a, QueueConfig[string]{Hash: inLastSlot})
		q.Add("stuck")
		if key, _ := q.Get(); key != "stuck" {
			t.Fatal(key)
		}
		wantFacts(t, q, "Member: a", "Group: g, 1 members",
			"In touch: yes, and for 1*s more if it cannot renew its lease", "Slots held: 4 of 4", "Slots of a: 4",
			"Keys of others: 0 dropped")
		mustJoin(t, store, Config{Name: "b", Slots: 4, newID: name})
		time.Sleep(4 * time.Second)
		wantFacts(t, q, "Group: g, 2 members", "Slots held: 3 of 4", "Slots of a: 3", "Slots of b: 1",
			"Move from a to b: 1 slots for 2*s, waiting for 1 handlers")
		time.Sleep(6 * time.Second)
		wantFacts(t, q,
			"Slots that cannot move: 1: handlers do not return although their contexts have ended; next try in *s")
		store.away.Store(true)
		time.Sleep(20 * time.Second)
		wantFacts(t, q, "In touch: no for *the server is away", "Slots held: 0 of 4")
	})
}

// The page of a member that is cut off says since when and why, and how old is what it knows of the others.
func TestFactsOfMemberThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, ofA, _ := two(t, Memory(), 4)
		q := newQueueOf(a, QueueConfig[string]{})
		wantFacts(t, q, "Slots of "+b.ID()+": 2", "Group: g, 2 members")
		ofA.silent.Store(true)
		ofA.do(func(verb string, r Record) error {
			if verb == "delete" || r.Name == "g-member-"+b.ID() {
				return errors.New("cannot bury a healthy peer")
			}
			return errors.New("no route")
		})
		for range 2000 { // It matters not what has failed last.
			time.Sleep(50 * time.Millisecond)
			if err := a.Err(); err != nil && !strings.Contains(err.Error(), "no route") {
				t.Error(err)
			}
		}
		wantFacts(t, q, "Group: g", "In touch: no for 1m*no route", "Slots of "+a.ID()+": 2, 1m*s ago",
			"Slots of "+b.ID()+": 2, 1m*s ago")
	})
}

// A member without a queue says so, after a lease and until it has one.
func TestMemberWithoutQueueSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m, err := Join(t.Context(), Memory(), Config{Group: "g", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.end)
		time.Sleep(14 * time.Second)
		if err := m.Err(); err != nil || m.Stats().Queues != 0 {
			t.Error(err)
		}
		time.Sleep(17 * time.Second)
		if st := m.Stats(); !errors.Is(st.Err, ErrNoQueue) || st.Held != 0 {
			t.Errorf("%+v", st)
		}
		synctest.Wait()
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "lacks a queue") {
			t.Error(log.String())
		}
		q := newQueueOf(m, QueueConfig[string]{})
		if st := m.Stats(); st.Err != nil || st.Queues != 1 {
			t.Errorf("%+v", st)
		}
		wantFacts(t, q, "Queues: 1")
	})
}

// A listing that hangs or fails is on the page, and in Unlisted.
func TestListingThatHangsIsVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustJoin(t, Memory(), Config{Slots: 8})
		time.Sleep(time.Second)
		answer := make(chan error)
		q := mustQueue(newRoot(), m, QueueConfig[string]{Keys: func(context.Context) (iter.Seq[string],
			error) {
			return nil, <-answer
		}})
		time.Sleep(40 * time.Second)
		if n, age := q.Unlisted(); n != 8 || age != 40*time.Second {
			t.Error(n, age)
		}
		wantFacts(t, q, "Slots not listed yet: 8, for 40s: their keys are still unknown here; a listing runs")
		q.(*queue[string]).list([]int{0, 1}) // again, while they are being listed
		if n, age := q.Unlisted(); n != 8 || age != 40*time.Second {
			t.Error("of slots that were lost and came back:", n, age)
		}
		answer <- errors.New("no such table")
		time.Sleep(10 * time.Second) // The next one hangs too.
		wantFacts(t, q, "Slots not listed yet: 8, for 50s: *; the last listing failed: no such table")
		answer <- nil
		synctest.Wait()
		if n, age := q.Unlisted(); n != 0 || age != 0 {
			t.Error(n, age)
		}
	})
}

// Without the right to watch each change is found by a list, which is slow and costs requests. The log warns.
func TestWatchThatFailsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &faulty{Store: Memory()}
		store.do(func(verb string, _ Record) error {
			if verb == "watch" {
				return errors.New("may not watch")
			}
			return nil
		})
		mustJoin(t, store, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !strings.Contains(log.String(), `level=WARN msg="The watch has ended"`) ||
			!strings.Contains(log.String(), "may not watch") {
			t.Error(log.String())
		}
	})
}

// In "kubectl get leases" a holder of the table would look like a leader.
func TestTableHasNoHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		mustJoin(t, store, Config{})
		time.Sleep(2 * time.Second)
		r, err := store.Get(t.Context(), "g-table")
		if err != nil || r.Holder != "" || r.Renewed.IsZero() {
			t.Error(r, err)
		}
	})
}

// A handover counts when the table shows it, not when it is tried. It does not count that a gives away a slot of
// a dead member, to which it had handed the slot over before.
func TestAttemptsAreNoHandovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofA := &faulty{Store: Memory()}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
		time.Sleep(2 * time.Second)
		ofA.refuse(errors.New("refused"), true)
		b := mustJoin(t, ofA.Store, Config{Name: "b", Slots: 2})
		time.Sleep(8 * time.Second) // b plans, and a cannot hand over.
		if st := a.Stats(); st.HandedOver != 0 {
			t.Errorf("%d slots count as handed over, and none is", st.HandedOver)
		}
		ofA.do(nil)
		time.Sleep(5 * time.Second)
		if st := a.Stats(); st.HandedOver != 1 || st.Held != 1 {
			t.Errorf("%d slots count as handed over, and %d are held, want 1 and 1", st.HandedOver, st.Held)
		}
		c := mustJoin(t, ofA.Store, Config{Name: "c", Slots: 2})
		b.end()
		time.Sleep(20 * time.Second)
		if wantHeld(t, 1, 1)(a, c); a.Stats().HandedOver != 1 {
			t.Errorf("%d slots count as handed over, want 1", a.Stats().HandedOver)
		}
	})
}
