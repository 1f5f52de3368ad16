package sharding

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/leasing"
)

// What happens in ordinary life: rollouts, proxies that end watches, members without queues.

// cutWatches is a store whose watches end at once, as behind a proxy that does not know them.
type cutWatches struct {
	Store
	err error
}

func (s *cutWatches) Watch(context.Context, string, string, func(Event)) error { return s.err }

// Without a working watch members find each other by lists, and new ones join and get their share, also with
// short leases.
func TestMembersWithoutWatch(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 15 * time.Second} {
		for _, err := range []error{errors.New("connection reset"), nil} {
			synctest.Test(t, func(t *testing.T) {
				store := &cutWatches{&distant{Store: Memory(), trip: 10 * time.Millisecond}, err}
				var members []*Member
				for _, name := range []string{"c", "a", "b"} {
					members = append(members, mustJoin(t, store, Config{Name: name, Lease: lease}))
					time.Sleep(5*time.Second + lease/3)
				}
				for range 30 {
					for _, m := range members {
						if n := m.Stats().Held; n < 85 {
							t.Fatalf("FAILURE: lease %v, %v: %s holds %d slots", lease, err, m.ID(), n)
						}
					}
					time.Sleep(time.Second)
				}
				for _, m := range members {
					m.end()
				}
				time.Sleep(time.Second)
			})
		}
	}
}

// A member takes no slots before it has a queue: nobody would handle their keys.
func TestMemberWithoutQueueTakesNoSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a, b := join(t, store, "g", "a"), join(t, store, "g", "b")
		time.Sleep(20 * time.Second)
		wantHeld(t, 0, 0)(a, b)
		if !errors.Is(a.Err(), ErrNoQueue) {
			t.Error("FAILURE:", a.Err())
		}
		q := newQueueOf(b, QueueConfig[string]{})
		time.Sleep(time.Second)
		wantHeld(t, 0, 256)(a, b)
		if !q.Holds("key") || b.Err() != nil {
			t.Error("FAILURE:", b.Err())
		}
		newQueueOf(a, QueueConfig[string]{})
		time.Sleep(time.Second)
		wantHeld(t, 128, 128)(a, b)
		if err := b.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		c := join(t, store, "g", "c")
		if err := mustLeave(t, a, 2*time.Second); err != nil { // Only c is left, which takes nothing.
			t.Error(err)
		}
		newQueueOf(c, QueueConfig[string]{})
		time.Sleep(2 * time.Second)
		wantHeld(t, 256)(c)
	})
}

// shortWatches is a store whose watches end after five minutes.
type shortWatches struct{ faulty }

func (s *shortWatches) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return s.faulty.Watch(ctx, group, version, changed)
}

// After the orderly end of a watch the next one begins at once, without a warning, however long the lease is.
func TestWatchThatEndsInGoodOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &shortWatches{faulty{Store: Memory()}}
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		mustJoin(t, store, Config{Name: "a", Slots: 1, Lease: 10 * time.Hour, Logger: logger})
		time.Sleep(20*time.Minute + 30*time.Second)
		synctest.Wait()
		if n := store.watches.Load(); n != 5 || log.Len() > 0 {
			t.Errorf("FAILURE: %d watches, and in the log:\n%s", n, &log)
		}
	})
}

// A watch whose connection is dead, so that not even its end arrives, ends by itself.
func TestWatchOverDeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Leases(newSimServer(), "").Watch(t.Context(), "g", "0", func(Event) {})
		if d := time.Since(began); err == nil || d < 5*time.Minute || d > 6*time.Minute {
			t.Errorf("FAILURE: after %v: %v", d, err)
		}
	})
}

// A slot comes with its keys in all queues, so a member takes none while it lacks one of several, here
// because that waits to be the leader.
func TestMemberWithSomeQueuesTakesNoSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a, b := join(t, store, "g", "a", "sites", "teams"), join(t, store, "g", "b", "sites", "teams")
		for _, m := range []*Member{a, b} {
			newQueueOf(m, QueueConfig[string]{Name: "sites"})
		}
		time.Sleep(20 * time.Second)
		wantHeld(t, 0, 0)(a, b)
		newQueueOf(a, QueueConfig[string]{Name: "teams"})
		time.Sleep(time.Second)
		wantHeld(t, 256, 0)(a, b)
		if err := b.Err(); !errors.Is(err, ErrNoQueue) || !strings.Contains(err.Error(),
			`it has ["sites"], and Config.Queues also ["teams"]`) {
			t.Error("FAILURE:", err)
		}
		newQueueOf(b, QueueConfig[string]{Name: "teams"})
		time.Sleep(time.Second)
		wantHeld(t, 128, 128)(a, b)
		if err := b.Err(); err != nil {
			t.Error("FAILURE:", err)
		}
	})
}

// A member that cannot list the others after an outage takes no slots of the dead, and says so.
func TestListThatFailsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, store, _ := two(t, Memory(), 256)
		store.cutOff(true)
		time.Sleep(20 * time.Second)
		store.away.Store(false) // Its lists still fail.
		b.end()
		time.Sleep(40 * time.Second)
		if err := a.Err(); err == nil || !strings.Contains(err.Error(), "list the members") {
			t.Error("FAILURE:", err)
		}
		a.mu.Lock()
		a.mu.health.refreshErr = nil // as when it leaves and does not try to renew its record, so nothing fails
		a.mu.Unlock()
		if err := a.Err(); err == nil || !strings.Contains(err.Error(), "list the members") {
			t.Error("FAILURE:", err)
		}
		store.silent.Store(false)
		time.Sleep(40 * time.Second)
		wantHeld(t, 256)(a)
		if err := a.Err(); err != nil {
			t.Error("FAILURE:", err)
		}
	})
}

// In the moments after Join the member has lost nothing.
func TestErrAfterJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustJoin(t, &distant{Store: Memory(), trip: 100 * time.Millisecond}, Config{})
		if err := m.Err(); err == nil || errors.Is(err, leasing.ErrLost) {
			t.Error("FAILURE:", err)
		}
		time.Sleep(2 * time.Second)
		if err := m.Err(); err != nil {
			t.Error("FAILURE:", err)
		}
		m.end()
		time.Sleep(time.Second)
	})
}

// The first key that is handled without Lease is logged, once.
func TestForgottenLeaseIsLogged(t *testing.T) {
	for _, calls := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			m := mustJoin(t, Memory(), Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			time.Sleep(time.Second)
			q := newQueueOf(m, QueueConfig[int]{Name: "sites"})
			for i := range 3 {
				q.Add(i)
				key, _ := q.Get()
				if calls {
					_, release := q.Lease(t.Context(), key)
					defer release()
				}
				q.Done(key)
			}
			synctest.Wait()
			if n := strings.Count(log.String(), "without Queue.Lease"); n != 1 && !calls || n != 0 && calls {
				t.Errorf("FAILURE: logged %d times, Lease is called: %v", n, calls)
			}
		})
	}
}

// People see with kubectl who holds how many slots.
func TestLeasesShowSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		a, b := mustJoin(t, Leases(server, "ns"), Config{Name: "a"}),
			mustJoin(t, Leases(server, "ns"), Config{Name: "b"})
		time.Sleep(20 * time.Second)
		for name, want := range map[string]string{"g-member-" + a.ID(): "128", "g-member-" + b.ID(): "128",
			"g-table": "256"} {
			if got := server.leases[name].Annotations["keyedqueue.github.io/slots"]; got != want {
				t.Errorf("FAILURE: %s shows %q slots, want %s", name, got, want)
			}
		}
	})
}
