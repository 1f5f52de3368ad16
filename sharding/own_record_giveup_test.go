package sharding

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

// b renews its record and cannot use the table: it cannot read it, or it has got another Hash than the group.
// After a lease it gives its slots up. With another Hash it holds nothing from the first moment on, also if
// the server does not answer then.
func TestMemberThatCannotUseTable(t *testing.T) {
	for _, cause := range []string{"read", "hash", "both"} {
		synctest.Test(t, func(t *testing.T) {
			store := Memory()
			ofB := &hidden{Store: store}
			a := mustJoin(t, store, Config{Name: "a", Slots: 4})
			mustQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string]})
			b := mustJoin(t, ofB, Config{Name: "b", Slots: 4})
			time.Sleep(10 * time.Second)
			wantHeld(t, 2, 2)(a, b)
			id := b.ID()
			ofB.hides.Store(cause != "hash")
			if cause != "read" {
				mustQueue(newRoot(), b, QueueConfig[string]{Keys: noKeys[string],
					Hash: func(key string) uint64 { return HashString(key[:1]) }})
				wantHeld(t, 2, 0)(a, b)
			}
			wantNoSlotTwiceFor(t, 40*time.Second, a, b)
			wantHeld(t, 4, 0)(a, b)
			if b.Err() == nil || cause != "read" && !errors.Is(b.Err(), ErrIncompatible) {
				t.Error("FAILURE:", b.Err())
			}
			ofB.hides.Store(false)
			time.Sleep(10 * time.Second)
			if cause == "read" {
				wantHeld(t, 2, 2)(a, b)
			}
			if b.ID() == id {
				t.Error("FAILURE: it has not given up its record")
			}
		})
	}
}

// b cannot read the table, and one renewal in ten seconds fails. It gives its slots up all the same.
func TestMemberThatCannotUseTableAndFailsToRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		flaky := &refuser{Store: store}
		ofB := &hidden{Store: flaky}
		a := mustJoin(t, store, Config{Name: "a", Slots: 4})
		b := mustJoin(t, ofB, Config{Name: "b", Slots: 4})
		time.Sleep(10 * time.Second)
		wantHeld(t, 2, 2)(a, b)
		ofB.hides.Store(true)
		away := errors.New("away")
		for range 4 {
			time.Sleep(7 * time.Second)
			flaky.members.Store(&away)
			time.Sleep(5500 * time.Millisecond)
			flaky.members.Store(nil)
		}
		wantHeld(t, 4, 0)(a, b)
	})
}

// b has another Hash, and a handler of it never returns, so it cannot give up its record, which names another
// table than the new one. Or its record was made unreadable, and it is dead. The others do not wait for it
// forever.
func TestNewTableDoesNotWaitForever(t *testing.T) {
	for _, cause := range []string{"hash", "garbage"} {
		synctest.Test(t, func(t *testing.T) {
			server := newSimServer()
			store := Leases(server, "ns")
			a := mustJoin(t, store, Config{Name: "a", Slots: 2})
			mustQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string]})
			b := mustJoin(t, store, Config{Name: "b", Slots: 2})
			time.Sleep(10 * time.Second)
			wantHeld(t, 1, 1)(a, b)
			if cause == "garbage" {
				b.end()
				setData(server, "g-member-"+b.ID(), "garbage")
				time.Sleep(20 * time.Second)
				wantHeld(t, 2)(a)
				setData(server, "g-member-"+b.ID(), "garbage")
			} else {
				ints := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[uint64]())
				stuck := mustQueue(ints, b, QueueConfig[uint64]{Name: "ints", Keys: noKeys[uint64],
					Hash: func(key uint64) uint64 { return key << 63 }})
				stuck.Add(0)
				stuck.Add(1) // One of them is b's.
				_, _ = stuck.Get()
				expectQueues(b, "")
				mustQueue(newRoot(), b, QueueConfig[string]{Keys: noKeys[string],
					Hash: func(string) uint64 { return 1 << 63 }})
			}
			mustDelete(t, store, "g-table")
			time.Sleep(35 * time.Second)
			wantHeld(t, 2)(a)
		})
	}
}

// lateCreate is a store whose first Create of a member's record reports an error, and takes effect later.
type lateCreate struct {
	Store
	later time.Duration
	calls atomic.Int32
}

func (s *lateCreate) Create(ctx context.Context, r Record) (Record, error) {
	if r.Name == "g-table" || s.calls.Add(1) > 1 {
		return s.Store.Create(ctx, r)
	}
	time.AfterFunc(s.later, func() { _, _ = s.Store.Create(context.Background(), r) })
	return Record{}, errors.New("timeout")
}

// b's record is created late, when b goes on as another member already. The record, which nobody renews, gets
// no slots for a lease.
func TestMemberWhoseRecordIsCreatedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a := mustJoin(t, store, Config{Name: "a", Slots: 4})
		time.Sleep(10 * time.Second)
		b := mustJoin(t, &lateCreate{Store: store, later: 3 * time.Second}, Config{Name: "b", Slots: 4})
		time.Sleep(7 * time.Second)
		wantHeld(t, 2, 2)(a, b)
		if n := a.Stats().Members; n != 2 {
			t.Errorf("FAILURE: there are %d members", n)
		}
	})
}

// noNamespace is a store in a namespace that is not there.
type noNamespace struct {
	Store
	gone atomic.Bool
}

func (s *noNamespace) Create(ctx context.Context, r Record) (Record, error) {
	if s.gone.Load() {
		return Record{}, fmt.Errorf("%w: namespace g", ErrNotFound)
	}
	return s.Store.Create(ctx, r)
}

// A record cannot be created in a namespace that is not there. The error says so, and the member keeps its
// id.
func TestMemberInNamespaceThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &noNamespace{Store: Memory()}
		store.gone.Store(true)
		ids := 0
		config := Config{Group: "g", newID: func(name string) string {
			if name != "table" {
				ids++
			}
			return fmt.Sprint(name, "-", ids)
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := Join(ctx, store, config); !errors.Is(err, ErrNotFound) || ids != 1 {
			t.Errorf("FAILURE: %v after %d ids", err, ids)
		}
		time.AfterFunc(5*time.Second, func() { store.gone.Store(false) })
		m := mustJoin(t, store, Config{})
		time.Sleep(time.Second)
		wantHeld(t, 256)(m)
	})
}

// beforeMark is a store that calls a function once before a member marks its record.
type beforeMark struct {
	Store
	call atomic.Pointer[func()]
}

func (s *beforeMark) Update(ctx context.Context, r Record) (Record, error) {
	if d, err := decodeMember(r); err == nil && d.Dead {
		if call := s.call.Swap(nil); call != nil {
			(*call)()
		}
	}
	return s.Store.Update(ctx, r)
}

// When a gives up its record, that has another version already, by a renewal that comes late. a marks it
// nevertheless: otherwise the others would wait for a lease.
func TestMemberGivesUpRecordThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := Memory()
		marks := &beforeMark{Store: memory}
		ofA := &hidden{Store: marks}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
		time.Sleep(10 * time.Second)
		id := a.ID()
		var marked atomic.Int64
		renewal := func() {
			r := mustGet(t, memory, "g-member-"+id)
			if _, err := memory.Update(t.Context(), r); err != nil {
				t.Error(err)
			}
			marked.Store(time.Now().UnixNano())
		}
		marks.call.Store(&renewal)
		ofA.hides.Store(true)
		b := mustJoin(t, memory, Config{Name: "0", Slots: 2})
		for began := time.Now(); b.Stats().Held < 2 && time.Since(began) < time.Minute; {
			time.Sleep(100 * time.Millisecond)
		}
		if d := time.Since(time.Unix(0, marked.Load())); d > 3*time.Second {
			t.Errorf("FAILURE: it is marked after %v", d)
		}
	})
}

// slowForget is a queue whose Forget blocks.
type slowForget struct {
	workqueue.TypedRateLimitingInterface[string]
	until <-chan struct{}
}

func (q *slowForget) Forget(string) { <-q.until }

// A queue that blocks when keys are forgotten holds up no loop of the member: it goes on to renew its lease,
// and its validity ends in time.
func TestMemberWithQueueThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		store := &switchable{Store: Memory()}
		a := mustJoin(t, store, Config{Name: "a", Slots: 2, HandoverTimeout: 4 * time.Second})
		time.Sleep(time.Second)
		q := mustQueue[string](&slowForget{newRoot(), until}, a, QueueConfig[string]{Keys: noKeys[string],
			Hash: func(string) uint64 { return 1 << 63 }})
		q.Add("stuck")
		_, _ = q.Get()
		q.Add("aside")
		mustJoin(t, store, Config{Name: "b", Slots: 2})
		time.Sleep(2 * time.Second)
		ended := make(chan struct{})
		go func() { _, _ = q.Get(); close(ended) }() // It keeps the key aside.
		time.Sleep(time.Second)
		store.cutOff(true)
		time.Sleep(15 * time.Second)
		store.cutOff(false)
		time.Sleep(10 * time.Second)
		if err := a.Err(); err != nil {
			t.Error("FAILURE:", err)
		}
		store.cutOff(true)
		time.Sleep(15 * time.Second)
		if n := a.Stats().Held; n != 0 {
			t.Errorf("FAILURE: it holds %d slots", n)
		}
		close(until)
		q.ShutDown()
		<-ended
		store.cutOff(false)
		time.Sleep(time.Second)
	})
}
