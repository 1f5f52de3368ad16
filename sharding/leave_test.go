package sharding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// withoutDelete returns a store that answers each Delete with err.
func withoutDelete(store Store, err error) *faulty {
	s := &faulty{Store: store}
	s.do(func(verb string, _ Record) error {
		if verb == "delete" {
			return err
		}
		return nil
	})
	return s
}

// mustLeave fails if Leave, with a context that does not end, takes longer than limit.
func mustLeave(t *testing.T, m *Member, limit time.Duration) error {
	t.Helper()
	began := time.Now()
	err := m.Leave(context.Background())
	if d := time.Since(began); d > limit {
		t.Errorf("FAILURE: Leave took %v", d)
	}
	return err
}

// Members that leave at the same moment leave no record behind that the table names and that is gone: those
// who join next would wait for a lease.
func TestMembersLeaveTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &distant{Store: Memory(), trip: 25 * time.Millisecond}
		a, b := mustJoin(t, store, Config{Name: "a", Slots: 4}), mustJoin(t, store, Config{Name: "b", Slots: 4})
		time.Sleep(10 * time.Second)
		wantHeld(t, 2, 2)(a, b)
		var leaves sync.WaitGroup
		for _, m := range []*Member{a, b} {
			leaves.Go(func() {
				if err := mustLeave(t, m, 3*time.Second); err != nil {
					t.Error(err)
				}
			})
		}
		leaves.Wait()
		c := mustJoin(t, store, Config{Name: "c", Slots: 4})
		time.Sleep(2 * time.Second)
		wantHeld(t, 4)(c)
		time.Sleep(20 * time.Second)
		if records, _, _ := store.List(t.Context(), "g"); len(records) != 2 {
			t.Errorf("FAILURE: they have left records behind: %v", records)
		}
		c.end()
		time.Sleep(time.Second)
	})
}

// Leave ends where the server refuses to delete, where it refuses all writes of the table, and when the
// member has no record.
func TestMemberLeavesWhereWritesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := Memory()
		a := mustJoin(t, withoutDelete(memory, ErrRefused), Config{Name: "a", Slots: 2})
		time.Sleep(time.Second)
		if err := mustLeave(t, a, 5*time.Second); err != nil {
			t.Error(err)
		}
		ofB := &faulty{Store: memory}
		b := mustJoin(t, ofB, Config{Name: "b", Slots: 2})
		time.Sleep(2 * time.Second)
		wantHeld(t, 2)(b)
		ofB.refuse(fmt.Errorf("%w: quota", ErrRefused), true)
		if err := mustLeave(t, b, 20*time.Second); err != nil {
			t.Error(err)
		}
		ofC := &faulty{Store: memory}
		c := mustJoin(t, ofC, Config{Name: "c", Slots: 2})
		time.Sleep(2 * time.Second)
		wantHeld(t, 2)(c) // b has marked its record.
		ofC.do(func(verb string, _ Record) error {
			if verb == "create" {
				return errors.New("no answer")
			}
			return nil
		})
		mustDelete(t, memory, "g-member-"+c.ID())
		time.Sleep(time.Second)
		if err := mustLeave(t, c, 5*time.Second); err != nil {
			t.Error(err)
		}
	})
}

// A second Leave returns what the first one does, which could not wait for a handler.
func TestMemberLeavesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := mustJoin(t, Memory(), Config{Name: "a", Slots: 1})
		time.Sleep(time.Second)
		q := mustQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string]})
		q.Add("key")
		key, _ := q.Get()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var leaves sync.WaitGroup
		leaves.Go(func() {
			if err := mustLeave(t, a, 7*time.Second); !errors.Is(err, context.DeadlineExceeded) {
				t.Error("FAILURE:", err)
			}
		})
		if err := a.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "1 slots") {
			t.Error("FAILURE:", err)
		}
		leaves.Wait()
		if err := mustLeave(t, a, 2*time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("FAILURE:", err)
		}
		q.Done(key)
	})
}

// A record of a dead member that cannot be deleted keeps nobody from having its slots, and is not tried again
// and again.
func TestRecordThatCannotBeDeleted(t *testing.T) {
	for name, err := range map[string]error{"refused": ErrRefused,
		"failing": errors.New("the webhook does not answer")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := withoutDelete(Memory(), err)
				a, b := mustJoin(t, store, Config{Name: "a", Slots: 4}), mustJoin(t, store, Config{Name: "b", Slots: 4})
				time.Sleep(5 * time.Second)
				b.end()
				time.Sleep(20 * time.Second)
				wantHeld(t, 4)(a)
				c := mustJoin(t, store, Config{Name: "c", Slots: 4})
				time.Sleep(20 * time.Second)
				wantHeld(t, 2, 2)(a, c)
				time.Sleep(2 * time.Minute)
				if n := store.deletes.Load(); n > 40 {
					t.Errorf("%d deletions were tried", n)
				}
			})
		})
	}
}

// The time for Leave ends while the table still names the member, whose record is marked: the others can have
// its slots, so that is no error. It is one if a handler still runs.
func TestLeaveThatIsCutShort(t *testing.T) {
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: Memory()}
			a := mustJoin(t, store, Config{Name: "a", Slots: 1})
			q := mustQueue(newRoot(), a, QueueConfig[string]{Keys: noKeys[string]})
			b := mustJoin(t, store, Config{Name: "b", Slots: 1})
			time.Sleep(10 * time.Second)
			wantHeld(t, 1, 0)(a, b)
			store.refuse(fmt.Errorf("%w: quota", ErrRefused), true)
			if busy {
				q.Add("key")
				_, _ = q.Get()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := a.Leave(ctx); errors.Is(err, context.DeadlineExceeded) != busy {
				t.Error("FAILURE:", err)
			}
			if err := a.Err(); !errors.Is(err, ErrLeft) {
				t.Error("FAILURE: after Leave:", err)
			}
		})
	}
}

// Somebody writes the member's record again and again, so that it can be neither marked nor deleted: Leave
// must not report success.
func TestLeaveThatAlwaysConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofA := &faulty{Store: Memory()}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 1})
		b := mustJoin(t, ofA.Store, Config{Name: "b", Slots: 1})
		time.Sleep(10 * time.Second)
		b.end() // Nobody takes the slot.
		ofA.do(func(verb string, r Record) error {
			if r.Name != "g-table" && (verb == "update" || verb == "delete") {
				return ErrConflict
			}
			return nil
		})
		if err := mustLeave(t, a, 20*time.Second); !errors.Is(err, ErrConflict) {
			t.Error("FAILURE:", err)
		}
	})
}

// A logger that hangs holds up workLoop, and with it Leave, but not the end of the handlers' contexts: the
// others take over when the record has expired.
func TestMemberLeavesWhileItsLoggerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofA, goOn := &faulty{Store: Memory()}, make(chan struct{})
		logger := slog.New(logFunc(func(r slog.Record) {
			if r.Level >= slog.LevelWarn {
				<-goOn
			}
		}))
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2, Logger: logger})
		time.Sleep(time.Second)
		q := newQueueOf(a, QueueConfig[string]{})
		q.Add("key")
		key, _ := q.Get()
		handler, done := q.Lease(t.Context(), key)
		defer done()
		ofA.refuse(errors.New("the server is busy"), true)
		b := mustJoin(t, ofA.Store, Config{Name: "b", Slots: 2})
		time.Sleep(10 * time.Second) // Now workLoop reports that it cannot move slots.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		left := make(chan error, 1)
		go func() { left <- a.Leave(ctx) }()
		time.Sleep(2 * time.Second)
		if err := context.Cause(handler); !errors.Is(err, ErrLeft) {
			t.Errorf("FAILURE: the handler's context has ended with %v", err)
		}
		time.Sleep(20 * time.Second)
		wantHeld(t, 0, 2)(a, b)
		close(goOn)
		if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
			t.Error("FAILURE:", err)
		}
		q.Done(key)
	})
}

// logFunc is a slog.Handler.
type logFunc func(slog.Record)

func (logFunc) Enabled(context.Context, slog.Level) bool { return true }
func (f logFunc) WithAttrs([]slog.Attr) slog.Handler     { return f }
func (f logFunc) WithGroup(string) slog.Handler          { return f }

func (f logFunc) Handle(_ context.Context, r slog.Record) error {
	f(r)
	return nil
}

// When its context has ended, Leave warns of nothing: its error says what it has left.
func TestLeaveThatIsCutShortLogsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &faulty{Store: Memory()}
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		a := mustJoin(t, store, Config{Name: "a", Logger: logger})
		time.Sleep(4 * time.Second)
		store.cutOff(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("FAILURE:", err)
		}
		if strings.Contains(log.String(), "Cannot delete") {
			t.Errorf("FAILURE: the log has\n%s", &log)
		}
	})
}

// Leave waits for a call of the logger, and nothing is logged after it, such as what handlers still do.
func TestNothingIsLoggedAfterLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines atomic.Int32
		goOn := make(chan struct{})
		logger := slog.New(logFunc(func(r slog.Record) {
			if lines.Add(1); strings.Contains(r.Message, "without Queue.Lease") {
				<-goOn
			}
		}))
		a := mustJoin(t, Memory(), Config{Name: "a", Slots: 2, Queues: []string{"1", "2"}, Logger: logger})
		first, second := newQueueOf(a, QueueConfig[string]{Name: "1"}), newQueueOf(a, QueueConfig[string]{Name: "2"})
		time.Sleep(10 * time.Second)
		for _, q := range []Queue[string]{first, second} {
			q.Add("key")
			_, _ = q.Get()
		}
		go first.Done("key") // It was handled without a Lease, which is logged.
		synctest.Wait()
		if ofFirst := (*a.queues.Load())[1]; ofFirst.handlers(0)+ofFirst.handlers(1) > 0 {
			t.Error("FAILURE: the logger keeps the slot from moving")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		left := make(chan error, 1)
		go func() { left <- a.Leave(ctx) }()
		time.Sleep(time.Minute)
		if len(left) > 0 {
			t.Error("FAILURE: Leave has returned while the logger runs")
		}
		close(goOn)
		<-left
		before := lines.Load()
		if second.Done("key"); lines.Load() != before {
			t.Error("FAILURE: something was logged after Leave")
		}
	})
}
