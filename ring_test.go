package workqueue

import (
	"runtime/debug"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkRing makes each byte of the script some pushes or pops: what there is of either in a row doubles with
// the byte, so that the ring grows and shrinks between its sizes.
func checkRing(t rapid.TB, script []byte) {
	var r ring[int]
	var model []int
	next := 1 // no element is zero, which is what the rest of the buffer is
	for _, b := range script {
		n := 1<<(b>>4&7) + int(b&15)*int(b>>4&7)*8
		if b>>7 == 0 {
			for range n {
				r.push(next)
				model = append(model, next)
				next++
			}
		} else {
			for range min(n, len(model)) {
				peeked := r.ahead(1)[0]
				if e := r.pop(); e != model[0] || peeked != e {
					t.Fatalf("pop() = %d, peek %d, want %d", e, peeked, model[0])
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
		if all := slices.Collect(r.all()); !slices.Equal(all, model) {
			t.Fatalf("all() = %v, want %v", all, model)
		}
		if n := room(&r); n > max(3*maxBlockLen, 4*r.n+minBlockLen) {
			t.Fatalf("room for %d for %d elements", n, r.n)
		}
	}
}

func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkRing(t, rapid.SliceOfN(rapid.Byte(), 20, 100).Draw(t, "script")) })
}

func FuzzRing(f *testing.F) {
	f.Fuzz(func(t *testing.T, script []byte) { checkRing(t, script[:min(len(script), 100)]) })
}

// room returns how many elements the memory of r is for.
func room[E any](r *ring[E]) (n int) {
	for b := r.head; b != nil; b = b.next {
		n += len(b.buf)
	}
	if r.free != nil {
		n += len(r.free.buf)
	}
	return n
}

// A ring that is as full as it always is does not allocate, whether its elements fill one block or several.
func TestRingDoesNotGrowInUse(t *testing.T) {
	for _, n := range []int{1, minBlockLen/2 + 1, minBlockLen, maxBlockLen - 1, maxBlockLen, 5 * maxBlockLen} {
		var r ring[int]
		next := 0
		push := func() { r.push(next); next++ }
		for range n {
			push()
		}
		turn := func() {
			for range 10 * n {
				if e := r.pop(); e != next-n {
					t.Fatalf("pop() = %d, want %d", e, next-n)
				}
				push()
			}
		}
		turn()
		if allocs := testing.AllocsPerRun(1, turn); allocs > 0 {
			t.Errorf("%v allocations in a ring of %d", allocs, n)
		}
		if size := room(&r); size > max(4*n, minBlockLen)+2*maxBlockLen {
			t.Errorf("room for %d for %d elements", size, n)
		} else if n-1 <= minBlockLen/2 && size > minBlockLen { // n-1 when room is made for the next one
			t.Errorf("room for %d for %d elements, want %d", size, n, minBlockLen)
		}
	}
}

// The next burst uses the blocks of the last one, unless the collector came in between.
func TestRingReusesBlocks(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var r ring[int]
	burst := func() (blocks []*int) {
		for i := range 4 * maxBlockLen {
			r.push(i)
		}
		for b := r.head; b != nil; b = b.next {
			blocks = append(blocks, &b.buf[0])
		}
		for r.n > 0 {
			r.pop()
		}
		return blocks
	}
	before := burst()
	for _, block := range burst() {
		if !slices.Contains(before, block) {
			t.Error("a block is new")
		}
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
