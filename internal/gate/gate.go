// Package gate is the lock of a queue, and everything that waits for the queue: getters that sleep until
// there is a key, and drains that wait until no key is left.
package gate

import (
	"context"
	"errors"
	"sync"
)

// Gate is a lock with waiters. The zero Gate is unlocked and ready to use.
//
// It has no Unlock on purpose. A queue has one method, unlock, that ends each of its critical sections: it
// calls Wake if a getter would find something, EndDrain if nothing is left, and UnlockAndSend. So no section
// can forget those that wait for what it has changed, and an unlock after no change costs a comparison.
// TestOnlyUnlockSends fails for a queue that calls UnlockAndSend anywhere else.
//
// A burst of adds wakes one getter, which wakes the next one when it unlocks if there is still something to
// do. So one producer does not wake 64 workers for 64 keys that three of them could handle, and a getter that
// gives up takes no wake-up with it.
type Gate struct {
	mu       sync.Mutex    // guards what follows
	wakeUps  chan struct{} // nil until a getter sleeps
	sleeping int
	// pending: a wake-up is sent, or about to be sent, and no getter that has locked the gate has noted it yet.
	pending bool
	wake    bool   // UnlockAndSend must send one.
	drain   *Drain // nil if nothing waits for the end
}

func (g *Gate) Lock() { g.mu.Lock() }

// UnlockAndSend unlocks the gate and sends the wake-up that Wake has asked for.
func (g *Gate) UnlockAndSend() {
	if g.wake {
		g.unlockAndWake()
		return
	}
	g.mu.Unlock()
}

// unlockAndWake sends after unlocking, so that the woken getter does not run into the lock. There is room for
// the one that is pending.
func (g *Gate) unlockAndWake() {
	g.wake = false
	wakeUps := g.wakeUps
	g.mu.Unlock()
	wakeUps <- struct{}{}
}

// Watched reports whether anything sleeps or drains. It and the methods below need the lock.
func (g *Gate) Watched() bool { return g.sleeping > 0 || g.drain != nil }

// Wake wakes a sleeping getter at the unlock, unless none sleeps or one is being woken already.
func (g *Gate) Wake() {
	if g.sleeping > 0 && !g.pending {
		g.wake, g.pending = true, true
	}
}

// Sleep unlocks the gate, waits for a wake-up or for done, and locks it again. It returns false if done is
// closed; a nil done never is.
func (g *Gate) Sleep(done <-chan struct{}) bool {
	if g.wakeUps == nil {
		g.wakeUps = make(chan struct{}, 1)
	}
	wakeUps, woken := g.wakeUps, false
	g.sleeping++
	g.UnlockAndSend()
	defer func() {
		g.mu.Lock()
		g.sleeping--
		if woken {
			g.pending = false
		}
	}()
	select {
	case <-wakeUps:
		woken = true
	case <-done:
	}
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// Drain is one wait for the queue to become empty, shared by all callers that wait at the same time.
type Drain struct {
	ended chan struct{}
	// err is set before ended is closed.
	err error
}

// Drain returns the drain that EndDrain will end.
func (g *Gate) Drain() *Drain {
	if g.drain == nil {
		g.drain = &Drain{ended: make(chan struct{})}
	}
	return g.drain
}

// Draining reports whether anything waits for a drain.
func (g *Gate) Draining() bool { return g.drain != nil }

// EndDrain makes all that wait for the drain return err. It does nothing if none waits.
func (g *Gate) EndDrain(err error) {
	if g.drain != nil {
		g.drain.err = err
		close(g.drain.ended)
		g.drain = nil
	}
}

// Wait waits until d has ended, and returns its error, or ctx.Err() if ctx is done first, without the lock.
func (d *Drain) Wait(ctx context.Context) error {
	select {
	case <-d.ended:
		return d.err
	case <-ctx.Done():
	}
	select {
	case <-d.ended: // Both have happened, and what the drain ended with says more.
		return d.err
	default:
		return ctx.Err()
	}
}

// ErrContextDone stands for ctx.Err() while the gate is locked, because a context is foreign code.
var ErrContextDone = errors.New("workqueue: the context is done")

// PublicError returns err, or ctx.Err() if it is ErrContextDone. The gate must not be locked.
func PublicError(ctx context.Context, err error) error {
	if err == ErrContextDone {
		return ctx.Err()
	}
	return err
}
