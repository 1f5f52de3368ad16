package workqueue

// DefaultQueue returns a [Queue] that is first in, first out. A queue that is built without a Queue
// has this order too, and is faster; this one is for Queues that change the order of some keys and
// embed it for the rest. Pop of an empty one panics.
func DefaultQueue[T comparable]() Queue[T] { return &fifo[T]{} }

// fifo is a ring buffer. Its keys are items[first:first+n], taken round at the end.
type fifo[T comparable] struct {
	items    []T
	first, n int
}

// minFIFO is the smallest number of items that a fifo makes room for.
const minFIFO = 8

func (f *fifo[T]) Touch(T) {}

func (f *fifo[T]) Len() int { return f.n }

func (f *fifo[T]) Push(item T) {
	if f.n == len(f.items) {
		f.resize(max(minFIFO, 2*f.n))
	}
	f.items[(f.first+f.n)%len(f.items)] = item
	f.n++
}

func (f *fifo[T]) Pop() (item T) {
	if f.n == 0 {
		panic("workqueue: Pop of an empty Queue")
	}
	var zero T
	item, f.items[f.first] = f.items[f.first], zero
	f.first = (f.first + 1) % len(f.items)
	f.n--
	// A quarter, so that a queue whose length swings around a power of two does not copy each time.
	if half := len(f.items) / 2; half >= minFIFO && f.n <= half/2 {
		f.resize(half)
	}
	return item
}

func (f *fifo[T]) resize(n int) {
	items := make([]T, n)
	tail := copy(items, f.items[f.first:min(f.first+f.n, len(f.items))])
	copy(items[tail:], f.items[:f.n-tail])
	f.items, f.first = items, 0
}
