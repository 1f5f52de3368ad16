package workqueue

import (
	"runtime/debug"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r ring[*int]
		var model []*int
		for range rapid.IntRange(1, 8).Draw(t, "waves") {
			for range rapid.IntRange(0, 5000).Draw(t, "push") {
				e := new(int)
				r.push(e)
				model = append(model, e)
			}
			for range rapid.IntRange(0, len(model)).Draw(t, "pop") {
				if peeked, e := r.at(0), r.pop(); e != model[0] || peeked != e {
					t.Fatal("pop or peek returns another element than the oldest")
				}
				model = model[1:]
			}
			if r.n != len(model) {
				t.Fatalf("n = %d, want %d", r.n, len(model))
			}
			if err := r.checkInvariants(); err != nil {
				t.Fatal(err)
			}
			if len(r.buf) > max(keptRingLen, 8*(r.n+1)) {
				t.Fatalf("a buffer of %d for %d elements", len(r.buf), r.n)
			}
		}
	})
}

// FuzzRing makes each byte of the script some pushes or pops: what there is of either in a row doubles with
// the byte, so that the ring grows and shrinks between its sizes.
func FuzzRing(f *testing.F) {
	f.Fuzz(func(t *testing.T, script []byte) {
		var r ring[int]
		var model []int
		next := 1 // no element is zero, which is what the rest of the buffer is
		for _, b := range script[:min(len(script), 100)] {
			n := 1<<(b>>4&7) + int(b&15)*int(b>>4&7)*8
			if b>>7 == 0 {
				for range n {
					r.push(next)
					model = append(model, next)
					next++
				}
			} else {
				for range min(n, len(model)) {
					if e := r.pop(); e != model[0] {
						t.Fatalf("pop() = %d, want %d", e, model[0])
					}
					model = model[1:]
				}
			}
			if r.n != len(model) {
				t.Fatalf("n = %d, want %d", r.n, len(model))
			}
			if err := r.checkInvariants(); err != nil {
				t.Fatal(err)
			}
			for i, want := range model {
				if e := r.at(i); e != want {
					t.Fatalf("at(%d) = %d, want %d", i, e, want)
				}
			}
		}
	})
}

// A ring that is as full as it always is does not allocate.
func TestRingDoesNotGrowInUse(t *testing.T) {
	var r ring[int]
	for i := range minRingLen {
		r.push(i)
	}
	for i := range 100 {
		if e := r.pop(); e != i {
			t.Fatalf("pop() = %d, want %d", e, i)
		}
		r.push(i + minRingLen)
	}
	if len(r.buf) != minRingLen {
		t.Errorf("buffer of %d, want %d", len(r.buf), minRingLen)
	}
}

// A ring shrinks to a quarter when it is an eighth full, down to the size that it keeps.
func TestRingShrinks(t *testing.T) {
	var r ring[int]
	const n = 8 * keptRingLen
	for i := range n {
		r.push(i)
	}
	for i := range n {
		before, buf := len(r.buf), &r.buf[0]
		if e := r.pop(); e != i {
			t.Fatalf("pop() = %d, want %d", e, i)
		}
		want := before
		if before > keptRingLen && r.n <= before/8 {
			want = max(keptRingLen, before/4)
		}
		if len(r.buf) != want {
			t.Fatalf("buffer of %d for %d elements, want %d", len(r.buf), r.n, want)
		}
		if want == before && &r.buf[0] != buf {
			t.Fatalf("%d elements were copied to a buffer as large as before", r.n)
		}
	}
	if len(r.buf) != keptRingLen {
		t.Errorf("buffer of %d is kept, want %d", len(r.buf), keptRingLen)
	}
}

// A burst leaves the ring with the buffer that it had before, unless the collector came in between.
func TestRingReusesBuffers(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var r ring[int]
	for i := range keptRingLen {
		r.push(i)
	}
	before := &r.buf[0]
	r.push(keptRingLen)
	for r.n > 0 {
		r.pop()
	}
	if len(r.buf) != keptRingLen || &r.buf[0] != before {
		t.Errorf("another buffer, of %d, after a burst", len(r.buf))
	}
}

func TestDefaultQueue(t *testing.T) {
	q := DefaultQueue[int]()
	want := []int{3, 1, 2}
	for _, key := range want {
		q.Push(key)
		q.Touch(key)
	}
	var got []int
	for q.Len() > 0 {
		got = append(got, q.Pop())
	}
	if !slices.Equal(got, want) {
		t.Errorf("popped %v, want %v", got, want)
	}
	defer func() {
		if v := recover(); v != "workqueue: Pop of an empty Queue" {
			t.Errorf("Pop of an empty Queue panics with %v", v)
		}
		q.Push(4)
		if key := q.Pop(); key != 4 || q.Len() != 0 {
			t.Errorf("Pop() = %d after a panic", key)
		}
	}()
	q.Pop()
}
