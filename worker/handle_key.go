package worker

import (
	"time"

	"github.com/keyedqueue/workqueue"
)

// This file follows a key from top to bottom: handleKey begins its call, and calls Done last; callHandler
// calls the handler; settle lets decide say what becomes of the key, and does that. The steps that pools
// and Trackers have in common are in tracked.go.

// handleKey does all with a key that a worker has got. Done comes last, once, also after a panic or Goexit.
func (p *Pool[T]) handleKey(w *worker[T], key T) {
	c := w.Tracked
	defer c.doneOrHold(p.done)
	defer c.endCall()
	// A panic of prepare ends the pool, so startCall below returns false.
	p.tracker.catchPanic(func() { c.prepare(key) })
	switch {
	case p.startCall(w):
		p.callHandler(c)
	case c.leaseLost: // Another process may have got the key.
	case p.options.KeepQueue || p.tracker.leaser != nil: // Somebody else will handle the key.
		p.giveBack(c)
	default:
		p.noteNotStarted(key)
	}
}

// startCall begins the call of w. It returns false if the lease is lost or no key is started any more.
func (p *Pool[T]) startCall(w *worker[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.getting = false
	if w.leaseLost || !p.mayStartLocked() {
		p.signal() // leftBehind may wait for w.
		return false
	}
	delete(p.mu.undone.refused, w.result.Key) // If it was refused, it has come all the same, by an earlier add.
	p.tracker.addRunning(w.Tracked)
	return true
}

// giveBack adds a key that was not started to the queue again, with its causes. It puts the key on the list
// of Left if somebody has shut the queue down, or the add panics.
func (p *Pool[T]) giveBack(c *Tracked[T]) {
	key := c.result.Key
	var causes workqueue.Causes
	p.listIfPanics(c, &p.mu.undone.notStarted, func() {
		if p.tracker.answers != nil {
			p.tracker.answers.HandBack(key)
			return
		}
		causes = p.queue.Causes(key)
		p.addAfter(key, c.priority, 0)
	})
	if p.queue.ShuttingDown() {
		p.noteNotStarted(key)
	}
	// An add with a cause has priority 0, and the higher one counts. So a key below 0 loses its causes.
	if c.priority >= 0 {
		for _, cause := range causes.Last {
			p.queue.AddCause(key, cause)
		}
	}
}

// callHandler calls the handler, and does what its error asks for, also if it panics or ends the goroutine.
func (p *Pool[T]) callHandler(c *Tracked[T]) {
	returned := false
	defer func() {
		if !returned {
			if v := recover(); v != nil {
				c.failWithPanic(v)
			} else {
				c.result.Err = ErrGoexit
			}
		}
		p.settle(c)
		if c.fatal {
			p.fail(c.result.Err)
		}
		c.report()
	}()
	c.result.Err = p.handler(c.ctx, c.result.Key)
	returned = true
}

// settle decides what becomes of the key, and does that in the queue.
func (p *Pool[T]) settle(c *Tracked[T]) {
	r := &c.result
	p.listIfPanics(c, &p.mu.undone.notRetried, func() {
		c.decide() // For a failure this calls the queue's Fail.
		p.tracker.recordOutcome(c)
	})
	if p.tracker.mu.records.notEmpty.Load() && !p.willSweep.Load() {
		p.signal() // There was no record, so drain may have no timer for a sweep.
	}
	switch r.Next {
	case NextRequeue:
		p.addAgain(c)
		p.queue.Forget(r.Key) // After the add: the limiter may panic, and the key must not be lost.
	case NextForget:
		if p.tracker.answers != nil {
			p.tracker.answers.Succeed(r.Key)
		} else {
			p.queue.Forget(r.Key)
		}
	case NextHold:
		p.addAgain(c)
	case NextInterrupted:
		if !c.callCtx.wasInterrupted() { // ErrAdded came from elsewhere, so perhaps no add brings the key.
			p.addAgain(c)
		}
	}
}

// addAgain adds the key after the delay, and with the priority, that the handler has asked for. After a Hold
// and an interruption there is no delay.
func (p *Pool[T]) addAgain(c *Tracked[T]) {
	priority := c.priority
	if c.result.Priority != nil {
		priority = *c.result.Priority
	}
	p.listIfPanics(c, &p.mu.undone.notStarted, func() { p.addAfter(c.result.Key, priority, c.result.After) })
	if c.result.After <= 0 && p.queue.ShuttingDown() {
		p.locked(func() { p.mu.undone.refused[c.result.Key] = struct{}{} })
	}
}

func (p *Pool[T]) addAfter(key T, priority int, after time.Duration) {
	switch {
	case p.tracker.answers != nil:
		p.tracker.answers.Requeue(key, priority, after)
	case p.tracker.priorities != nil:
		p.tracker.priorities.AddWithPriority(key, priority, after)
	default:
		p.queue.AddAfter(key, after)
	}
}
