package priorityqueue

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
)

// Where many keys come due at once, no call waits until all have been made ready. The loop makes all of them
// ready without being woken.
func TestManyDueKeys(t *testing.T) {
	const n = 3*maxMoved + 5
	synctest.Test(t, func(t *testing.T) {
		q := New(Config[int]{})
		defer q.ShutDown()
		for key := range n {
			q.AddAfter(key, time.Second)
		}
		waiting := func(move bool) int {
			q.mu.Lock()
			defer q.mu.UnlockAndSend()
			if move {
				q.moveDueLocked(q.nextDueLocked())
			}
			return q.mu.due.Len()
		}
		if left := waiting(true); left != n-maxMoved {
			t.Errorf("one call made %d keys ready, want %d", n-left, maxMoved)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if left := waiting(false); left != 0 {
			t.Errorf("%d keys are still waiting", left)
		}
		if err := q.CheckInvariants(); err != nil {
			t.Fatal(err)
		}
		for want := range n {
			if key, _ := q.Get(); key != want {
				t.Fatalf("Get() = %d, want %d", key, want)
			}
			q.Done(want)
		}
	})
}

// Held keys that were added again stand in the line. Those before the first queued key are stepped over once,
// and not for each key that is taken: that would take minutes here.
func TestManyHeldKeysInTheLine(t *testing.T) {
	const n = 200_000
	for name, config := range map[string]Config[int]{"": {}, "Aging": {Aging: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			q := New(config)
			add := func(from int) {
				for key := from; key < from+n; key++ {
					q.Add(key)
				}
			}
			take := func(from int) {
				t.Helper()
				for key := from; key < from+n; {
					batch, err := q.GetBatch(t.Context(), n)
					if err != nil || batch[0].Key != key {
						t.Fatalf("GetBatch: %d, %v, want %d", batch[0].Key, err, key)
					}
					key += len(batch)
				}
			}
			add(0)
			take(0)
			began := time.Now()
			add(0)
			add(n)
			take(n)
			for key := range n {
				q.Done(key)
			}
			take(0)
			if took := time.Since(began); took > testkit.Patience {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// No call holds the lock for a time that grows with the number of keys. These tests count the keys of a lock,
// or the locks of a call, because a test of durations would depend on what else the machine does.
func TestLocksAreShort(t *testing.T) {
	const n = 10 * maxPerLock
	synctest.Test(t, func(t *testing.T) {
		q := New(Config[int]{MinInterval: time.Hour})
		for key := range n {
			q.AddAfter(key, time.Hour)
		}
		for key := range n {
			q.Add(n + key)
		}
		left := func() int { return q.Stats().Waiting + q.Stats().Queued }
		if s := q.copyFirst(maxPerLock); len(s.Queued) > maxPerLock || len(s.Waiting) > maxPerLock {
			t.Errorf("Snapshot copies %d and %d keys under one lock", len(s.Queued), len(s.Waiting))
		}
		q.mu.Lock()
		q.shuttingDown.Store(true)
		q.mu.stopped, q.mu.dropsQueued = true, true
		q.unlock()
		for n := 0; left() > 0; n++ {
			before := left()
			if q.dropSlab(n, nil); before-left() > maxPerLock {
				t.Fatalf("%d keys are dropped under one lock", before-left())
			}
		}
		q.ShutDown()
		if len(slices.Collect(q.SnapshotKeys())) != 0 {
			t.Error("not all keys were dropped")
		}
	})
}

// A call that concerns many keys gives the lock back at least every maxPerLock keys. With Aging the queue
// reads the clock under each lock, so the readings count the locks.
func TestManyKeysTakeManyLocks(t *testing.T) {
	const n = 10 * maxPerLock
	locks := 0
	clock := &testkit.HookedClock{WithTicker: testkit.NewFakeClock(), OnNow: func() { locks++ }}
	q := New(Config[int]{Aging: time.Hour, Clock: clock})
	defer q.ShutDown()
	measure := func(what string, want int, f func()) {
		t.Helper()
		locks = 0
		if f(); locks < want {
			t.Errorf("%s of %d keys takes %d locks, want at least %d", what, n, locks, want)
		}
	}
	var keys []int
	for key := range n {
		keys = append(keys, key)
	}
	measure("AddWithOpts", 10, func() { q.AddWithOpts(AddOpts{}, keys...) })
	measure("SnapshotKeys", 10, func() {
		for range q.SnapshotKeys() {
		}
	})
	locks = 0
	batch, err := q.GetBatch(t.Context(), n)
	if len(batch) != n {
		t.Errorf("GetBatch() = %d keys, %v", len(batch), err)
	}
	if locks < 10 {
		t.Errorf("GetBatch takes %d locks, want at least 10", locks)
	}
	for i, k := range batch {
		if k.Key != keys[i] {
			t.Fatalf("GetBatch() has %d as number %d", k.Key, i)
		}
		q.Done(k.Key)
	}
	if st := q.Stats(); st.Queued+st.Processing != 0 {
		t.Errorf("Stats() = %+v", st)
	}
}

// While a shutdown drops many keys it gives the lock back. Nothing that it is to drop is handed out in
// between, or comes due.
func TestBetweenTheLocksOfAShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Config[string]{Aging: time.Hour}) // reads the clock in every call
		q.Add("held")
		q.Get()
		q.AddAfter("held", time.Second)
		q.AddAfter("waiting", time.Second)
		q.Add("queued")
		begin := func(stop bool) {
			q.mu.Lock()
			defer q.unlock()
			q.shuttingDown.Store(true)
			q.mu.stopped = stop
		}
		begin(false)
		time.Sleep(time.Second)
		if n := q.Len(); n != 1 {
			t.Errorf("%d keys are queued, want 1", n)
		}
		q.Done("held")
		if n := q.Len(); n != 1 {
			t.Errorf("%d keys are queued after the Done of a key that was to come later, want 1", n)
		}
		begin(true)
		if key, shutdown := q.Get(); !shutdown {
			t.Errorf("Get() = %s", key)
		}
		q.ShutDownNow()
		if st := q.Stats(); st.Dropped != 3 || st.Queued+st.Waiting+st.Processing != 0 {
			t.Errorf("Stats() = %+v", st)
		}
	})
}

// An event that is added while a shutdown ends the intervals comes before the end, as those before it.
func TestAddWhileIntervalsEnd(t *testing.T) {
	q := New(Config[string]{Clock: testkit.NewFakeClock(), MinInterval: time.Hour})
	q.Add("a")
	q.Get()
	q.Done("a")
	q.endIntervals()
	q.Add("a")
	for !q.tryShutDown(func() {}) {
	}
	q.ShutDown()
	if key, shutdown := q.Get(); key != "a" || shutdown {
		t.Errorf("got %q, shutdown is %v; %+v", key, shutdown, q.Stats())
	}
}

// A getter that waits for the lock hands out its key when it has it, not when the wait began: otherwise the key
// could be handed out before its MinInterval is over.
func TestIntervalOfAGetThatWaitedForTheLock(t *testing.T) {
	clock := testkit.NewFakeClock()
	q := New(Config[string]{Clock: clock, MinInterval: 50 * time.Millisecond})
	defer q.ShutDown()
	q.Add("a")
	q.mu.Lock()
	got := make(chan string)
	go func() {
		key, _ := q.Get()
		got <- key
	}()
	time.Sleep(10 * time.Millisecond) // If the getter has not begun by then, the test finds less.
	clock.Step(50 * time.Millisecond)
	q.mu.UnlockAndSend()
	q.Done(<-got)
	q.Add("a")
	if k, _ := q.SnapshotKey("a"); k.Due.Sub(clock.Now()) != 50*time.Millisecond {
		t.Errorf("the key is %s, and comes after %v", k.State, k.Due.Sub(clock.Now()))
	}
}
