package sharding

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
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
		a := mustJoin(t, store, Config{Name: "a", Slots: 4, HandoverTimeout: 4 * time.Second, newID: func(name string) string { return name }})
		time.Sleep(time.Second)
		q := NewQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string], Hash: func(string) uint64 { return 1<<64 - 1 }})
		q.Add("stuck")
		if key, _ := q.Get(); key != "stuck" {
			t.Fatal(key)
		}
		wantFacts(t, q, "Member: a", "Group: g, 1 members", "In touch: yes, and for 1*s more if it cannot renew its lease", "Slots held: 4 of 4", "Slots of a: 4", "Keys of others: 0 dropped")
		mustJoin(t, store, Config{Name: "b", Slots: 4, newID: func(name string) string { return name }})
		time.Sleep(3 * time.Second)
		wantFacts(t, q, "Group: g, 2 members", "Slots held: 3 of 4", "Slots of a: 3", "Slots of b: 1", "Move from a to b: 1 slots for 2*s, waiting for 1 handlers")
		time.Sleep(6 * time.Second)
		wantFacts(t, q, "Slots that cannot move: 1: handlers do not return although their contexts have ended; next try in *s")
		store.away.Store(true)
		time.Sleep(20 * time.Second)
		wantFacts(t, q, "In touch: no: the server is away", "Slots held: 0 of 4")
	})
}

func TestFactsOfManyMembers(t *testing.T) {
	var slots []Slot
	for i := range 100 {
		slots = append(slots, Slot{Holder: fmt.Sprint("m", i), Next: fmt.Sprint("n", i)})
	}
	facts := factsOf(slots)
	if n := len(facts); n != 2*maxFacts+1 {
		t.Errorf("%d facts", n)
	}
	if f := facts[maxFacts]; f.Value != "90 more members" {
		t.Error(f)
	}
}

// Causes get through, to a queue that keeps them and to one that does not, and a key that was kept aside has its own again.
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
		q := NewQueue(inner, m, QueueConfig[string]{Keys: noKeys[string]})
		causes, notifier := q.(workqueue.CauseAdder[string]), q.(workqueue.AddNotifier[string])
		_, keeps := inner.(workqueue.CauseAdder[string])
		want := ""
		if keeps {
			want = because.Reason
		}
		priority := 0
		if name == "low priority" {
			priority = -100
			inner.(*priorityqueue.Queue[string]).AddWithOpts(priorityqueue.AddOpts{Priority: priority, Cause: &because}, "key")
		} else {
			causes.AddCause("key", because)
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
		(*m.queues.Load())[0].settled([]int{0})
		if key := <-got; key != "key" || causes.Causes(key).String() != want {
			t.Errorf("%s: %s because of %q", name, key, causes.Causes(key))
		}
		if p, ok := inner.(worker.PriorityQueue[string]); ok && p.PriorityOf("key") != priority {
			t.Errorf("%s: it comes back with priority %d, not %d", name, p.PriorityOf("key"), priority)
		}
		again := notifier.AddedAgain("key")
		if (again != nil) != keeps {
			t.Errorf("%s: AddedAgain returns %v", name, again)
		}
		q.Add("key")
		if keeps {
			<-again
		}
		m.setState(0, absent)
		if causes.AddCause("other", because); q.Len() != 0 || q.KeysOfOthers() != 1 {
			t.Errorf("%s: a key of another replica was added", name)
		}
	}
}

func (q *queue[T]) queuedForTest() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.parked[0])
}

// With FinishQueued a slot moves when what was queued of it is handled, or after HandoverTimeout.
func TestFinishQueued(t *testing.T) {
	for _, test := range []struct {
		takes   time.Duration
		handled int
	}{{100 * time.Millisecond, 20}, {time.Second, 5}} {
		synctest.Test(t, func(t *testing.T) {
			store := Memory()
			a := mustJoin(t, store, Config{Name: "a", Slots: 2, HandoverTimeout: 4 * time.Second})
			time.Sleep(time.Second)
			q := NewQueue(newRoot(), a, QueueConfig[string]{
				Keys: noKeys[string], FinishQueued: true,
				Hash: func(string) uint64 { return 1 << 63 }, // All keys are in the slot that is to move.
			})
			for i := range 20 {
				q.Add(fmt.Sprint("deleted-", i)) // No list has them.
			}
			handled := 0
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- worker.Run(ctx, q, func(ctx context.Context, key string) error {
					time.Sleep(test.takes)
					handled++
					return nil
				}, worker.Options[string]{Workers: 1})
			}()
			mustJoin(t, store, Config{Name: "b", Slots: 2})
			time.Sleep(8 * time.Second)
			wantHeld(t, 1)(a)
			if handled != test.handled {
				t.Errorf("%d keys are handled, want %d", handled, test.handled)
			}
			cancel()
			<-ended
		})
	}
}

func TestFinishQueuedNeedsAReader(t *testing.T) {
	defer func() {
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "KeyReader") {
			t.Error(v)
		}
	}()
	inner := struct {
		workqueue.TypedRateLimitingInterface[string]
	}{newRoot()}
	NewQueue(inner, holdingAll(1), QueueConfig[string]{Keys: noKeys[string], FinishQueued: true})
}
