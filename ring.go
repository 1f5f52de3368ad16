package workqueue

import "github.com/keyedqueue/workqueue/internal/stash"

// Queue is a place for keys that wait for a worker. A user of [TypedQueueConfig] can supply one to
// decide the order in which keys are handed out.
//
// The queue calls the methods under its lock: never two at once, and they must not call the queue
// back. A panic of one of them reaches the caller of the queue's method and leaves the queue usable.
// Where there is no caller, when a delayed key comes due, it ends the program, as in any goroutine.
type Queue[T comparable] interface {
	// Touch tells that a key was added again that is in the Queue already.
	Touch(item T)
	// Push puts a key into the Queue. It is not called for a key that is there.
	Push(item T)
	// Len returns the number of keys in the Queue.
	Len() int
	// Pop takes out the next key. It is called only while Len is not zero.
	Pop() (item T)
}

// DefaultQueue returns a [Queue] that is first in, first out. A queue that is built without a Queue
// has this order too, and is faster; this one is for Queues that order some keys themselves and leave
// the rest to it. Pop of an empty one panics.
func DefaultQueue[T comparable]() Queue[T] { return &fifo[T]{} }

// fifo is a ring as a Queue.
type fifo[T comparable] struct{ ring[T] }

func (f *fifo[T]) Touch(T)     {}
func (f *fifo[T]) Push(item T) { f.push(item) }
func (f *fifo[T]) Len() int    { return f.n }

func (f *fifo[T]) Pop() T {
	if f.n == 0 {
		panic("workqueue: Pop of an empty Queue")
	}
	return f.pop()
}

// ring is a first-in, first-out buffer. Its elements are the n from buf[first] on, taken round at the
// end; the rest of buf is zero. The length of buf is zero or a power of two.
type ring[E any] struct {
	buf      []E
	first, n int
	// spare has what buf was before it grew or shrank.
	spare stash.Stash[E]
}

const (
	minRingLen = 8
	// keptRingLen is the length down to which a ring shrinks.
	keptRingLen = 1 << 10
)

func (r *ring[E]) push(e E) {
	if r.n == len(r.buf) {
		r.resize(max(minRingLen, 2*r.n))
	}
	r.buf[(r.first+r.n)&(len(r.buf)-1)] = e
	r.n++
}

// pop takes out the oldest element. There must be one.
func (r *ring[E]) pop() E {
	var zero E
	e := r.buf[r.first]
	r.buf[r.first] = zero
	r.first = (r.first + 1) & (len(r.buf) - 1)
	r.n--
	if len(r.buf) > keptRingLen && r.n <= len(r.buf)/8 {
		r.resize(max(keptRingLen, len(r.buf)/4))
	}
	return e
}

// at returns the element before which there are i. There must be one.
func (r *ring[E]) at(i int) E { return r.buf[(r.first+i)&(len(r.buf)-1)] }

// ahead returns up to n of the oldest elements that lie side by side; if there are fewer, what follows is zero.
func (r *ring[E]) ahead(n int) []E { return r.buf[r.first:min(r.first+n, len(r.buf))] }

func (r *ring[E]) resize(n int) {
	buf := r.spare.Get(n)
	k := copy(buf, r.buf[r.first:min(r.first+r.n, len(r.buf))])
	copy(buf[k:], r.buf[:r.n-k])
	if len(r.buf) >= keptRingLen {
		clear(r.buf)
		r.spare.Put(r.buf)
	}
	r.buf, r.first = buf, 0
}
