package workqueue

import "context"

// sleepLocked unlocks q, waits for a wake-up or the end of ctx, and locks q again. It returns ctx.Err().
func (q *Typed[T]) sleepLocked(ctx context.Context) error {
	q.sleeping++
	q.watchers++
	q.mu.Unlock()
	woken := false
	select {
	case <-q.wakeUps:
		woken = true
	case <-ctx.Done():
	}
	err := ctx.Err()
	q.mu.Lock()
	q.sleeping--
	q.watchers--
	if woken {
		q.wakeUpPending = false
	}
	return err
}

// unlock ends every critical section after which there may be something to do for others. Add, Get and Done have it
// written out where no defer is needed, because no compiler inlines it: that saves three of seventy nanoseconds.
func (q *Typed[T]) unlock() {
	if q.watchers != 0 {
		q.notifyAndUnlock()
		return
	}
	q.mu.Unlock()
}

// notifyAndUnlock tells a sleeping getter that there is a key to take or a shutdown to notice, and those
// who drain that nothing is left.
//
// At most one wake-up is on its way at a time. The getter that receives it passes it on, by calling
// unlock, while there is more to do. So a burst of adds wakes one worker for a start and not one for
// each key, and a getter that gives up takes no wake-up with it.
func (q *Typed[T]) notifyAndUnlock() {
	if q.drain != nil && q.keys.Len() == 0 {
		q.endDrainLocked(nil)
	}
	wake := q.sleeping > 0 && !q.wakeUpPending && (q.queued > 0 || q.shuttingDown.Load())
	if wake {
		q.wakeUpPending = true
	}
	q.mu.Unlock()
	if wake {
		// After unlocking, so that the woken getter does not run into the lock. This cannot block:
		// there is room for one wake-up, and another one is sent only when this one was received.
		q.wakeUps <- struct{}{}
	}
}
