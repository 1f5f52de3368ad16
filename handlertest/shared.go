package handlertest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
)

// memberQueue is the queue as a process of a run sees it. When the process has crashed, nothing that it does reaches the queue.
type memberQueue[K comparable] struct {
	*perturbed[K]
	process *Process
	line    *line[K] // nil unless the queue is shared
}

// leased is memberQueue with leases.
type leasedMemberQueue[K comparable] struct{ memberQueue[K] }

func (q leasedMemberQueue[K]) Lease(ctx context.Context, key K) (context.Context, context.CancelFunc) {
	return q.lease(ctx, key)
}

// endLeases gives the keys of a process that has crashed to others.
func (q memberQueue[K]) endLeases() {
	q.mu.Lock()
	held := make(map[string]func())
	for key, l := range q.mu.leases {
		if l.owner == q.process {
			held[fmt.Sprint(key)] = func() { q.endLease(key, l) }
		}
	}
	q.mu.Unlock()
	for _, text := range slices.Sorted(maps.Keys(held)) {
		held[text]()
	}
}

// GetContext is the only way in which a pool gets keys.
func (q memberQueue[K]) GetContext(ctx context.Context) (key K, err error) {
	if q.line == nil {
		return q.perturbed.GetContext(ctx)
	}
	return q.line.get(ctx, q.process)
}

func (q memberQueue[K]) Add(key K) {
	if !q.process.isDead() {
		q.perturbed.Add(key)
	}
}

func (q memberQueue[K]) AddCause(key K, cause workqueue.Cause) {
	if !q.process.isDead() {
		q.perturbed.AddCause(key, cause)
	}
}

func (q memberQueue[K]) AddAfter(key K, d time.Duration) {
	if !q.process.isDead() {
		q.perturbed.AddAfter(key, d)
	}
}

func (q memberQueue[K]) AddRateLimited(key K) {
	if !q.process.isDead() {
		q.perturbed.AddRateLimited(key)
	}
}

func (q memberQueue[K]) Forget(key K) {
	if !q.process.isDead() {
		q.perturbed.Forget(key)
	}
}

func (q memberQueue[K]) Done(key K) {
	if !q.process.isDead() {
		q.perturbed.Done(key)
	}
}

// line hands out the keys of a shared queue one at a time, to the processes in turn. If their workers asked the queue themselves, it would depend on
// the scheduler of Go which process gets a key.
type line[K comparable] struct {
	queue *perturbed[K]
	sim   *sim

	mu      sync.Mutex
	waiting []*getter[K]
	more    chan struct{}    // has an element when a getter has come
	turn    map[*Process]int // how many keys each process has got
}

// getter is a worker that waits for a key.
type getter[K comparable] struct {
	process *Process
	key     chan K
}

func newLine[K comparable](s *sim, queue *perturbed[K]) *line[K] {
	return &line[K]{queue: queue, sim: s, more: make(chan struct{}, 1), turn: make(map[*Process]int)}
}

func (l *line[K]) get(ctx context.Context, p *Process) (key K, err error) {
	if err := ctx.Err(); err != nil {
		return key, err
	}
	g := &getter[K]{p, make(chan K, 1)}
	l.mu.Lock()
	l.waiting = append(l.waiting, g)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	select {
	case key = <-g.key:
		return key, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, g); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return key, ctx.Err()
	}
	return <-g.key, nil // It has just got one.
}

// run gets keys while workers wait, until ctx ends.
func (l *line[K]) run(ctx context.Context) {
	for {
		select {
		case <-l.more:
		case <-ctx.Done():
			return
		}
		for l.anyWaiting() {
			key, err := l.queue.Extended.GetContext(ctx)
			if err != nil {
				return
			}
			handed := make(chan struct{})
			l.sim.after(0, fmt.Sprint(key), nil, func() { // When all workers that ask at this moment have asked.
				l.hand(key)
				close(handed)
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

// hand gives the key to a worker of the process that has got the fewest.
func (l *line[K]) hand(key K) {
	l.mu.Lock()
	if len(l.waiting) == 0 { // Their process has crashed meanwhile.
		l.mu.Unlock()
		l.queue.queue.Add(key)
		l.queue.queue.Done(key)
		return
	}
	g := slices.MinFunc(l.waiting, func(a, b *getter[K]) int {
		return cmp.Or(cmp.Compare(l.turn[a.process], l.turn[b.process]), cmp.Compare(a.process.name, b.process.name))
	})
	l.waiting = slices.DeleteFunc(l.waiting, func(other *getter[K]) bool { return other == g })
	l.turn[g.process]++
	l.mu.Unlock()
	l.queue.handedOut(key, g.process)
	g.key <- key
}
