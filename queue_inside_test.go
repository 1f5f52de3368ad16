package workqueue

import "testing"

// While one worker holds one key at a time, Done computes no hash: under the lock it will find the key that
// was taken last. While workers hold several keys, Done hashes its key before it takes the lock.
func TestDoneHashesIfSeveralAreHeld(t *testing.T) {
	q := NewTyped[int]()
	want := func(when string, want bool) {
		t.Helper()
		if _, hashed := q.last.Hash(1); hashed != want {
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
