package sharding

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// a may not write the table. If the server says so, a takes back what it wanted to hand over, and says why.
// If the writes might have come into effect, a cannot, and these slots rest. The slots that do not move stay
// all the time.
func TestMemberThatMustNotWriteTable(t *testing.T) {
	for _, refusal := range []error{fmt.Errorf("%w: quota", ErrRefused), errors.New("quota exceeded"),
		storeError(apierrors.NewForbidden(schema.GroupResource{}, "g-table", errors.New("quota")))} {
		synctest.Test(t, func(t *testing.T) {
			ofA := &faulty{Store: Memory()}
			a := mustJoin(t, ofA, Config{Name: "a", Slots: 4})
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
			if err := a.Err(); err == nil || !strings.Contains(err.Error(), "quota") {
				t.Error(err)
			}
			wantHeld(t, want, 0)(a, b)
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
