package sharding

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/keyedqueue/workqueue"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// switchable is a store that can be away: then its calls fail. It can also be silent: then its watches report
// no changes.
type switchable struct {
	Store
	away, silent atomic.Bool
}

func (s *switchable) err(fails bool) error {
	if fails {
		return errors.New("the server is away")
	}
	return nil
}

func (s *switchable) Get(ctx context.Context, name string) (Record, error) {
	if err := s.err(s.away.Load()); err != nil {
		return Record{}, err
	}
	return s.Store.Get(ctx, name)
}

func (s *switchable) List(ctx context.Context, group string) ([]Record, string, error) {
	if err := s.err(s.away.Load() || s.silent.Load()); err != nil {
		return nil, "", err
	}
	return s.Store.List(ctx, group)
}

func (s *switchable) Update(ctx context.Context, r Record) (Record, error) {
	if err := s.err(s.away.Load()); err != nil {
		return Record{}, err
	}
	return s.Store.Update(ctx, r)
}

func (s *switchable) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	return s.Store.Watch(ctx, group, version, func(e Event) {
		if !s.silent.Load() {
			changed(e)
		}
	})
}

func mustJoin(t *testing.T, store Store, config Config) *Member {
	t.Helper()
	config.Group = "g"
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // A virtual one: a test that fails must end.
	defer cancel()
	m, err := Join(ctx, store, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.end)
	addIdleQueue(m) // Without a queue it takes no slots.
	return m
}

// addIdleQueue gives a member a queue that hands out nothing, and that is not among its names.
func addIdleQueue(m *Member) {
	m.queues.Store(&[]memberQueue{idleQueue{}})
	signal(m.toRenew)
}

type idleQueue struct{ memberQueue }

func (idleQueue) handlers(int) int       { return 0 }
func (idleQueue) list([]int)             {}
func (idleQueue) noLongerStopping([]int) {}
func (idleQueue) ShutDown()              {}

// namespacedName is a key as types.NamespacedName.
type namespacedName struct{ Namespace, Name string }

// mustQueue is NewQueue. A Hash without a version gets one.
func mustQueue[T comparable](inner workqueue.TypedRateLimitingInterface[T], m *Member, config QueueConfig[T]) Queue[T] {
	if config.Hash != nil {
		config.HashVersion = cmp.Or(config.HashVersion, "1")
	}
	q, err := NewQueue(inner, m, config)
	if err != nil {
		panic(err)
	}
	return q
}

func newRoot() workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
}

func wantHeld(t *testing.T, want ...int) func(...*Member) {
	return func(members ...*Member) {
		t.Helper()
		for i, m := range members {
			if st := m.Stats(); st.Held != want[i] || st.Stopping != 0 {
				t.Errorf("member %d holds %d slots, %d about to move, want %d", i, st.Held, st.Stopping, want[i])
			}
		}
	}
}

func wantNoSlotTwiceFor(t *testing.T, d time.Duration, members ...*Member) {
	t.Helper()
	for began := time.Now(); time.Since(began) < d; time.Sleep(100 * time.Millisecond) {
		wantNoSlotTwice(t, members...)
	}
}

// setData changes what a record says.
func setData(server *simServer, name, data string) bool {
	return server.edit(name, func(l *coordinationv1.Lease) { l.Annotations[dataAnnotation] = data })
}

func mustGet(t *testing.T, store Store, name string) Record {
	t.Helper()
	r, err := store.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cutOff cuts a member off from its store, or ends that.
func (s *switchable) cutOff(is bool) {
	s.away.Store(is)
	s.silent.Store(is)
}
