package workqueue_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/keyedqueue/workqueue"
)

// slowQueue is what a queue with a delay does, in the obvious way.
type slowQueue struct {
	line        []int
	dirty, held map[int]bool
	waiting     []slowWaiting
	seq         int
	down        bool
	stats       workqueue.Stats // the counters
}

type slowWaiting struct {
	key, seq int
	due      time.Time
}

func (m *slowQueue) add(key int) {
	if m.down || m.dirty[key] {
		return
	}
	m.stats.Adds++
	m.dirty[key] = true
	if !m.held[key] {
		m.line = append(m.line, key)
	}
}

func (m *slowQueue) get() int {
	key := m.line[0]
	m.line = m.line[1:]
	delete(m.dirty, key)
	m.held[key] = true
	return key
}

func (m *slowQueue) done(key int) {
	if !m.held[key] {
		m.stats.UnmatchedDones++
		return
	}
	delete(m.held, key)
	if m.dirty[key] {
		m.line = append(m.line, key)
	}
}

func (m *slowQueue) addAfter(key int, now time.Time, d time.Duration) {
	if m.down {
		return
	}
	m.stats.Retries++
	if d <= 0 {
		m.add(key)
		return
	}
	m.seq++
	w := slowWaiting{key, m.seq, now.Add(d)}
	i := slices.IndexFunc(m.waiting, func(w slowWaiting) bool { return w.key == key })
	switch {
	case i < 0:
		m.waiting = append(m.waiting, w)
	case w.due.Before(m.waiting[i].due):
		m.waiting[i] = w
	}
}

// pass adds what is due at now.
func (m *slowQueue) pass(now time.Time) {
	slices.SortFunc(m.waiting, func(a, b slowWaiting) int {
		return cmp.Or(a.due.Compare(b.due), a.seq-b.seq)
	})
	for len(m.waiting) > 0 && !m.waiting[0].due.After(now) {
		m.add(m.waiting[0].key)
		m.waiting = m.waiting[1:]
	}
}

func (m *slowQueue) shutDown() {
	m.down = true
	m.stats.Dropped += uint64(len(m.waiting))
	m.waiting = nil
}

// Random calls, one after another, of each layer and of the obvious slow queue.
func TestAgainstModel(t *testing.T) {
	for _, l := range layers[int]() {
		for _, named := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,metrics=%v", l.name, named), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					rapid.SyncTest(t, func(t *rapid.T) { compareWithModel(t, l.build, named) })
				})
			})
		}
	}
}

func compareWithModel(t *rapid.T, build builder[int], named bool) {
	c := testingclock.NewFakeClock(testEpoch)
	r := &recorder{}
	o := options[int]{clock: c}
	if named {
		o.name, o.provider = "q", r
	}
	q := build(o)
	defer q.ShutDown()
	m := &slowQueue{dirty: make(map[int]bool), held: make(map[int]bool)}
	key := rapid.IntRange(0, 11)
	step := func(d time.Duration) {
		synctest.Wait()
		c.Step(d)
		synctest.Wait()
		m.pass(c.Now())
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	actions := map[string]func(*rapid.T){
		"add": func(t *rapid.T) {
			k := key.Draw(t, "key")
			q.Add(k)
			m.add(k)
		},
		"get": func(t *rapid.T) {
			if len(m.line) == 0 && !m.down {
				t.Skip("would block")
			}
			got, shutdown := q.Get()
			if shutdown != (len(m.line) == 0) {
				t.Fatalf("Get() reports shutdown: %v, and %d keys are queued", shutdown, len(m.line))
			}
			if !shutdown {
				if want := m.get(); got != want {
					t.Fatalf("Get() = %d, want %d", got, want)
				}
			}
		},
		"get canceled": func(t *rapid.T) {
			if k, err := q.GetContext(canceled); err != context.Canceled {
				t.Fatalf("GetContext() = %d, %v, want Canceled", k, err)
			}
		},
		"done": func(t *rapid.T) {
			k := key.Draw(t, "key")
			q.Done(k)
			m.done(k)
		},
		"time": func(t *rapid.T) {
			d := time.Duration(rapid.IntRange(-5, 15).Draw(t, "seconds")) * time.Second
			step(d + rapid.SampledFrom([]time.Duration{0, 0, 1, -1, 999_999_999}).Draw(t, "more"))
		},
		"shut down": func(t *rapid.T) {
			if rapid.IntRange(0, 20).Draw(t, "really") > 0 {
				t.Skip("later")
			}
			var err error
			if rapid.Bool().Draw(t, "drain") {
				err = q.ShutDownContext(canceled)
			} else {
				q.ShutDown()
			}
			m.shutDown()
			if want := len(m.held)+len(m.line) > 0; err != nil && !want {
				t.Fatalf("ShutDownContext() = %v of an empty queue", err)
			}
		},
		"": func(t *rapid.T) {
			synctest.Wait()
			if err := workqueue.CheckInvariants[int](q); err != nil {
				t.Fatal(err)
			}
			want := m.stats
			want.ShuttingDown = m.down
			want.Queued, want.Processing, want.Waiting = len(m.line), len(m.held), len(m.waiting)
			got := q.Stats()
			got.Name, got.OldestQueued, got.LongestRunning, got.UnfinishedWork = "", 0, 0, 0
			got.Latency, got.WorkDuration = nil, nil
			if got != want || q.Len() != len(m.line) || q.ShuttingDown() != m.down {
				t.Fatalf("Stats() = %+v, Len() = %d, ShuttingDown() = %v, want %+v, %v", got, q.Len(), q.ShuttingDown(), want, m.down)
			}
			if named {
				adds, depth := r.value("adds"), r.value("depth")
				if adds != float64(want.Adds) || depth != float64(len(m.dirty)) {
					t.Fatalf("metrics: adds %v, depth %v, want %d, %d", adds, depth, want.Adds, len(m.dirty))
				}
			}
		},
	}
	if d, ok := q.(delayer[int]); ok {
		actions["add after"] = func(t *rapid.T) {
			k, d2 := key.Draw(t, "key"), time.Duration(rapid.IntRange(-2, 20).Draw(t, "seconds"))*time.Second
			d.AddAfter(k, d2)
			m.addAfter(k, c.Now(), d2)
		}
	}
	t.Repeat(actions)
}
