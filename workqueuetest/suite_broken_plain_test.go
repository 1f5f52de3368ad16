package workqueuetest

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// plain is the usual queue with a mutex and a condition variable. Its flags add bugs.
type plain struct {
	addsAfterShutDown, wakesOne bool

	*sync.Cond
	line        []string
	dirty, held map[string]bool
	down, ended bool
}

func newPlain(q plain) *plain {
	q.Cond = sync.NewCond(new(sync.Mutex))
	q.dirty, q.held = make(map[string]bool), make(map[string]bool)
	return &q
}

// unlock wakes all waiters, which check for themselves.
func (q *plain) unlock() {
	if q.wakesOne {
		if len(q.line) <= 1 {
			q.Signal()
		}
	} else {
		q.Broadcast()
	}
	q.L.Unlock()
}

func (q *plain) Add(key string) {
	q.L.Lock()
	defer q.unlock()
	if q.down && !q.addsAfterShutDown || q.dirty[key] {
		return
	}
	q.dirty[key] = true
	if !q.held[key] {
		q.line = append(q.line, key)
	}
}

func (q *plain) Get() (string, bool) {
	q.L.Lock()
	defer q.L.Unlock()
	for len(q.line) == 0 {
		if q.down {
			return "", true
		}
		q.Wait()
	}
	key := q.line[0]
	q.line = q.line[1:]
	delete(q.dirty, key)
	q.held[key] = true
	return key, false
}

func (q *plain) Done(key string) {
	q.L.Lock()
	defer q.unlock()
	if q.held[key] && q.dirty[key] {
		q.line = append(q.line, key)
	}
	delete(q.held, key)
	if len(q.dirty)+len(q.held) == 0 {
		q.dirty, q.held = make(map[string]bool), make(map[string]bool)
	}
}

func (q *plain) Len() int {
	q.L.Lock()
	defer q.L.Unlock()
	return len(q.line)
}

func (q *plain) ShutDown() {
	q.L.Lock()
	defer q.unlock()
	q.down, q.ended = true, true
}

func (q *plain) ShutDownWithDrain() {
	q.L.Lock()
	defer q.L.Unlock()
	q.down, q.ended = true, false
	q.Broadcast()
	for len(q.line)+len(q.held) > 0 && !q.ended {
		q.Wait()
	}
}

func (q *plain) ShuttingDown() bool {
	q.L.Lock()
	defer q.L.Unlock()
	return q.down
}

// lateAdder is a delaying queue whose delays ignore a shutdown.
type lateAdder struct {
	*plain
	clock clock.WithTicker
}

func (q lateAdder) AddAfter(key string, d time.Duration) {
	if d <= 0 {
		q.Add(key)
		return
	}
	timer := q.clock.NewTimer(d)
	go func() {
		<-timer.C()
		q.Add(key)
	}()
}

func (q lateAdder) AddRateLimited(key string) { q.AddAfter(key, time.Second) }
func (q lateAdder) Forget(string)             {}
func (q lateAdder) NumRequeues(string) int    { return 0 }
