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

// faulty is a store whose calls a test can count, fail and hold up. While it is away its calls fail, and
// while it is silent its lists fail and its watches end at the first change, which they do not report.
type faulty struct {
	Store
	away, silent                                    atomic.Bool
	before                                          atomic.Pointer[func(verb string, r Record) error]
	gets, lists, watches, creates, updates, deletes atomic.Int32
}

// do calls f before each call, whose record may have no more than its name. An error is the call's answer.
// Nil ends that.
func (s *faulty) do(f func(verb string, r Record) error) {
	if f == nil {
		f = func(string, Record) error { return nil }
	}
	s.before.Store(&f)
}

// refuse lets updates of the table, or those of members' records, fail with err, which may be nil.
func (s *faulty) refuse(err error, table bool) {
	s.do(func(verb string, r Record) error {
		if verb == "update" && (r.Name == "g-table") == table {
			return err
		}
		return nil
	})
}

func (s *faulty) call(count *atomic.Int32, verb string, r Record) error {
	count.Add(1)
	if s.away.Load() || verb == "list" && s.silent.Load() {
		return errors.New("the server is away")
	}
	if before := s.before.Load(); before != nil {
		return (*before)(verb, r)
	}
	return nil
}

// cutOff cuts a member off from its store, or ends that.
func (s *faulty) cutOff(is bool) {
	s.away.Store(is)
	s.silent.Store(is)
}

func (s *faulty) Get(ctx context.Context, name string) (Record, error) {
	if err := s.call(&s.gets, "get", Record{Name: name}); err != nil {
		return Record{}, err
	}
	return s.Store.Get(ctx, name)
}

func (s *faulty) List(ctx context.Context, group string) ([]Record, string, error) {
	if err := s.call(&s.lists, "list", Record{}); err != nil {
		return nil, "", err
	}
	return s.Store.List(ctx, group)
}

func (s *faulty) Create(ctx context.Context, r Record) (Record, error) {
	if err := s.call(&s.creates, "create", r); err != nil {
		return Record{}, err
	}
	return s.Store.Create(ctx, r)
}

func (s *faulty) Update(ctx context.Context, r Record) (Record, error) {
	if err := s.call(&s.updates, "update", r); err != nil {
		return Record{}, err
	}
	return s.Store.Update(ctx, r)
}

func (s *faulty) Delete(ctx context.Context, name, version string) error {
	if err := s.call(&s.deletes, "delete", Record{Name: name}); err != nil {
		return err
	}
	return s.Store.Delete(ctx, name, version)
}

func (s *faulty) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	if err := s.call(&s.watches, "watch", Record{}); err != nil && !s.away.Load() {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	return s.Store.Watch(ctx, group, version, func(e Event) {
		if s.silent.Load() {
			end()
		}
		if ctx.Err() == nil {
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
	signal(m.toRefresh)
}

type idleQueue struct{ memberQueue }

func (idleQueue) handlers(int) int { return 0 }
func (idleQueue) listLater([]int)  {}
func (idleQueue) ShutDown()        {}

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

// wantNoSlotTwice fails if two of the members hold a slot.
func wantNoSlotTwice(t *testing.T, members ...*Member) {
	t.Helper()
	for s := range members[0].slots {
		n := 0
		for _, m := range members {
			if m.state(s) != absent {
				n++
			}
		}
		if n > 1 {
			t.Fatalf("FAILURE: slot %d has %d holders", s, n)
		}
	}
}

func mustDelete(t *testing.T, store Store, name string) {
	t.Helper()
	if err := store.Delete(t.Context(), name, mustGet(t, store, name).Version); err != nil {
		t.Fatal(err)
	}
}

// mustRemake deletes a record and makes it anew, also if a member is quicker to make another one.
func mustRemake(t *testing.T, store Store, r Record) {
	t.Helper()
	for err := ErrExists; errors.Is(err, ErrExists); {
		mustDelete(t, store, r.Name)
		r.Version = ""
		if _, err = store.Create(t.Context(), r); err != nil && !errors.Is(err, ErrExists) {
			t.Fatal(err)
		}
	}
}

// inLastSlot is a hash. Of two slots of one member, the last one moves to a second member.
func inLastSlot(string) uint64 { return 1<<64 - 1 }

func newQueueOf[T comparable](m *Member, config QueueConfig[T]) Queue[T] {
	if config.Keys == nil {
		config.Keys = noKeys[T]
	}
	limiter := workqueue.DefaultTypedControllerRateLimiter[T]()
	return mustQueue(workqueue.NewTypedRateLimitingQueue(limiter), m, config)
}

// getLater calls Get in a goroutine.
func getLater(q Queue[string]) <-chan string {
	got := make(chan string, 1)
	go func() {
		key, _ := q.Get()
		got <- key
	}()
	return got
}

// two returns two members that hold half of the slots each, and their connections to one store.
func two(t *testing.T, store Store, slots int) (a, b *Member, ofA, ofB *faulty) {
	t.Helper()
	ofA, ofB = &faulty{Store: store}, &faulty{Store: store}
	a = mustJoin(t, ofA, Config{Name: "a", Slots: slots})
	b = mustJoin(t, ofB, Config{Name: "b", Slots: slots})
	time.Sleep(10 * time.Second)
	wantHeld(t, slots/2, slots/2)(a, b)
	return a, b, ofA, ofB
}
