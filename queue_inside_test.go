package workqueue

import "testing"

// While one worker holds one key at a time, Done leaves the hash alone: the lock will show that the key is
// the latest. Where workers hold several, it is hashed before the lock is taken.
func TestDoneHashesIfSeveralAreHeld(t *testing.T) {
	q := NewTyped[int]()
	want := func(when string, want bool) {
		t.Helper()
		if _, hashed := q.latest.Hash(1); hashed != want {
			t.Errorf("%s: hashed = %v", when, hashed)
		}
	}
	for key := range 5 {
		q.Add(key)
	}
	want("before a Get", false)
	q.Get()
	want("with one key held", false)
	q.Get()
	want("with two keys held", true)
	q.Get()
	want("with three keys held", true)
	for key := range 3 {
		q.Done(key)
	}
	q.Get()
	want("with one key held again", false)
	q.Done(3)
	q.Get()
	want("with the next one held", false)
}

// A wake-up is for a getter that sleeps. A drain that waits is told in another way.
func TestDrainGetsNoWakeUp(t *testing.T) {
	q := NewTyped[int]()
	q.Add(1)
	q.Add(2)
	q.Get()
	q.beginDrain()
	q.Done(1)
	if len(q.wakeUps) != 0 || q.wakeUpPending {
		t.Error("a wake-up was sent, and nobody sleeps")
	}
	if q.drain == nil {
		t.Error("the drain has ended, and a key is queued")
	}
	q.Get()
	q.Done(2)
	if q.drain != nil || q.watchers != 0 {
		t.Errorf("the drain has not ended with the last key, %d watchers", q.watchers)
	}
}

// A getter that sleeps is woken when there is something for it, and not by everything that happens.
func TestSleeperIsWokenForAKey(t *testing.T) {
	q := NewTyped[int]()
	q.Add(1)
	q.Get()
	q.sleeping, q.watchers = 1, 1 // as if a getter slept
	q.Done(1)
	if len(q.wakeUps) != 0 {
		t.Error("a wake-up was sent, and nothing is queued")
	}
	q.Add(2)
	q.Add(3)
	if len(q.wakeUps) != 1 || !q.wakeUpPending {
		t.Errorf("%d wake-ups are on their way, want 1", len(q.wakeUps))
	}
}
