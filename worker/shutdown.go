package worker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// phase is how far the life of a pool has come. It only moves forward. Run takes three steps in it:
//
//	drain        until phaseEnding, or DrainTimeout
//	endHandlers  cancels poolCtx, and waits for CancelGrace
//	endQueue     EndHolds, ShutDown, DropQueued, leftUndone; then phaseReturned
type phase uint8

const (
	// phaseWorking: workers get keys and handle them, once Run has been called.
	phaseWorking phase = iota
	// phaseEmptying, after Stop(All): the same, but the queue is shut down.
	phaseEmptying
	// phaseFinishing, after Stop(Running), a fatal error, or the queue's last key: no key is started any more.
	phaseFinishing
	// phaseEnding, after Stop(Nothing), DrainTimeout, or the last worker: the handlers' contexts end.
	phaseEnding
	// phaseReturned: Run has returned, or is about to. Handlers may have been left behind.
	phaseReturned
)

// Stop makes Run end, as the end of its context does, but with the given Drain. It does not wait. It may be
// called before Run, and again: a stricter Drain wins, and DrainTimeout does not begin anew. With KeepQueue,
// All means Running. Stop(All) lets Options.Ready return first.
func (p *Pool[T]) Stop(drain Drain) {
	switch {
	case drain == Nothing:
		p.moveOn(phaseEnding)
	case drain == Running || p.options.KeepQueue:
		p.moveOn(phaseFinishing)
	default:
		p.moveOn(phaseEmptying)
	}
}

// moveOn moves the pool on to a phase, unless it has come further. It ends startCtx once no key is to be
// started: without mu, because that may call methods of Run's context.
func (p *Pool[T]) moveOn(to phase) {
	p.mu.Lock()
	p.moveOnLocked(to)
	reached, cancelStart := p.mu.phase, p.mu.cancelStart
	p.mu.Unlock()
	if reached >= phaseFinishing && cancelStart != nil {
		cancelStart()
	}
}

func (p *Pool[T]) moveOnLocked(to phase) {
	if to > p.mu.phase {
		p.mu.phase = to
		if p.mu.pause.on {
			p.resumeLocked()
		}
		p.signal()
	}
}

// signal wakes Run, which looks again at the phase and the workers.
func (p *Pool[T]) signal() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// fail ends the pool because of err. If it is called more than once, Run returns the first error.
func (p *Pool[T]) fail(err error) {
	first := false
	p.locked(func() {
		if first = p.mu.fatal == nil; first {
			p.mu.fatal = err
		}
	})
	p.Stop(Running)
	if first {
		p.tracker.logger.Error("The workers end because of a fatal error", "err", err)
	}
}

// drain waits until the pool is to end, calls endResync, and waits until the workers have left or the time to
// finish is over. It returns the cause with which the contexts of handlers that still run must end.
func (p *Pool[T]) drain(ctx context.Context, endResync func()) (cause error) {
	defer endResync()
	var timeout <-chan time.Time
	ended := ctx.Done() // nil once that has been noticed
	for {
		var reached phase
		p.locked(func() {
			isEmptying := p.mu.phase == phaseEmptying && p.wantedLocked() > 0 // A hold's Done may start workers.
			if p.mu.phase > phaseWorking && !isEmptying && len(p.mu.workers) == 0 {
				p.moveOnLocked(phaseEnding)
			}
			reached = p.mu.phase
		})
		if reached >= phaseEnding {
			if p.options.Drain == Nothing && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return ErrStopped
		}
		if reached > phaseWorking && timeout == nil {
			timer := p.options.Clock.NewTimer(p.options.DrainTimeout)
			defer timer.Stop()
			timeout = timer.C()
			endResync()
		}
		if reached == phaseEmptying && !p.queue.ShuttingDown() {
			p.queue.ShutDown()
		}
		if reached == phaseEmptying {
			go p.tracker.closeHolds() // A key on hold may block others of its group.
		}
		select {
		case <-p.changed:
		case <-ended:
			p.Stop(p.options.Drain)
			ended = nil
		case <-timeout:
			return ErrDrainTimeout
		}
	}
}

// endHandlers ends the handlers' contexts, and waits until all workers have left or CancelGrace is over.
func (p *Pool[T]) endHandlers(cause error) {
	p.moveOn(phaseEnding)
	p.cancelPool(cause)
	if p.options.CancelGrace == NoGrace {
		return
	}
	grace, end := withTimeout(context.Background(), p.options.Clock, p.options.CancelGrace)
	defer end()
	p.waitWhileAny(grace, func(*worker[T]) bool { return true })
}

// waitWhileAny waits while condition, which runs under mu, is true of a worker, until ctx ends.
func (p *Pool[T]) waitWhileAny(ctx context.Context, condition func(w *worker[T]) bool) {
	anyWorker := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.ContainsFunc(p.mu.workers, condition)
	}
	for anyWorker() {
		select {
		case <-p.changed:
		case <-ctx.Done():
			return
		}
	}
}

// endPatience, or CancelGrace if that is longer, is for how long Run waits at its end for Dones, a server and
// Options.List: on the real clock, because a fake one may not move any more.
const endPatience = time.Second

// endQueue ends the holds and, without KeepQueue, the queue, whose keys it drops. It reports what is left.
func (p *Pool[T]) endQueue(resyncEnded <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), max(p.options.CancelGrace, endPatience))
	defer cancel()
	// Workers that get a key do not wait in the queue, because the context of their Get has ended.
	p.waitWhileAny(context.Background(), func(w *worker[T]) bool { return w.getting })
	p.waitWhileAny(ctx, func(w *worker[T]) bool { return !w.call.running }) // They are about to leave.
	waitFor(ctx, p.tracker.EndHolds)
	var unfinished, queued []T
	p.locked(func() { unfinished = converted(p.mu.workers, func(w *worker[T]) T { return w.call.result.Key }) })
	held := slices.Collect(keytable.Map(p.tracker.eachHold(), func(h *hold[T]) T { return h.key }))
	sortByText(held)
	unfinished = append(unfinished, held...)
	if !p.options.KeepQueue {
		p.queue.ShutDown()
		// While others have keys of the queue, such as another pool, what is queued is theirs to handle: a key
		// that was added while they have it would be dropped, and nobody would say so.
		if p.queue.Stats().Processing <= len(unfinished) {
			queued = p.queue.DropQueued()
		}
	}
	unfinished = append(unfinished, p.settleAnswers(ctx)...)
	waitFor(ctx, func() { <-resyncEnded }) // Last, because a List may ignore its context.
	left := p.leftUndone(unfinished, queued)
	p.locked(func() { p.mu.left, p.mu.phase = left, phaseReturned })
	if !left.Empty() {
		// Counts and String, because there may be very many keys.
		p.tracker.logger.Warn("Keys are left undone",
			"unfinished", len(left.Unfinished), "notStarted", len(left.NotStarted),
			"failing", len(left.Failing), "left", left.String())
	}
}

// waitFor calls f, and waits until it has returned or ctx ends.
func waitFor(ctx context.Context, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// settleAnswers waits until the queue's server knows what the calls have said. It returns the keys whose end
// the server may not know.
func (p *Pool[T]) settleAnswers(ctx context.Context) (unsettled []T) {
	if p.tracker.answerer == nil {
		return nil
	}
	unsettled, err := p.tracker.answerer.Settle(ctx)
	if err != nil {
		p.tracker.logger.Warn("The queue's server may not know how the last calls have ended",
			"err", err, "keys", len(unsettled))
	}
	return unsettled
}

// Left is what a pool left undone, each key once. It has no keys that stay in the queue, that were given up,
// or whose requeue had a delay.
type Left[T comparable] struct {
	// Unfinished are the keys whose handlers were running, or whose Done had not returned or not reached the
	// queue's server.
	Unfinished []T `json:"unfinished"`
	// NotStarted are the keys that were queued, or were to come at once.
	NotStarted []T `json:"not_started"`
	// Failing are the keys that were to be retried, sorted by text. Over a server it is empty: other processes
	// retry them.
	Failing []T `json:"failing"`
}

// Empty reports whether nothing was left.
func (l Left[T]) Empty() bool { return len(l.Unfinished)+len(l.NotStarted)+len(l.Failing) == 0 }

// String returns how many keys there are of each kind, and the first few of them.
func (l Left[T]) String() string {
	var parts []string
	add := func(what string, keys []T) {
		if len(keys) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s: %s", len(keys), what, few(keys)))
		}
	}
	add("still running", l.Unfinished)
	add("queued and not started", l.NotStarted)
	add("failed and not retried", l.Failing)
	return cmp.Or(strings.Join(parts, "; "), "nothing")
}

// few lists at most ten keys.
func few[T any](keys []T) string {
	const most = 10
	texts := converted(keys[:min(len(keys), most)], func(key T) string { return fmt.Sprint(key) })
	if len(keys) > most {
		texts = append(texts, "…")
	}
	return strings.Join(texts, ", ")
}

func converted[From, To any](all []From, convert func(From) To) []To {
	to := make([]To, 0, len(all))
	for _, from := range all {
		to = append(to, convert(from))
	}
	return to
}

// Left returns what was left undone when Run returned, and nothing before that.
func (p *Pool[T]) Left() Left[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.left
}

// leftUndone puts together what is left, each key once. Lists without an order are sorted by text.
func (p *Pool[T]) leftUndone(unfinished, queued []T) Left[T] {
	var failed, notStarted []T
	if p.queue.ShuttingDown() && p.tracker.answerer == nil { // A server keeps them for other processes.
		for _, k := range p.queue.FailingKeys(math.MaxInt) {
			if k.State == "" { // Others, or this pool's next call, have any other.
				failed = append(failed, k.Key)
			}
		}
	}
	p.locked(func() { notStarted = slices.Collect(maps.Keys(p.mu.notStarted)) })
	sortByText(failed) // Not under mu: a key's String method is foreign code.
	sortByText(notStarted)
	seen := make(map[T]struct{}) // A key is in the first list that has it, in the order of the calls below.
	once := func(keys []T) []T {
		return slices.DeleteFunc(keys, func(key T) bool {
			_, known := seen[key]
			seen[key] = struct{}{}
			return known
		})
	}
	return Left[T]{Unfinished: once(unfinished), NotStarted: once(slices.Concat(notStarted, queued)),
		Failing: once(failed)}
}

func sortByText[T comparable](keys []T) {
	texts := make(map[T]string, len(keys))
	for _, key := range keys {
		texts[key] = fmt.Sprint(key)
	}
	slices.SortFunc(keys, func(a, b T) int { return cmp.Compare(texts[a], texts[b]) })
}
