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
// short leases. That is slow and costs requests, so the log warns.
func TestMembersWithoutWatch(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 15 * time.Second} {
		for _, err := range []error{errors.New("connection reset"), nil} {
			synctest.Test(t, func(t *testing.T) {
				store := &cutWatches{&distant{Store: Memory(), trip: 10 * time.Millisecond}, err}
				var members []*Member
				var log bytes.Buffer
				logger := slog.New(slog.NewTextHandler(&log, nil))
				for _, name := range []string{"c", "a", "b"} {
					members = append(members, mustJoin(t, store, Config{Name: name, Lease: lease, Logger: logger}))
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
				synctest.Wait()
				warning := `level=WARN msg="The watch has ended"`
				if warns := strings.Contains(log.String(), warning); warns != (err != nil) {
					t.Errorf("FAILURE: %v, the log warns: %t", err, warns)
				}
			})
		}
	}
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

// In the moments after Join the member has lost nothing.
func TestErrAfterJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustJoin(t, &distant{Store: Memory(), trip: 100 * time.Millisecond}, Config{})
		if err := m.Err(); err == nil || errors.Is(err, leasing.ErrLost) || strings.Count(err.Error(), "sharding:") != 1 {
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

// People see with kubectl who holds how many slots. A holder of the table would look like a leader.
func TestLeasesShowSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		a, b := mustJoin(t, Leases(server, "ns"), Config{Name: "a"}),
			mustJoin(t, Leases(server, "ns"), Config{Name: "b"})
		time.Sleep(20 * time.Second)
		for name, want := range map[string]string{"g-member-" + a.ID(): "128", "g-member-" + b.ID(): "128",
			"g-table": ""} {
			if got := server.leases[name].Annotations["keyedqueue.github.io/slots"]; got != want {
				t.Errorf("FAILURE: %s shows %q slots, want %s", name, got, want)
			}
		}
		if table := server.leases["g-table"].Spec; table.HolderIdentity != nil || table.RenewTime == nil {
			t.Errorf("FAILURE: the table shows %+v", table)
		}
	})
}

// A client that may not read, create or list Leases does not join. After a lease Join says what the server
// denies. A server that has just started may deny everything for a moment.
func TestJoinNamesMissingRight(t *testing.T) {
	for _, missing := range []string{"get", "create", "list", "none"} {
		synctest.Test(t, func(t *testing.T) {
			server, began := newSimServer(), time.Now()
			server.forbids = func(verb string) bool {
				return verb == missing || missing == "none" && time.Since(began) < 5*time.Second
			}
			m, err := Join(t.Context(), Leases(server, "ns"), Config{Group: "g"})
			took := time.Since(began)
			if missing == "none" {
				if err != nil {
					t.Fatal("FAILURE:", err)
				}
				m.end()
			} else if err == nil || !strings.Contains(err.Error(), "cannot "+missing+" leases") ||
				took < 15*time.Second || took > 20*time.Second || len(server.leases) > 0 {
				t.Errorf("FAILURE: without %s, after %v: %v, %d Leases", missing, took, err, len(server.leases))
			}
		})
	}
}
