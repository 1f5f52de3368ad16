package worker

import "time"

// A handler whose own add interrupts it, as one that writes a status and forgets to call that add quiet, would be called again
// and again without a pause. So a key that was interrupted a few times in a row is slowed down as if it had failed.

const (
	// maxInterruptions is how often in a row a key comes at once after it was interrupted.
	maxInterruptions = 5
	// After that it comes after firstPause, and then each time after twice the last pause, up to lastPause.
	firstPause = 5 * time.Millisecond
	lastPause  = 10 * time.Second
	// maxInterrupted bounds the memory of keys that were interrupted and then removed from the queue.
	maxInterrupted = 10_000
)

// countInterruptionLocked counts a call that was interrupted.
func (b *Books[T]) countInterruptionLocked(key T) {
	n := b.mu.interruptions[key]
	if b.mu.interruptions == nil || n == 0 && len(b.mu.interruptions) == maxInterrupted {
		b.mu.interruptions = make(map[T]int)
	}
	b.mu.interruptions[key] = n + 1
}

// loopingLocked returns how many keys were interrupted more than a few times in a row.
func (b *Books[T]) loopingLocked() (keys int) {
	for _, n := range b.mu.interruptions {
		if n > maxInterruptions {
			keys++
		}
	}
	return keys
}

// interruptions returns how often in a row the last calls of key were interrupted.
func (b *Books[T]) interruptions(key T) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.interruptions[key]
}

// pause returns how long a key that was interrupted that many times in a row must wait.
func pause(interruptions int) time.Duration {
	if interruptions <= maxInterruptions {
		return 0
	}
	return min(firstPause<<min(interruptions-maxInterruptions-1, 20), lastPause)
}

// done calls Done of the key, which a call has answered. If the key must pause, it does so in the background and stays with the
// pool: it was added again, so without Done it does not come. (In a group with a Limit it counts meanwhile.)
func (p *Pool[T]) done(e *Entry[T]) {
	key := e.result.Key
	if e.result.Next == NextInterrupted {
		if d := pause(p.books.interruptions(key)); d > 0 && !p.queue.ShuttingDown() && p.mayPause() {
			go p.guarded(func() { p.pauseKey(key, d) })
			return
		}
	}
	p.queue.Done(key)
}

// mayPause counts a key that pauses, or returns false at the end of the pool.
func (p *Pool[T]) mayPause() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.phase >= finishing {
		return false
	}
	p.mu.pausing++
	return true
}

func (p *Pool[T]) pauseKey(key T, d time.Duration) {
	defer p.locked(func() {
		p.mu.pausing--
		p.workerLeft.Broadcast()
	})
	defer p.queue.Done(key)
	timer := p.options.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-p.unpause:
	case <-p.starting.Done():
	}
}

// endPauses ends the pauses of all keys, because the queue is shut down, and waits for their Dones. It reports whether there were any.
func (p *Pool[T]) endPauses() (any bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; p.mu.pausing > 0; any = true {
		if !isClosed(p.unpause) {
			close(p.unpause)
		}
		p.workerLeft.Wait()
	}
	return any
}
