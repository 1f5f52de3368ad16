package priorityqueue

import (
	"testing"
	"testing/synctest"
	"time"
)

// Where many keys come due at once, no call waits until all have been made ready. The loop makes all of them ready
// without being woken.
func TestManyDueKeys(t *testing.T) {
	const n = 3*maxMoved + 5
	synctest.Test(t, func(t *testing.T) {
		q := New(Config[int]{})
		defer q.ShutDown()
		for key := range n {
			q.AddAfter(key, time.Second)
		}
		waiting := func(move bool) int {
			q.gate.Lock()
			defer q.gate.Unlock()
			if move {
				q.moveDueLocked(q.due.First().Rank)
			}
			return q.due.Len()
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
