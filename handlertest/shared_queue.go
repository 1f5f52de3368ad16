package handlertest

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/keyedqueue/workqueue"
)

// sharedQueue is a queue that processes share, as one of them sees it.
type sharedQueue[K comparable] struct {
	leasedQueue[K]
	line    *line[K]
	process *Process
}

// Next is the way in which a pool gets keys.
func (q sharedQueue[K]) Next(ctx context.Context) (h workqueue.HandOut[K], err error) {
	if err := ctx.Err(); err != nil {
		return h, err
	}
	l, g := q.line, &getter[K]{q, make(chan workqueue.HandOut[K], 1)}
	l.mu.Lock()
	l.waiting = append(l.waiting, g)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	select {
	case h = <-g.handed:
		return h, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, g); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return h, ctx.Err()
	}
	return <-g.handed, nil // It has just got one.
}

// GetContext and Get are for the workers of a Program.
func (q sharedQueue[K]) GetContext(ctx context.Context) (K, error) {
	h, err := q.Next(ctx)
	return h.Key, err
}

func (q sharedQueue[K]) Get() (key K, shutdown bool) {
	h, err := q.Next(q.process.ctx) // It is the others' key once this process has crashed.
	return h.Key, err != nil
}

// DropQueued returns nil: the keys are for the other processes.
func (q sharedQueue[K]) DropQueued() []K { return nil }

// line hands out the keys of a shared queue one at a time, to the processes in turn. If their workers asked
// the queue themselves, it would depend on the scheduler of Go which process gets a key.
type line[K comparable] struct {
	sim  *sim
	more chan struct{} // has an element when a getter has come

	mu      sync.Mutex
	waiting []*getter[K]
	turn    map[string]int // how many keys each process has got
}

// getter is a worker that waits for a key.
type getter[K comparable] struct {
	queue  sharedQueue[K]
	handed chan workqueue.HandOut[K]
}

// run gets keys of queue while workers wait, until ctx ends.
func (l *line[K]) run(ctx context.Context, queue workqueue.Extended[K]) {
	for {
		select {
		case <-l.more:
		case <-ctx.Done():
			return
		}
		for l.anyWaiting() {
			h, err := queue.Next(ctx)
			if err != nil {
				return
			}
			handed := make(chan struct{})
			l.sim.after(0, textOf(h.Key), nil, func() { // When all workers that ask at this moment have asked.
				defer close(handed)
				if !l.hand(h) {
					queue.Add(h.Key)
					queue.Done(h.Key)
				}
			})
			select {
			case <-handed:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (l *line[K]) anyWaiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) > 0
}

// hand gives the key to a worker of the process that has got the fewest. It returns false if none waits any
// more, because their process has crashed.
func (l *line[K]) hand(h workqueue.HandOut[K]) bool {
	l.mu.Lock()
	if len(l.waiting) == 0 {
		l.mu.Unlock()
		return false
	}
	g := slices.MinFunc(l.waiting, func(a, b *getter[K]) int {
		return cmp.Or(cmp.Compare(l.turn[a.queue.process.name], l.turn[b.queue.process.name]),
			cmp.Compare(a.queue.process.name, b.queue.process.name))
	})
	l.waiting = slices.DeleteFunc(l.waiting, func(other *getter[K]) bool { return other == g })
	l.turn[g.queue.process.name]++
	l.mu.Unlock()
	g.queue.handedOut(h.Key)
	g.handed <- h
	return true
}
