package priorityqueue

import "github.com/keyedqueue/workqueue/internal/keytable"

// A key with which nothing more is to be done rests until its MinInterval is over, so that the queue knows when
// it was handed out. It rests for no longer than MinInterval after it came to rest, and all rest in the order
// in which they came, so the first is over by then and nobody needs a clock or a heap to notice: whoever uses
// the queue clears away some of those whose time is over. As each call makes at most one key rest, they
// become fewer.

// maxSwept is how many of the keys that have rested are cleared away at once. Two would do while the queue is
// busy. After a burst of a million keys, when only a scrape comes by every few seconds, that would take weeks;
// to clear away all at once would keep others waiting. So many take some ten microseconds.
const maxSwept = 256

// floorOf returns the time before which the key at s must not be handed out, in a queue with MinInterval.
func (q *Queue[T]) floorOf(s keytable.Slot) int64 {
	return addSaturated(q.details.At(s).started, q.minInterval)
}

// restLocked makes the key at s, which is out of everything else, rest.
func (q *Queue[T]) restLocked(s keytable.Slot, it *item) {
	it.state = resting
	it.home = keytable.None
	q.appendLocked(&q.resting, s, it)
}

func (q *Queue[T]) sweepLocked(now int64) {
	for range maxSwept {
		s := q.resting.first
		if s == keytable.None || q.floorOf(s) > now {
			return
		}
		q.forgetRestLocked(s)
	}
}

func (q *Queue[T]) forgetRestLocked(s keytable.Slot) {
	q.unlinkLocked(&q.resting, &q.keys.At(s).Value)
	q.deleteLocked(s)
}
