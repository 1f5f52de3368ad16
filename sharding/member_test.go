package sharding

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Members come and go, as in the package comment.
func TestJoinAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a := mustJoin(t, store, Config{Name: "a"})
		time.Sleep(time.Second)
		wantHeld(t, 256)(a)
		b, c := mustJoin(t, store, Config{Name: "b"}), mustJoin(t, store, Config{Name: "c"})
		time.Sleep(2 * time.Second)
		wantHeld(t, 86, 85, 85)(a, b, c)
		began := time.Now()
		if err := b.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("Leave took %v", d)
		}
		time.Sleep(time.Second)
		wantHeld(t, 128, 0, 128)(a, b, c)
		a.end() // It is killed.
		time.Sleep(16 * time.Second)
		if st := c.Stats(); st.Held != 256 || st.Members != 1 {
			t.Errorf("%+v", st)
		}
		if err := c.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		d := mustJoin(t, store, Config{Name: "d"})
		time.Sleep(time.Second)
		wantHeld(t, 256)(d)
		time.Sleep(time.Second)
		if records, _, err := store.List(t.Context(), "g"); len(records) != 2 || err != nil {
			t.Errorf("there are %v, %v, want the table and d", records, err)
		}
	})
}

// In a stable group each member writes three times in a lease.
func TestStableGroupWritesLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: Memory()}
		for i := range 5 {
			mustJoin(t, store, Config{Name: fmt.Sprint("m", i)})
		}
		time.Sleep(10 * time.Second)
		_, before, _ := store.List(t.Context(), "g") // In a memory store, versions count changes.
		time.Sleep(150 * time.Second)
		_, after, _ := store.List(t.Context(), "g")
		from, _ := strconv.Atoi(before)
		to, _ := strconv.Atoi(after)
		if n := to - from; n < 145 || n > 155 {
			t.Errorf("%d writes in ten leases of five members, want 150", n)
		}
		if n := store.watches.Load(); n != 5 {
			t.Errorf("five members watched %d times, want once each", n)
		}
	})
}

// A handler that does not return keeps its slot: its context ends after HandoverTimeout, and the slot moves
// as soon as it has returned and the member tries again.
func TestHandoverTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a := mustJoin(t, store, Config{Name: "a", Slots: 1, HandoverTimeout: 4 * time.Second})
		time.Sleep(time.Second)
		q := mustQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string]})
		q.Add("stuck")
		key, _ := q.Get()
		ctx, release := q.Lease(t.Context(), key)
		first, _ := Fence(ctx)
		go func() { // The slot can move only if its member leaves.
			_ = a.Leave(context.Background())
		}()
		b := mustJoin(t, store, Config{Name: "b", Slots: 1})
		time.Sleep(3 * time.Second)
		if ctx.Err() != nil || b.Stats().Held != 0 {
			t.Error("too early", context.Cause(ctx), b.Stats())
		}
		q.Add("other")
		got := make(chan string, 1)
		go func() {
			key, err := q.GetContext(t.Context())
			got <- fmt.Sprint(key, err)
		}()
		time.Sleep(2 * time.Second)
		if err := context.Cause(ctx); !errors.Is(err, ErrHandover) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if b.Stats().Held != 0 || len(got) > 0 {
			t.Error("the slot moved although a handler runs")
		}
		release()
		q.Done(key)
		time.Sleep(time.Second)
		wantHeld(t, 0, 1)(a, b)
		later := mustQueue(newRoot(), b, QueueConfig[string]{Keys: listOf("stuck")})
		key, _ = later.Get()
		ctx, release = later.Lease(t.Context(), key)
		defer release()
		if second, ok := Fence(ctx); !ok || second <= first {
			t.Errorf("epoch %d after %d", second, first)
		}
		q.ShutDown()
		<-got
	})
}

// Queues share a member: a slot is handed over when all of them are done with it, and each lists its own
// keys.
func TestSeveralQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		list := func(key string) QueueConfig[string] {
			return QueueConfig[string]{Name: key, Keys: listOf(key)}
		}
		a := mustJoin(t, store, Config{Name: "a", Slots: 1, Queues: []string{"first", "second"}})
		first, second := mustQueue(newRoot(), a, list("first")), mustQueue(newRoot(), a, list("second"))
		one, _ := first.Get()
		two, _ := second.Get()
		if one != "first" || two != "second" {
			t.Error(one, two)
		}
		b := mustJoin(t, store, Config{Name: "b", Slots: 1})
		go func() { _ = a.Leave(context.Background()) }()
		for _, done := range []func(){func() { first.Done(one) }, func() { second.Done(two) }} {
			time.Sleep(time.Second)
			wantHeld(t, 0)(b)
			done()
		}
		time.Sleep(time.Second)
		wantHeld(t, 1)(b)
	})
}

// A hundred members (fewer with the race detector) divide 4,096 slots, and a member that leaves is replaced.
func TestHundredMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, count := Memory(), 100
		if testkit.RaceEnabled {
			count = 20 // The time grows with the square: a hundred take minutes then.
		}
		var members []*Member
		for i := range count {
			members = append(members, mustJoin(t, store, Config{Name: fmt.Sprint("m", i), Slots: maxSlots}))
		}
		time.Sleep(5 * time.Second)
		even := func() {
			t.Helper()
			sum := 0
			for _, m := range members {
				n := m.Stats().Held
				sum += n
				if less := n - maxSlots/len(members); less != 0 && less != 1 {
					t.Errorf("%s holds %d slots", m.ID(), n)
				}
			}
			if sum != maxSlots {
				t.Errorf("%d slots are held", sum)
			}
		}
		even()
		if err := members[0].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		members = append(members[1:], mustJoin(t, store, Config{Name: "new", Slots: maxSlots}))
		time.Sleep(5 * time.Second)
		even()
	})
}

// A member keeps a slot whose handler does not return. A handler's answer is ignored after its context has ended
// because the slot was to move. So the key is handled again, as the slot's next holder would have done.
func TestSlotStaysAndItsKeysAreHandledAgain(t *testing.T) {
	for _, answer := range []error{errors.New("interrupted"), worker.RequeueAfter(time.Second), context.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			store := Memory()
			a := mustJoin(t, store, Config{Name: "a", Slots: 2, HandoverTimeout: 4 * time.Second})
			time.Sleep(time.Second)
			q := mustQueue(newRoot(), a, QueueConfig[string]{Keys: listOf("key"),
				Hash: func(string) uint64 { return 1 << 63 }}) // The slot that is to move.
			var calls atomic.Int64
			pool := worker.New(q, func(ctx context.Context, _ string) error {
				if calls.Add(1) > 1 {
					return nil
				}
				<-ctx.Done()
				time.Sleep(3 * time.Second) // The member keeps the slot after two.
				return answer
			}, worker.Options[string]{})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- pool.Run(ctx) }()
			time.Sleep(time.Second)
			mustJoin(t, store, Config{Name: "b", Slots: 2})
			time.Sleep(14 * time.Second)
			if st := a.Stats(); st.Kept != 1 || st.Held != 2 {
				t.Errorf("%+v", st)
			}
			if st := pool.Stats(); calls.Load() != 2 || st.Failed != 0 {
				t.Errorf("after %v: %d calls, %+v", answer, calls.Load(), st)
			}
			time.Sleep(10 * time.Second) // Now the slot is tried again.
			wantHeld(t, 1)(a)
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// While the server is away, members work until their validity ends, and come back by themselves.
func TestServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: Memory()}
		m := mustJoin(t, store, Config{Name: "a"})
		time.Sleep(time.Second)
		var lists atomic.Int64
		q := mustQueue(newRoot(), m, QueueConfig[string]{Keys: func(context.Context) (iter.Seq[string], error) {
			lists.Add(1)
			return slices.Values([]string{"a"}), nil
		}})
		key, _ := q.Get()
		ctx, release := q.Lease(t.Context(), key)
		defer release()
		store.away.Store(true)
		time.Sleep(8 * time.Second) // The last renewal was at most five seconds ago.
		if ctx.Err() != nil || m.Err() != nil {
			t.Error("too early", context.Cause(ctx), m.Err())
		}
		time.Sleep(6 * time.Second)
		if err := context.Cause(ctx); !errors.Is(err, leasing.ErrLost) {
			t.Error(err)
		}
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), "the server is away") {
			t.Error(err)
		}
		if q.Add("b"); q.Len() != 0 || q.Holds("b") {
			t.Error("it holds slots")
		}
		time.Sleep(5 * time.Minute)
		store.away.Store(false)
		time.Sleep(2 * time.Second)
		if m.Err() != nil || lists.Load() != 2 || m.Stats().Held != 256 || m.Stats().Lost != 256 {
			t.Error(m.Err(), lists.Load(), m.Stats())
		}
	})
}

func TestJoinRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		mustJoin(t, store, Config{Name: "a"})
		time.Sleep(time.Second)
		if _, err := Join(t.Context(), store, Config{Group: "g", Slots: 8}); !errors.Is(err, ErrIncompatible) {
			t.Error(err)
		}
		r, _ := store.Get(t.Context(), "g-table")
		r.Data = strings.Replace(r.Data, `"format":1`, `"format":2`, 1)
		if _, err := store.Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if _, err := Join(t.Context(), store, Config{Group: "g"}); !errors.Is(err, ErrIncompatible) {
			t.Error(err)
		}
		for _, wrong := range []Config{{}, {Group: "G"}, {Group: "g-"}, {Group: strings.Repeat("g", 41)},
			{Group: "g", Slots: 5000},
			{Group: "g", Slots: -1}, {Group: "g", HandoverTimeout: -1}} {
			if _, err := Join(t.Context(), store, wrong); err == nil || errors.Is(err, ErrIncompatible) {
				t.Errorf("%+v: %v", wrong, err)
			}
		}
		away := &faulty{Store: Memory()}
		away.away.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := Join(ctx, away, Config{Group: "g"}); err == nil ||
			!strings.Contains(err.Error(), "the server is away") {
			t.Error(err)
		}
	})
}

// Over package priorityqueue priorities get through.
func TestPriorities(t *testing.T) {
	inner := priorityqueue.New(priorityqueue.Config[string]{})
	q := mustQueue(inner, holdingAll(4), QueueConfig[string]{Keys: noKeys[string]})
	if p, ok := q.(operate.Operable[string]); !ok {
		t.Error("it has no priorities")
	} else {
		p.AddWithPriority("high", 7, 0)
	}
	if _, ok := mustQueue(newRoot(), holdingAll(4),
		QueueConfig[string]{Keys: noKeys[string]}).(operate.Operable[string]); ok {
		t.Error("a queue without priorities has some")
	}
	if key, _ := q.Get(); key != "high" || q.(operate.Operable[string]).PriorityOf("high") != 7 {
		t.Error(key)
	}

	m := holdingAll(4)
	listed := QueueConfig[string]{Keys: listOf("listed"), ListPriority: -100}
	o := mustQueue(priorityqueue.New(priorityqueue.Config[string]{}), m, listed)
	o.(operate.Operable[string]).AddWithPriority("a", 3, 0)
	o.(operate.Operable[string]).AddWithPriority("b", 3, 0)
	var got []string
	for range 3 {
		h, err := o.Next(t.Context())
		got = append(got, fmt.Sprint(h.Key, h.Priority))
		if err != nil {
			t.Error(err)
		}
	}
	if slices.Sort(got); !slices.Equal(got, []string{"a3", "b3", "listed-100"}) {
		t.Error(got)
	}
	for s := range m.slots {
		m.setState(s, absent)
	}
	o.AddCause("c", workqueue.Cause{})
	if o.(operate.Operable[string]).AddWithPriority("c", 1, 0); o.Len() != 0 {
		t.Error("a key of another replica was added")
	}
}
