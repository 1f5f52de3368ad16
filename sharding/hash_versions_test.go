package sharding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What happens while two versions of a program run side by side.

// join is mustJoin without a queue. queues are those that the program makes.
func join(t *testing.T, store Store, group, name string, queues ...string) *Member {
	t.Helper()
	m, err := Join(t.Context(), store, Config{Group: group, Name: name, Queues: queues})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.end)
	return m
}

// expectQueues changes Config.Queues of a member that runs.
func expectQueues(m *Member, queues ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.config.Queues = queues
}

// objects are the keys of a hundred objects as two versions of a program name them.
func objects() (paths []string, names []namespacedName) {
	for i := range 100 {
		names = append(names, namespacedName{fmt.Sprint("team-", i%7), fmt.Sprint("site-", i)})
		paths = append(paths, names[i].Namespace+"/"+names[i].Name)
	}
	return paths, names
}

// A rolling update from "namespace/name" to {Namespace, Name}: each object has one replica all the time.
func TestRollingUpdateFromStringToNamespacedName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		paths, names := objects()
		a, b := join(t, store, "g", "a"), join(t, store, "g", "b")
		type request struct{ namespacedName } // as reconcile.Request
		old, new := newQueueOf(a, QueueConfig[string]{}), newQueueOf(b, QueueConfig[request]{})
		time.Sleep(10 * time.Second)
		wantHeld(t, 128, 128)(a, b)
		for i, path := range paths {
			if old.Holds(path) == new.Holds(request{names[i]}) {
				t.Errorf("FAILURE: %s is with one replica: false", path)
			}
		}
		if hashOf(t, namespacedName{"", "node-1"}) != HashString("node-1") {
			t.Error("FAILURE: a key without a namespace differs from that of a cache")
		}
	})
}

// Versions whose queues of one name hash keys in different ways do not share a group, even with all else
// in common. The new one gets nothing, and says what to do.
func TestRollingUpdateOfHashes(t *testing.T) {
	byNamespace := func(key string) uint64 { return HashString(strings.Split(key, "/")[0]) }
	for what, makeQueues := range map[string]func(old, new *Member){
		"other keys": func(old, new *Member) {
			newQueueOf(old, QueueConfig[string]{})
			newQueueOf(new, QueueConfig[int]{})
		},
		"another hash": func(old, new *Member) {
			newQueueOf(old, QueueConfig[string]{})
			newQueueOf(new, QueueConfig[string]{Hash: byNamespace})
		},
		"the hash of another queue": func(old, new *Member) {
			expectQueues(old, "q", "r")
			expectQueues(new, "q", "r")
			newQueueOf(old, QueueConfig[string]{Name: "q"})
			newQueueOf(old, QueueConfig[string]{Name: "r", Hash: byNamespace})
			newQueueOf(new, QueueConfig[string]{Name: "q", Hash: byNamespace})
			newQueueOf(new, QueueConfig[string]{Name: "r", Hash: byNamespace})
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := Memory()
				a, b := join(t, store, "g", "a"), join(t, store, "g", "b")
				makeQueues(a, b)
				time.Sleep(time.Second)
				if a.Stats().Held*b.Stats().Held != 0 { // As soon as both have read the table.
					t.Errorf("FAILURE: they hold %d and %d slots", a.Stats().Held, b.Stats().Held)
				}
				time.Sleep(30 * time.Second)
				if a.Stats().Held+b.Stats().Held != 256 || a.Stats().Held*b.Stats().Held != 0 {
					t.Errorf("FAILURE: they hold %d and %d slots", a.Stats().Held, b.Stats().Held)
				}
				refused := b
				if a.Err() != nil {
					refused = a
				}
				if err := refused.Err(); !errors.Is(err, ErrIncompatible) ||
					!strings.Contains(err.Error(), "give the group another name") {
					t.Error("FAILURE:", err)
				}
			})
		})
	}
}

// Several queues of one member need names, which Config.Queues has.
func TestQueuesNeedNames(t *testing.T) {
	for _, queues := range [][]string{nil, {"sites"}, {"sites", "teams"}} {
		m := holdingAll(4)
		m.config.Queues = queues
		newQueueOf(m, QueueConfig[string]{Name: "sites"})
		for _, name := range []string{"", "sites", "teams"} {
			text := func() (text string) {
				defer func() { text = fmt.Sprint(recover()) }()
				newQueueOf(m, QueueConfig[string]{Name: name})
				return ""
			}()
			if strings.Contains(text, "Config.Queues all names") == (name == "teams" && len(queues) == 2) {
				t.Errorf("FAILURE: Config.Queues %q, and a second queue %q: %s", queues, name, text)
			}
		}
	}
}

// A rolling update adds a queue, and the next one removes it. All the while each key of the other queue is
// with one replica, and shares are even. When the first update ends, so is each key of the new queue.
func TestRollingUpdateOfQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		queues := make(map[*Member]map[string]Queue[string])
		var members []*Member
		start := func(names ...string) {
			m := join(t, store, "g", fmt.Sprint("pod-", len(queues)), names...)
			queues[m] = make(map[string]Queue[string])
			for _, name := range names {
				queues[m][name] = newQueueOf(m, QueueConfig[string]{Name: name})
			}
			members = append(members, m)
			time.Sleep(3 * time.Second)
		}
		check := func(names ...string) {
			t.Helper()
			for _, name := range names {
				for i := range 100 {
					holders := 0
					for _, m := range members {
						if q := queues[m][name]; q != nil && q.Holds(fmt.Sprint(i)) {
							holders++
						}
					}
					if holders != 1 {
						t.Fatalf("FAILURE: %d replicas handle key %d of %s", holders, i, name)
					}
				}
			}
			for _, m := range members {
				if n := m.Stats().Held; n < 256/len(members) || m.Err() != nil {
					t.Fatalf("FAILURE: one of %d replicas holds %d slots: %v", len(members), n, m.Err())
				}
			}
		}
		for range 3 {
			start("sites")
		}
		check("sites")
		for _, version := range [][]string{{"sites", "teams"}, {"sites"}} {
			for range 3 {
				start(version...)
				check("sites")
				if err := members[0].Leave(t.Context()); err != nil {
					t.Error(err)
				}
				members = members[1:]
				time.Sleep(time.Second)
				check("sites")
			}
			check(version...)
		}
	})
}

// nextVersion is the connection of a member of a later version of the library. Its record says that it reads
// the next format, and it writes the table in that as soon as all members' records do.
type nextVersion struct{ Store }

func (s nextVersion) Create(ctx context.Context, r Record) (Record, error) {
	return read(s.Store.Create(ctx, s.write(ctx, r)))
}

func (s nextVersion) Update(ctx context.Context, r Record) (Record, error) {
	return read(s.Store.Update(ctx, s.write(ctx, r)))
}

func (s nextVersion) Get(ctx context.Context, name string) (Record, error) {
	return read(s.Store.Get(ctx, name))
}

func (s nextVersion) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	return s.Store.Watch(ctx, group, version, func(e Event) {
		e.Record, _ = read(e.Record, nil)
		changed(e)
	})
}

func (s nextVersion) write(ctx context.Context, r Record) Record {
	if r.Name != "g-table" {
		r.Data = strings.TrimSuffix(r.Data, "}") + `,"reads":2}`
		return r
	}
	records, _, _ := s.List(ctx, r.Group)
	for _, other := range records {
		if other.Name != "g-table" && !strings.Contains(other.Data, `"reads":2`) {
			return r
		}
	}
	r.Data = strings.Replace(r.Data, `"format":1`, `"format":2`, 1)
	return r
}

func read(r Record, err error) (Record, error) {
	r.Data = strings.Replace(r.Data, `"format":2`, `"format":1`, 1)
	return r, err
}

// A rolling update to a library with another format: shares are even all the time, and members of the old
// format are refused as soon as there is a table of the new one.
func TestRollingUpdateOfFormats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		a, b := mustJoin(t, store, Config{Name: "a"}), mustJoin(t, store, Config{Name: "b"})
		time.Sleep(5 * time.Second)
		c := mustJoin(t, nextVersion{store}, Config{Name: "c"})
		time.Sleep(5 * time.Second)
		wantHeld(t, 86, 85, 85)(a, b, c)
		if err := b.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		wantHeld(t, 128, 128)(a, c)
		if r := mustGet(t, store, "g-table"); !strings.Contains(r.Data, `"format":1`) {
			t.Error("FAILURE: an old member cannot read the table:", r.Data)
		}
		d := mustJoin(t, nextVersion{store}, Config{Name: "d"})
		if err := a.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Second)
		wantHeld(t, 128, 128)(c, d)
		mustJoin(t, nextVersion{store}, Config{Name: "e"})
		time.Sleep(5 * time.Second)
		if r := mustGet(t, store, "g-table"); !strings.Contains(r.Data, `"format":2`) {
			t.Error("FAILURE: the table has the old format:", r.Data)
		}
		if _, err := Join(t.Context(), store, Config{Group: "g"}); !errors.Is(err, ErrIncompatible) ||
			!strings.Contains(err.Error(), "upgrade") {
			t.Error("FAILURE:", err)
		}
	})
}
