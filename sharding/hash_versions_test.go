package sharding

import (
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

// Versions whose queues of one name hash keys in different ways do not share a group, even with all else
// in common. The new one gets nothing, and says what to do.
func TestRollingUpdateOfHashes(t *testing.T) {
	byNamespace := func(key string) uint64 { return HashString(strings.Split(key, "/")[0]) }
	for what, makeQueues := range map[string]func(old, new *Member){
		"fields in another order": func(old, new *Member) {
			newQueueOf(old, QueueConfig[struct{ Cluster, Name string }]{})
			newQueueOf(new, QueueConfig[struct{ Name, Cluster string }]{})
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
				server := newSimServer()
				store := Leases(server, "ns")
				join(t, store, "g", "0") // It has no queue, and is the first to write a table, without hashes.
				a, b := join(t, store, "g", "a"), join(t, store, "g", "b")
				makeQueues(a, b)
				time.AfterFunc(30*time.Second, func() { setData(server, "g-table", "damaged") })
				for range 9000 {
					time.Sleep(10 * time.Millisecond)
					if a.Stats().Held*b.Stats().Held != 0 {
						t.Fatalf("FAILURE: they hold %d and %d slots", a.Stats().Held, b.Stats().Held)
					}
				}
				if a.Stats().Held+b.Stats().Held != 256 {
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
