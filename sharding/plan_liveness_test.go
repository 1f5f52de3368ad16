package sharding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// a may not write the table. If the server says so, a takes back what it wanted to hand over, and says why.
// If the writes might have come into effect, a cannot, before b has written the table. The slots that do not
// move stay all the time.
func TestMemberThatMustNotWriteTable(t *testing.T) {
	for _, refusal := range []error{fmt.Errorf("%w: quota", ErrRefused), errors.New("quota exceeded"),
		apierrors.NewForbidden(schema.GroupResource{}, "g-table", errors.New("quota"))} {
		synctest.Test(t, func(t *testing.T) {
			ofA := &faulty{Store: Memory()}
			a := mustJoin(t, ofA, Config{Name: "a", Slots: 4})
			q := newQueueOf(a, QueueConfig[string]{})
			time.Sleep(10 * time.Second)
			id := a.ID()
			ofA.refuse(refusal, true)
			b := mustJoin(t, ofA.Store, Config{Name: "0", Slots: 4}) // It writes the plan.
			time.Sleep(5 * time.Second)
			certain, want := refusal.Error() != "quota exceeded", 4
			if !certain {
				want = 2
			}
			time.Sleep(7 * time.Millisecond) // not at the moment of a try
			for range 250 {
				if n := a.Stats().Held; n != want {
					t.Fatalf("FAILURE: %v: a holds %d slots", refusal, n)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if certain {
				wantFacts(t, q, "Slots that cannot move: 2: the table cannot be stored; next try in *s")
			}
			if err := a.Err(); err == nil || !strings.Contains(err.Error(), "quota") {
				t.Error(err)
			}
			time.Sleep(20 * time.Second)
			wantNoSlotTwice(t, a, b)
			if sum := a.Stats().Held + b.Stats().Held; sum != 4 {
				t.Errorf("FAILURE: %d of 4 slots are held", sum)
			}
			ofA.do(nil)
			time.Sleep(45 * time.Second)
			wantHeld(t, 2, 2)(a, b)
			if err := a.Err(); err != nil || a.ID() != id {
				t.Errorf("FAILURE: %s continues as %s: %v", id, a.ID(), err)
			}
		})
	}
}

// The server refuses the table to all. A member that joins gets nothing, and both say why, although they are
// in touch.
func TestPlanThatIsRefused(t *testing.T) {
	for _, refusal := range []error{fmt.Errorf("%w: quota", ErrRefused), errors.New("no answer: quota")} {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: Memory()}
			a := mustJoin(t, store, Config{Name: "a", Slots: 4})
			q := newQueueOf(a, QueueConfig[string]{})
			time.Sleep(10 * time.Second)
			store.refuse(refusal, true)
			b := mustJoin(t, store, Config{Name: "b", Slots: 4})
			time.Sleep(20 * time.Second)
			for _, m := range []*Member{a, b} {
				if st := m.Stats(); !errors.Is(st.Err, refusal) || !st.InTouch {
					t.Errorf("FAILURE: in touch %t: %v", st.InTouch, st.Err)
				}
			}
			wantFacts(t, q, "In touch: yes*", "Problem: sharding: cannot write the table: *quota")
			store.do(nil)
			time.Sleep(20 * time.Second)
			wantHeld(t, 2, 2)(a, b)
			if a.Err() != nil {
				t.Errorf("FAILURE: %v", a.Err())
			}
		})
	}
}

// a is taken for dead and leaves as a new member, before b, which leaves too and waits for a handler, has
// renewed its record. a hands over to nobody then, and b does not give it the slots back, again and again.
func TestNewMemberLeavesBesideOneThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: &distant{Store: Memory(), trip: 10 * time.Millisecond}}
		a := mustJoin(t, store, Config{Name: "a", Slots: 4})
		b := mustJoin(t, store, Config{Name: "b", Slots: 4, HandoverTimeout: time.Hour})
		time.Sleep(10 * time.Second)
		wantHeld(t, 2, 2)(a, b)
		var keys []string
		for i := range 20 {
			keys = append(keys, fmt.Sprint("key-", i))
		}
		q := mustQueue(newRoot(), b, QueueConfig[string]{Keys: listOf(keys...)})
		key, _ := q.Get()
		time.Sleep(5 * time.Second)
		go func() { _ = b.Leave(context.Background()) }()
		time.Sleep(time.Second)
		r := mustGet(t, store, "g-member-"+a.ID())
		r.Data = strings.TrimSuffix(r.Data, "}") + `,"dead":true}`
		if _, err := store.Update(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		before := store.updates.Load()
		go func() { _ = a.Leave(context.Background()) }()
		time.Sleep(4 * time.Second)
		if n := store.updates.Load() - before; n > 20 {
			t.Errorf("FAILURE: %d updates in four seconds", n)
		}
		q.Done(key)
		time.Sleep(20 * time.Second)
		q.ShutDown()
	})
}

// A proxy repeats the request to end a's life. That costs no second lease.
func TestMemberIsTakenForDeadByDoubledRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _, ofB := two(t, Memory(), 4)
		ofB.do(func(verb string, r Record) error {
			if verb == "update" && strings.Contains(r.Data, `"dead":true`) {
				_, _ = ofB.Store.Update(t.Context(), r)
			}
			return nil
		})
		a.end()
		time.Sleep(17 * time.Second)
		wantHeld(t, 4)(b)
	})
}

// The server is away, almost until leases end or for longer, and the members come back one after the other.
// None takes the others for dead.
func TestMembersComeBackAfterOutage(t *testing.T) {
	for _, away := range []time.Duration{8200 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) { comeBackAfterOutage(t, away) })
	}
}

func comeBackAfterOutage(t *testing.T, away time.Duration) {
	memory := Memory()
	var stores []*faulty
	var members []*Member
	ids := make(map[string]bool)
	for i := range 9 {
		stores = append(stores, &faulty{Store: memory})
		members = append(members, mustJoin(t, stores[i], Config{Name: fmt.Sprint("m", i), Slots: 9}))
		ids[members[i].ID()] = true
		time.Sleep(550 * time.Millisecond) // They renew their records one after the other.
	}
	time.Sleep(10 * time.Second)
	for _, s := range stores {
		s.cutOff(true)
	}
	time.Sleep(away)
	slices.Reverse(stores)
	for _, s := range stores {
		s.cutOff(false) // The last to renew its record comes first.
		time.Sleep(300 * time.Millisecond)
	}
	time.Sleep(3 * time.Second)
	for _, m := range members {
		if wantHeld(t, 1)(m); !ids[m.ID()] {
			t.Errorf("FAILURE: after %v, %s was taken for dead", away, m.ID())
		}
	}
}

// Two replicas with other Slots start on an empty store. The one whose table is there works; the other one
// gets nothing, also if its record was there first.
func TestMembersWithOtherSlots(t *testing.T) {
	for range 10 {
		synctest.Test(t, startWithOtherSlots)
	}
}

func startWithOtherSlots(t *testing.T) {
	store := &distant{Store: Memory(), trip: 10 * time.Millisecond}
	var members [2]*Member
	var joins sync.WaitGroup
	for i := range members {
		joins.Go(func() {
			members[i], _ = Join(t.Context(), store, Config{Group: "g", Name: fmt.Sprint("m", i), Slots: 4 + 4*i})
			addIdleQueue(members[i])
		})
	}
	joins.Wait()
	time.Sleep(5 * time.Second)
	for _, m := range members {
		t.Cleanup(func() { m.end(); time.Sleep(time.Second) }) // Calls return.
	}
	works, other := members[0], members[1]
	if works.Err() != nil {
		works, other = other, works
	}
	if n := works.Stats().Held; n != len(works.slots) { // The other one still has its record.
		t.Errorf("FAILURE: %d of %d slots are held", n, len(works.slots))
	}
	time.Sleep(time.Minute)
	if n := works.Stats().Held; n != len(works.slots) || !errors.Is(other.Err(), ErrIncompatible) {
		t.Errorf("FAILURE: %d of %d slots are held: %v", n, len(works.slots), other.Err())
	}
}
