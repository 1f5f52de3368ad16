package sharding

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// wantFacts fails unless the queue's facts have these names and values. A * in a value stands for anything.
func wantFacts(t *testing.T, q Queue[string], want ...string) {
	t.Helper()
	var lines []string
	for _, f := range q.Facts() {
		lines = append(lines, f.Name+": "+f.Value)
	}
	for _, w := range want {
		before, after, _ := strings.Cut(w, "*")
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, before) && strings.HasSuffix(line, after)
		}) {
			t.Errorf("no %q in\n%s", w, strings.Join(lines, "\n"))
		}
	}
}

// The debug page shows who holds what, and what moves.
func TestFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, name := &faulty{Store: Memory()}, func(name string) string { return name }
		a := mustJoin(t, store, Config{Name: "a", Slots: 4, HandoverTimeout: 4 * time.Second, newID: name})
		time.Sleep(time.Second)
		q := newQueueOf(a, QueueConfig[string]{Hash: inLastSlot})
		q.Add("stuck")
		_, _ = q.Get()
		wantFacts(t, q, "Member: a", "Group: g, 1 members",
			"In touch: yes", "Slots held: 4 of 4", "Slots of a: 4")
		mustJoin(t, store, Config{Name: "b", Slots: 4, newID: name})
		time.Sleep(4 * time.Second)
		wantFacts(t, q, "Group: g, 2 members", "Slots held: 3 of 4", "Slots of a: 3", "Slots of b: 1",
			"Move from a to b: 1 slots")
		store.away.Store(true)
		time.Sleep(20 * time.Second)
		wantFacts(t, q, "In touch: no: *the server is away", "Slots held: 0 of 4")
	})
}

// A listing that hangs or fails is on the page, and in Unlisted, until it succeeds or its queue shuts down.
func TestListingThatHangsIsVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m := mustJoin(t, Memory(), Config{Slots: 8, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(time.Second)
		answer := make(chan error)
		q := mustQueue(newRoot(), m, QueueConfig[string]{Name: "sites",
			Keys: func(context.Context) (iter.Seq[string], error) { return nil, <-answer }})
		time.Sleep(40 * time.Second)
		if n, age := q.Unlisted(); n != 8 || age != 40*time.Second {
			t.Error(n, age)
		}
		wantFacts(t, q, "Slots not listed yet: 8, for 40s: their keys are still unknown here; a listing runs")
		q.(*queue[string]).listLater([]int{0, 1}) // again, while they are being listed
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
		if !strings.Contains(log.String(), `failures=1 err="queue \"sites\": no such table"`) {
			t.Error(log.String())
		}
		q.(*queue[string]).listLater([]int{0, 1})
		synctest.Wait() // Now a listing runs.
		q.ShutDown()
		answer <- errors.New("no such table")
		time.Sleep(10 * time.Second)
		if n, _ := q.Unlisted(); n != 0 {
			t.Error("FAILURE: after ShutDown:", n)
		}
	})
}
