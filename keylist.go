package workqueue

import (
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// slot is what a queue knows of a key. A key that has one is in exactly one list: in queued if it is
// dirty and not processing, and in processing if it is processing.
type slot struct {
	prev, next keytable.Slot

	// dirty: the key needs processing. processing: a worker holds it.
	dirty, processing bool

	// addedAt and startedAt are readings of queueMetrics.now: when the key became dirty, and when a
	// worker got it. They are zero in a queue without metrics.
	addedAt, startedAt time.Duration
}

// keyList is a list of slots in the order in which they were pushed. Its links are in the slots, so a
// key takes no memory beyond its slot, and leaves the middle of a list in constant time.
type keyList[T comparable] struct {
	head, tail keytable.Slot
	len        int
}

func (l *keyList[T]) pushBack(keys *keytable.Table[T, slot], s keytable.Slot) {
	k := keys.Value(s)
	k.prev, k.next = l.tail, keytable.None
	if l.tail == keytable.None {
		l.head = s
	} else {
		keys.Value(l.tail).next = s
	}
	l.tail = s
	l.len++
}

func (l *keyList[T]) remove(keys *keytable.Table[T, slot], s keytable.Slot) {
	k := keys.Value(s)
	if k.prev == keytable.None {
		l.head = k.next
	} else {
		keys.Value(k.prev).next = k.next
	}
	if k.next == keytable.None {
		l.tail = k.prev
	} else {
		keys.Value(k.next).prev = k.prev
	}
	l.len--
}
