package sharding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
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
		store := &switchable{Store: Memory()}
		a := mustJoin(t, store, Config{Name: "a", Slots: 4, HandoverTimeout: 4 * time.Second,
			newID: func(name string) string { return name }})
		time.Sleep(time.Second)
		q := mustQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string],
			Hash: func(string) uint64 { return 1<<64 - 1 }})
		q.Add("stuck")
		if key, _ := q.Get(); key != "stuck" {
			t.Fatal(key)
		}
		wantFacts(t, q, "Member: a", "Group: g, 1 members",
			"In touch: yes, and for 1*s more if it cannot renew its lease", "Slots held: 4 of 4", "Slots of a: 4",
			"Keys of others: 0 dropped")
		mustJoin(t, store, Config{Name: "b", Slots: 4, newID: func(name string) string { return name }})
		time.Sleep(4 * time.Second)
		wantFacts(t, q, "Group: g, 2 members", "Slots held: 3 of 4", "Slots of a: 3", "Slots of b: 1",
			"Move from a to b: 1 slots for 2*s, waiting for 1 handlers")
		time.Sleep(6 * time.Second)
		wantFacts(t, q,
			"Slots that cannot move: 1: handlers do not return although their contexts have ended; next try in *s")
		store.away.Store(true)
		time.Sleep(20 * time.Second)
		wantFacts(t, q, "In touch: no for *: the server is away", "Slots held: 0 of 4")
	})
}

// cutOff is a store whose calls all fail while it is away, those for the record of member b with another
// error than the rest.
type cutOff struct {
	Store
	away atomic.Bool
}

func (s *cutOff) Get(ctx context.Context, name string) (Record, error) {
	switch {
	case s.away.Load() && name == "g-member-b":
		return Record{}, errors.New("cannot bury a healthy peer")
	case s.away.Load():
		return Record{}, errors.New("no route")
	}
	return s.Store.Get(ctx, name)
}

func (s *cutOff) List(ctx context.Context, group string) ([]Record, string, error) {
	if s.away.Load() {
		return nil, "", errors.New("no list")
	}
	return s.Store.List(ctx, group)
}

func (s *cutOff) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	return s.Store.Watch(ctx, group, version, func(e Event) {
		if !s.away.Load() {
			changed(e)
		}
	})
}

func (s *cutOff) Update(ctx context.Context, r Record) (Record, error) {
	if s.away.Load() {
		return Record{}, errors.New("no route")
	}
	return s.Store.Update(ctx, r)
}

func (s *cutOff) Delete(ctx context.Context, name, version string) error {
	if s.away.Load() {
		return errors.New("cannot bury a healthy peer")
	}
	return s.Store.Delete(ctx, name, version)
}

// The page of a member that is cut off says since when and why, and how old is what it knows of the others.
func TestFactsOfMemberThatIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA := &cutOff{Store: store}
		name := func(name string) string { return name }
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 4, newID: name})
		mustJoin(t, store, Config{Name: "b", Slots: 4, newID: name})
		time.Sleep(5 * time.Second)
		q := mustQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string]})
		wantFacts(t, q, "Slots of b: 2", "Group: g, 2 members")
		ofA.away.Store(true)
		began := time.Now()
		for range 2000 { // Whatever has failed last.
			time.Sleep(50 * time.Millisecond)
			if err := a.Err(); err != nil && !strings.Contains(err.Error(), "no route") {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		wantFacts(t, q, "Group: g", "In touch: no for 1m*: no route", "Slots of a: 2, 1m*s ago",
			"Slots of b: 2, 1m*s ago")
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
		q := mustQueue(newRoot(), m, QueueConfig[string]{Keys: noKeys[string]})
		if st := m.Stats(); st.Err != nil || st.Queues != 1 {
			t.Errorf("%+v", st)
		}
		wantFacts(t, q, "Queues: 1")
	})
}

// If members have different queues, the page names those with fewer: keys of some queues are not handled.
func TestFactsNameMembersWithFewerQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, name := Memory(), func(name string) string { return name }
		a := mustJoin(t, store, Config{Name: "a", newID: name, Queues: []string{"sites", "teams"}})
		q := newQueueOf(a, QueueConfig[string]{Name: "sites"})
		newQueueOf(a, QueueConfig[string]{Name: "teams"})
		b := mustJoin(t, store, Config{Name: "canary", newID: name})
		time.Sleep(10 * time.Second)
		wantFacts(t, q, "Queues: 3; keys of some queues are not handled: canary has 1") // mustJoin makes one
		wantFacts(t, newQueueOf(b, QueueConfig[string]{}), "Queues: 2")
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
		mustJoin(t, &noWatch{Memory()}, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !strings.Contains(log.String(), `level=WARN msg="The watch has ended"`) ||
			!strings.Contains(log.String(), "may not watch") {
			t.Error(log.String())
		}
	})
}

type noWatch struct{ Store }

func (*noWatch) Watch(context.Context, string, string, func(Event)) error {
	return errors.New("may not watch")
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

func TestFactsOfManyMembers(t *testing.T) {
	var slots []Slot
	for i := range 100 {
		slots = append(slots, Slot{Holder: fmt.Sprint("m", i), Next: fmt.Sprint("n", i)})
	}
	facts := factsOf(slots, "")
	if n := len(facts); n != 2*maxFacts+1 {
		t.Errorf("%d facts", n)
	}
	if f := facts[maxFacts]; f.Value != "90 more members" {
		t.Error(f)
	}
}

// Causes get through, to a queue that keeps them and to one that does not. A key that was kept aside comes
// back with its priority.
func TestCauses(t *testing.T) {
	because := workqueue.Cause{Reason: "Secret default/db changed"}
	for name, inner := range map[string]workqueue.TypedRateLimitingInterface[string]{
		"root": newRoot(), "priorityqueue": priorityqueue.New(priorityqueue.Config[string]{}),
		"low priority": priorityqueue.New(priorityqueue.Config[string]{}),
		"without causes": struct {
			workqueue.TypedRateLimitingInterface[string]
		}{newRoot()},
	} {
		m := holdingAll(1)
		q := mustQueue(inner, m, QueueConfig[string]{Keys: noKeys[string]})
		priority := 0
		if name == "low priority" {
			priority = -100
			inner.(*priorityqueue.Queue[string]).AddWithOpts(priorityqueue.AddOpts{Priority: priority,
				Cause: &because}, "key")
		} else {
			q.AddCause("key", because)
		}
		m.setState(0, stopping)
		got := make(chan string)
		go func() { key, _ := q.Get(); got <- key }()
		for deadline, parked := time.Now().Add(10*time.Second), false; !parked; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the key is not parked")
			}
			below := q.(interface{ queuedForTest() int })
			parked = below.queuedForTest() == 1
		}
		m.setState(0, held)
		(*m.queues.Load())[0].noLongerStopping([]int{0})
		if key := <-got; key != "key" {
			t.Errorf("%s: %s", name, key)
		}
		if p, ok := inner.(operate.Operable[string]); ok && p.PriorityOf("key") != priority {
			t.Errorf("%s: it comes back with priority %d, not %d", name, p.PriorityOf("key"), priority)
		}
		again := q.AddedAgain("key")
		q.Add("key")
		<-again
		m.setState(0, absent)
		if q.AddCause("other", because); q.Len() != 0 || q.KeysOfOthers() != 1 {
			t.Errorf("%s: a key of another replica was added", name)
		}
	}
}

func (q *queue[T]) queuedForTest() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.aside[0])
}

// refusing is a store that does not write the table while it refuses.
type refusing struct {
	Store
	refuses atomic.Bool
}

func (s *refusing) Update(ctx context.Context, r Record) (Record, error) {
	if s.refuses.Load() && strings.HasSuffix(r.Name, "-table") {
		return Record{}, errors.New("refused")
	}
	return s.Store.Update(ctx, r)
}

// A handover counts when the table shows it, not when it is tried.
func TestAttemptsAreNoHandovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA := &refusing{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 4})
		time.Sleep(2 * time.Second)
		ofA.refuses.Store(true)
		mustJoin(t, store, Config{Name: "b", Slots: 4})
		time.Sleep(8 * time.Second) // b plans, and a cannot hand over.
		if st := a.Stats(); st.HandedOver != 0 {
			t.Errorf("%d slots count as handed over, and none is", st.HandedOver)
		}
		ofA.refuses.Store(false)
		time.Sleep(5 * time.Second)
		if st := a.Stats(); st.HandedOver != 2 || st.Held != 2 {
			t.Errorf("%d slots count as handed over, and %d are held, want 2 and 2", st.HandedOver, st.Held)
		}
	})
}
