package priorityqueue_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/operate"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Random calls, one after another, of a queue with random features and of the obvious slow one.
func TestAgainstModel(t *testing.T) {
	rounds := 10 // times the hundred that rapid tries, or what its flag says
	if testkit.RaceEnabled {
		rounds = 1 // It makes one call after another: there is no race to find.
	}
	for range rounds {
		rapid.Check(t, func(r *rapid.T) {
			testkit.InBubble(t, func() { compareWithModel(r) })
		})
	}
}

func compareWithModel(t *rapid.T) {
	c := testkit.NewFakeClock()
	config := drawConfig(t)
	config.Clock = c
	limiter := newCountingLimiter()
	config.RateLimiter = limiter
	q := pq.New(config)
	defer q.ShutDown()
	m := &slowQueue{
		config: config, limiter: newCountingLimiter(), failures: map[int]slowFailure{}, keys: map[int]*slowKey{},
		lastStart: map[int]time.Duration{}, lastReady: atOnce,
	}
	if config.Group != nil {
		m.pausedGroups = map[string]slowPause{}
	}
	key := rapid.IntRange(0, 8)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	add := func(t *rapid.T) {
		k, o := key.Draw(t, "key"), drawOpts(t)
		q.AddWithOpts(o, k)
		m.add(k, o, byEvent, o.After > 0 || o.RateLimited)
	}
	get := func(t *rapid.T) {
		if m.next() == nil && !(m.down && m.count(workqueue.KeyQueued) == 0) {
			t.Skip("would block")
		}
		k, p, shutdown := q.GetWithPriority()
		if shutdown != (m.next() == nil) {
			t.Fatalf("GetWithPriority() reports shutdown: %v", shutdown)
		}
		if !shutdown {
			if wantKey, wantPriority := m.get(); k != wantKey || p != wantPriority {
				t.Fatalf("GetWithPriority() = %d, %d, want %d, %d", k, p, wantKey, wantPriority)
			}
		}
	}
	done := func(t *rapid.T) {
		k := key.Draw(t, "key")
		if held := m.sorted(workqueue.KeyProcessing); len(held) > 0 && rapid.IntRange(0, 9).Draw(t, "held") > 0 {
			k = held[k%len(held)].key
		}
		q.Done(k)
		m.done(k)
	}
	t.Repeat(map[string]func(*rapid.T){
		"add": add, "add again": add, "add once more": add,
		"get": get, "get again": get,
		"done": done, "done again": done,
		"put on hold": func(t *rapid.T) {
			key := key.Draw(t, "key")
			q.PutOnHold(key)
			if k := m.keys[key]; k != nil {
				k.onHold = k.state == workqueue.KeyProcessing
				k.placed = k.placed && !k.onHold // Until its Done.
			}
		},
		"add plainly": func(t *rapid.T) {
			k := key.Draw(t, "key")
			q.Add(k)
			m.add(k, pq.AddOpts{}, byEvent, false)
		},
		"add after": func(t *rapid.T) {
			k, d := key.Draw(t, "key"), time.Duration(rapid.IntRange(-2, 8).Draw(t, "seconds"))*time.Second
			q.AddAfter(k, d)
			m.add(k, pq.AddOpts{After: d}, byWorker, true)
		},
		"add with priority": func(t *rapid.T) {
			k, p, d := key.Draw(t, "key"), rapid.IntRange(-1, 2).Draw(t, "priority"),
				time.Duration(rapid.IntRange(-2, 8).Draw(t, "seconds"))*time.Second
			q.AddWithPriority(k, p, d)
			m.add(k, pq.AddOpts{Priority: p, After: d}, byWorkerWithPriority, d > 0)
		},
		"add rate limited": func(t *rapid.T) {
			k := key.Draw(t, "key")
			q.AddRateLimited(k)
			m.add(k, pq.AddOpts{RateLimited: true}, byWorker, true)
		},
		"add several": func(t *rapid.T) {
			keys := rapid.SliceOfN(key, 0, 4).Draw(t, "keys")
			o := pq.AddOpts{Cause: drawCause(t)}
			q.AddWithOpts(o, keys...)
			m.clockRead = m.timesPending()
			defer func() { m.clockRead = false }()
			for _, k := range keys {
				m.add(k, o, byEvent, false)
			}
		},
		"add cause": func(t *rapid.T) {
			k := key.Draw(t, "key")
			if cause := drawCause(t); cause != nil {
				q.AddCause(k, *cause)
				m.add(k, pq.AddOpts{Cause: cause}, byEvent, false)
			}
		},
		"added again": func(t *rapid.T) {
			key := key.Draw(t, "key")
			c := q.AddedAgain(key)
			k := m.keys[key]
			if held := k != nil && k.state == workqueue.KeyProcessing; held != (c != nil) {
				t.Fatalf("AddedAgain(%d) is nil: %v, and the key is held: %v", key, c == nil, held)
			}
			if c != nil {
				k.waits = append(k.waits, &slowWait{c: c})
			}
		},
		"pause group": func(t *rapid.T) {
			if config.Group == nil || m.down {
				t.Skip("another action: there are no groups, or the queue is shut down")
			}
			group := config.Group(key.Draw(t, "key of the group"))
			d := time.Duration(rapid.IntRange(-1, 8).Draw(t, "seconds")) * time.Second
			switch _, paused := m.pausedGroups[group]; {
			case d > 0:
				q.PauseGroup(group, d)
				m.pauseGroup(group, m.now+d)
			case paused:
				q.ResumeGroup(group)
				delete(m.pausedGroups, group)
				m.update()
			default:
				q.PauseGroup(group, operate.UntilResumed)
				m.pauseGroup(group, endless)
			}
		},
		"get batch": func(t *rapid.T) {
			if m.next() == nil {
				t.Skip("would block")
			}
			limit := rapid.IntRange(1, 4).Draw(t, "limit")
			got, err := q.GetBatch(context.Background(), limit)
			var want []int
			for len(want) < limit && m.next() != nil {
				k, _ := m.get()
				want = append(want, k)
			}
			if err != nil || !slices.Equal(keysOf(got), want) {
				t.Fatalf("GetBatch(%d) = %v, %v, want %v", limit, got, err, want)
			}
		},
		"get canceled": func(t *rapid.T) {
			if k, err := q.GetContext(canceled); err != context.Canceled {
				t.Fatalf("GetContext() = %d, %v, want Canceled", k, err)
			}
		},
		"remove": func(t *rapid.T) {
			k := key.Draw(t, "key")
			if got, want := q.Remove(k), m.remove(k); got != want {
				t.Fatalf("Remove(%d) = %v, want %v", k, got, want)
			}
		},
		"forget": func(t *rapid.T) {
			k := key.Draw(t, "key")
			q.Forget(k)
			m.forget(k)
		},
		"pause": func(t *rapid.T) {
			if m.paused || rapid.Bool().Draw(t, "resume") {
				q.Resume()
				m.paused = false
			} else {
				q.Pause(operate.UntilResumed)
				m.paused = !m.down
			}
		},
		"time": func(t *rapid.T) {
			from := -5
			if config.MinInterval > 0 {
				from = 0 // the model does not forget that an interval is over
			}
			if len(m.failures) > 0 {
				from = 0 // a failure's delay does not grow when the clock is set back
			}
			d := time.Duration(rapid.IntRange(from, 15).Draw(t, "seconds")) * time.Second / 2
			synctest.Wait() // the loop's timer must not fire a second time before it looks
			c.Step(d)
			if rapid.Bool().Draw(t, "wait") {
				synctest.Wait()
			}
			m.pass(c.Since(testkit.Epoch))
		},
		"shut down": func(t *rapid.T) {
			if rapid.IntRange(0, 20).Draw(t, "really") > 0 {
				t.Skip("another action: a shutdown is rare")
			}
			var err error
			if rapid.Bool().Draw(t, "drain") {
				err = q.ShutDownContext(canceled)
			} else {
				q.ShutDown()
			}
			m.shutDown()
			if left := m.count(workqueue.KeyQueued) + m.count(workqueue.KeyProcessing); err != nil && left == 0 {
				t.Fatalf("ShutDownContext() = %v of an empty queue", err)
			}
		},
		"": func(t *rapid.T) { compareState(t, q, m, limiter) },
	})
}

// compareHistograms: a latency is counted for each key that was handed out, and a time of work for each of
// those that is Done.
func compareHistograms(t *rapid.T, got workqueue.Stats, m *slowQueue) {
	work, running := got.WorkDuration.Count(), uint64(m.count(workqueue.KeyProcessing)-m.onHold())
	if taken := got.Latency.Count(); taken != m.taken || work != m.taken-running {
		t.Fatalf("%d latencies and %d times of work of %d keys, %d of them held", taken, work, m.taken, running)
	}
}

func compareState(t *rapid.T, q *pq.Queue[int], m *slowQueue, limiter *countingLimiter) {
	want := m.stats
	want.Queued, want.Processing, want.Waiting = m.count(workqueue.KeyQueued), m.count(workqueue.KeyProcessing),
		m.count(workqueue.KeyWaiting)
	// Adds of keys that are due are not counted before a call looks.
	want.Name, want.ShuttingDown, want.Paused = m.config.Name, m.down, m.paused
	want.Failing, want.OnHold = len(m.failures), m.onHold()
	for _, k := range m.sorted(workqueue.KeyQueued) {
		if m.blocked(k.group) {
			want.Blocked++
		}
	}
	got := q.Stats()
	got.ByPriority = nil
	got.Again = 0 // CheckInvariants counts them
	if m.config.MetricsProvider != nil {
		compareHistograms(t, got, m)
		got.OldestQueued, got.LongestRunning, got.UnfinishedWork = 0, 0, 0
		got.Latency, got.WorkDuration = nil, nil
	}
	if got != want || q.Len() != want.Queued || q.ShuttingDown() != m.down {
		t.Fatalf("Stats() = %+v, Len() = %d, ShuttingDown() = %v, want %+v, %v", got, q.Len(), q.ShuttingDown(),
			want, m.down)
	}
	if err := q.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
	if asked := m.limiter.(*countingLimiter).asked; limiter.asked != asked {
		t.Fatalf("the limiter was asked %d times, want %d", limiter.asked, asked)
	}
	if got, want := q.PausedGroups(), slices.Sorted(maps.Keys(m.pausedGroups)); !slices.Equal(got, want) ||
		(got == nil) != (m.config.Group == nil) {
		t.Fatalf("PausedGroups() = %q, want %q", got, want)
	}
	compareNotes(t, q, m)
	compareSnapshot(t, q, m)
	for key := range 9 {
		got, ok := q.SnapshotKey(key)
		want, in := m.snapshot(key)
		got.Since, got.Causes, got.Failures = time.Time{}, nil, workqueue.Failures{} // compareNotes; below
		if got != want || ok != in {
			t.Fatalf("SnapshotKey(%d) = %+v, %v, want %+v", key, got, ok, want)
		}
		known := q.Failures(key)
		if f := m.failures[key]; known.Count != f.n || f.n > 0 && known.Left != max(0, f.until-m.now) {
			t.Fatalf("Failures(%d) = %+v, want %+v at %v", key, known, f, m.now)
		}
	}
}

// compareNotes: each key has the causes of the model, and the channels of AddedAgain are closed that must be.
func compareNotes(t *rapid.T, q *pq.Queue[int], m *slowQueue) {
	waits := m.ended
	for key := range 9 {
		var want []string
		if k := m.keys[key]; k != nil {
			if want = k.nextCauses; k.state == workqueue.KeyProcessing {
				want = k.currentCauses
			}
			for _, w := range k.waits {
				w.closed = w.closed || k.addedLoudly()
			}
			waits = append(waits, k.waits...)
		}
		if got := q.Causes(key).String(); got != strings.Join(want, "; ") {
			t.Fatalf("Causes(%d) are %q, want %q", key, got, want)
		}
		if k, _ := q.SnapshotKey(key); k.Causes != nil && k.Causes.String() != strings.Join(want, "; ") ||
			k.Causes == nil && len(want) > 0 {
			t.Fatalf("SnapshotKey(%d) has the causes %v, want %q", key, k.Causes, want)
		}
	}
	for _, w := range waits {
		select {
		case <-w.c:
			if !w.closed {
				t.Fatal("a channel of AddedAgain is closed too early")
			}
		default:
			if w.closed {
				t.Fatal("a channel of AddedAgain is not closed")
			}
		}
	}
}

// compareSnapshot: each state has the keys of the model, in their order, and SnapshotKeys has all of them.
func compareSnapshot(t *rapid.T, q *pq.Queue[int], m *slowQueue) {
	s := q.Snapshot(100)
	var want, blocked, waiting []*slowKey
	for _, k := range m.sorted(workqueue.KeyQueued) {
		if m.blocked(k.group) {
			blocked = append(blocked, k)
		} else {
			want = append(want, k)
		}
	}
	m.inOrder(want)
	m.inOrder(blocked)
	want = append(want, blocked...)
	if len(s.Queued) != len(want) {
		t.Fatalf("Snapshot() has the queued keys %v, want %d", keysOf(s.Queued), len(want))
	}
	for i, k := range s.Queued {
		got := m.keys[k.Key]
		if got != want[i] && (m.config.Group == nil || m.before(got, want[i]) || m.before(want[i], got)) ||
			k.Blocked != m.blocked(got.group) {
			t.Fatalf("Snapshot() has the queued keys %v, want %d as number %d", keysOf(s.Queued), want[i].key, i)
		}
	}
	waiting = m.sorted(workqueue.KeyWaiting)
	for i, k := range s.Waiting {
		if len(s.Waiting) != len(waiting) || k.Key != waiting[i].key {
			t.Fatalf("Snapshot() has the waiting keys %v, want %d", keysOf(s.Waiting), len(waiting))
		}
	}
	if len(s.Processing) != m.count(workqueue.KeyProcessing)-m.onHold() {
		t.Fatalf("Snapshot() has the held keys %v", keysOf(s.Processing))
	}
	n := 0
	for k := range q.SnapshotKeys() {
		n++
		key := m.keys[k.Key]
		causes := key.nextCauses
		if k.State == workqueue.KeyProcessing {
			causes = key.currentCauses
		}
		if (k.Causes == nil) != (len(causes) == 0) || k.Causes != nil &&
			k.Causes.String() != strings.Join(causes, "; ") {
			t.Fatalf("SnapshotKeys() has %+v, want the causes %q", k, causes)
		}
		if one, found := q.SnapshotKey(k.Key); !found || k.State != one.State &&
			!(key.timed && k.State == workqueue.KeyWaiting) ||
			one.State != key.state || one.Again != key.again || one.Group != key.group ||
			one.Due.IsZero() == (key.state == workqueue.KeyWaiting || key.timed) {
			t.Fatalf("SnapshotKey() = %+v, SnapshotKeys() has %+v, want %+v", one, k, key)
		}
	}
	if want := len(s.Queued) + len(s.Waiting) + len(s.Processing) + m.onHold(); n != want {
		t.Fatalf("SnapshotKeys() yields %d keys, want %d", n, want)
	}
}

// onHold returns how many keys are on hold.
func (m *slowQueue) onHold() (n int) {
	for _, k := range m.keys {
		if k.onHold {
			n++
		}
	}
	return n
}

// snapshot returns what SnapshotKey does, without Since and Causes.
func (m *slowQueue) snapshot(key int) (s workqueue.KeySnapshot[int], in bool) {
	s = workqueue.KeySnapshot[int]{Key: key, Requeues: max(m.limiter.NumRequeues(key), m.failures[key].n)}
	k := m.keys[key]
	if k == nil {
		return s, false
	}
	s.State, s.Priority, s.Group = k.state, k.priority, k.group
	s.OnHold = k.onHold
	s.Blocked = k.state == workqueue.KeyQueued && m.blocked(k.group)
	if k.state == workqueue.KeyProcessing && k.again {
		s.Again, s.Priority = true, k.againPriority
	}
	if k.state == workqueue.KeyWaiting || k.timed {
		s.Due = testkit.Epoch.Add(k.due)
	}
	return s, true
}
