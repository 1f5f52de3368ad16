package workqueue

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/internal/gate"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/notes"
)

// Extend returns queue as an [Extended]: queue itself if it is one, or a wrapper that builds what is missing
// from queue's public methods. Use the wrapper instead of queue from then on. It knows of keys that it has
// handed out, and of adds that came through it. So AddedAgain misses keys that queue adds by itself when they
// come due, SnapshotKey finds held keys alone, and AddedAt knows nothing. Its drains are its own: they shut
// queue down, and wait until nothing is queued and every key that the wrapper has handed out is Done.
//
// A Get of such a queue cannot be interrupted, so GetContext calls it on another goroutine. That stays,
// waiting for a key, when GetContext gives up, and ends when it has one or the queue shuts down. The key is
// handed out next. A panic of Get there reaches one caller of GetContext.
//
// A queue of yours that embeds an Extended is one by the methods that it inherits: if it has a Get of its
// own, give it a GetContext too.
func Extend[T comparable](queue TypedInterface[T]) Extended[T] {
	if e, ok := queue.(Extended[T]); ok {
		return e
	}
	return &extension[T]{TypedInterface: queue, dropTurn: make(chan struct{}, 1)}
}

// extension makes an Extended of any queue, through its public methods alone.
type extension[T comparable] struct {
	Unimplemented[T]
	TypedInterface[T]
	shuttingDown atomic.Bool // A method that shuts down was called here.
	dropping     atomic.Bool // DropQueued was called after that.
	// dropTurn has room for the caller that drops keys: a Done must not drop what DropQueued is to return.
	dropTurn chan struct{}

	// mu is the lock, and what it guards. No method of the queue is called under it.
	mu struct {
		gate.Gate

		// keys has held keys, and those with causes. A held key is dirty if an add may interrupt its worker.
		keys    keytable.Table[T, sets]
		notes   notes.Notes[Causes]
		held    int
		dropped uint64
		// calls counts the calls of the queue's Get and Done that have not returned. While there is one, a key may
		// be on its way, and the queue does not count as empty.
		calls int

		waiting  int         // the callers of GetContext that wait
		fetching bool        // A goroutine, the fetcher, is in Get for them. It leaves what it gets in fetched.
		fetched  *fetched[T] // or nil
		down     bool        // Get has reported the shutdown. From then on it does not block.
	}
}

// fetched is a key, or what Get has panicked with.
type fetched[T any] struct {
	item     T
	panicked any
}

// locked calls f under the lock. Afterwards it wakes a getter, or ends the drain, if it is time.
func (e *extension[T]) locked(f func()) {
	watched := false
	func() {
		e.mu.Lock()
		defer e.unlock()
		f()
		watched = e.mu.Watched()
	}()
	if watched && e.TypedInterface.ShuttingDown() && e.isDrained() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.mu.EndDrain(nil)
	}
}

// isDrained reports whether no key is left in a queue that is shut down. It looks twice at what workers have:
// a key that is queued at the first look may be handed out before Len, but its Done does not queue it again.
func (e *extension[T]) isDrained() bool {
	return e.isIdle() && e.TypedInterface.Len() == 0 && e.isIdle()
}

func (e *extension[T]) isIdle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.held+e.mu.calls == 0 && e.mu.fetched == nil
}

func (e *extension[T]) unlock() {
	if e.mu.fetched != nil || e.mu.down && !e.mu.fetching {
		e.mu.Wake()
	}
	e.mu.Unlock()
}

// Get is that of the queue, unless there is a fetcher, which may have the only key.
func (e *extension[T]) Get() (item T, shutdown bool) {
	alone := false
	e.locked(func() {
		if alone = !e.mu.fetching && e.mu.fetched == nil; alone {
			e.mu.calls++
		}
	})
	if alone {
		if item, err := e.get(); err == nil {
			return item, false
		}
	}
	item, err := e.GetContext(context.Background())
	return item, err != nil
}

// get is the queue's Get, whose call was counted.
func (e *extension[T]) get() (item T, err error) {
	got, shutdown := false, false
	defer e.locked(func() {
		e.mu.calls--
		e.mu.down = e.mu.down || shutdown
		if got {
			e.takeLocked(item)
		}
	})
	if item, shutdown = e.TypedInterface.Get(); shutdown {
		return item, ErrShutDown
	}
	got = true
	return item, nil
}

func (e *extension[T]) takeLocked(item T) {
	s, k, _ := e.mu.keys.FindOrInsert(keytable.HashOf(item), item)
	in := processing
	if k.Value&noted != 0 && e.mu.notes.Taken(s) {
		in |= noted
	}
	k.Value = in
	e.mu.held++
}

// errAskQueue says that the queue's Get does not block, and was counted.
var errAskQueue = errors.New("workqueue: the queue is shut down")

func (e *extension[T]) GetContext(ctx context.Context) (item T, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	f, err := e.await(ctx.Done())
	switch {
	case err == errAskQueue:
		return e.get()
	case err != nil:
		return item, gate.PublicError(ctx, err)
	case f.panicked != nil:
		panic(f.panicked)
	}
	return f.item, nil
}

// Next knows nothing of the key but whether it has causes.
func (e *extension[T]) Next(ctx context.Context) (h HandOut[T], err error) {
	if h.Key, err = e.GetContext(ctx); err == nil {
		h.HasCauses = !e.Causes(h.Key).IsZero()
	}
	return h, err
}

// await waits for the fetcher, and takes what it has fetched.
func (e *extension[T]) await(done <-chan struct{}) (*fetched[T], error) {
	e.mu.Lock()
	defer e.unlock()
	for {
		if f := e.mu.fetched; f != nil {
			e.mu.fetched = nil
			if f.panicked == nil {
				e.takeLocked(f.item)
			}
			e.fetchLocked() // for those that still wait
			return f, nil
		}
		if e.mu.down && !e.mu.fetching {
			e.mu.calls++
			return nil, errAskQueue
		}
		e.mu.waiting++
		e.fetchLocked()
		ok := e.mu.Sleep(done)
		e.mu.waiting--
		if !ok {
			return nil, gate.ErrContextDone
		}
	}
}

// fetchLocked starts the fetcher if somebody waits for it.
func (e *extension[T]) fetchLocked() {
	if e.mu.waiting > 0 && !e.mu.fetching && !e.mu.down {
		e.mu.fetching = true
		e.mu.calls++
		go e.fetch()
	}
}

// fetch gets one key. On its goroutine a panic would end the process.
func (e *extension[T]) fetch() {
	f, shutdown := new(fetched[T]), false
	func() {
		defer func() { f.panicked = recover() }()
		f.item, shutdown = e.TypedInterface.Get()
	}()
	e.locked(func() {
		e.mu.fetching = false
		e.mu.calls--
		if e.mu.down = e.mu.down || shutdown; !shutdown {
			e.mu.fetched = f
		}
	})
}

// Done of a key that was not handed out here is the queue's own.
func (e *extension[T]) Done(item T) {
	if e.finish(item) {
		e.doneBelow(item, 0)
	} else {
		e.TypedInterface.Done(item)
	}
	if e.dropping.Load() {
		e.dropAll() // The key may be queued again.
	}
}

// doneBelow is the queue's Done, whose call was counted.
func (e *extension[T]) doneBelow(item T, dropped uint64) {
	defer e.locked(func() {
		e.mu.calls--
		e.mu.dropped += dropped
	})
	e.TypedInterface.Done(item)
}

// finish notes that a key is Done, and counts the call that says so to the queue: then another worker may get
// the key. It reports whether the key was handed out here.
func (e *extension[T]) finish(item T) bool {
	h := keytable.HashOf(item)
	e.mu.Lock()
	defer e.unlock()
	s, k := e.mu.keys.Find(h, item)
	if k == nil || k.Value&processing == 0 {
		return false
	}
	if k.Value&noted != 0 && e.mu.notes.Done(s) {
		k.Value = noted
	} else {
		e.mu.keys.Delete(s)
	}
	e.mu.held--
	e.mu.calls++
	return true
}

// Len counts the key that the fetcher has got.
func (e *extension[T]) Len() int {
	n := e.TypedInterface.Len()
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.mu.fetched; f != nil && f.panicked == nil {
		n++
	}
	return n
}

func (e *extension[T]) ShutDown() {
	e.shuttingDown.Store(true)
	e.TypedInterface.ShutDown()
	if !e.isDrained() { // Otherwise each drain ends by itself, also one that has just begun.
		e.locked(func() { e.mu.EndDrain(ErrShutDown) })
	}
}

func (e *extension[T]) ShutDownWithDrain() { _ = e.ShutDownContext(context.Background()) }

func (e *extension[T]) ShutDownContext(ctx context.Context) error {
	e.shuttingDown.Store(true)
	e.TypedInterface.ShutDown()
	var drain *gate.Drain
	e.locked(func() { drain = e.mu.Drain() })
	return drain.Wait(ctx)
}

func (e *extension[T]) ShuttingDown() bool {
	return e.shuttingDown.Load() || e.TypedInterface.ShuttingDown()
}

// dropPatience is how long DropQueued waits for a key that the queue holds back, as a queue with limits may.
const dropPatience = 100 * time.Millisecond

// DropQueued gets the keys and calls Done for each. What the queue holds back follows at a later Done.
func (e *extension[T]) DropQueued() []T {
	if !e.ShuttingDown() {
		return nil
	}
	return e.dropAll()
}

func (e *extension[T]) dropAll() (keys []T) {
	e.dropTurn <- struct{}{}
	defer func() { <-e.dropTurn }()
	e.dropping.Store(true)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), dropPatience)
		key, err := e.GetContext(ctx)
		cancel()
		if err != nil {
			return keys
		}
		keys = append(keys, key)
		e.finish(key)
		e.doneBelow(key, 1)
	}
}

func (e *extension[T]) Add(item T) { e.AddCause(item, Cause{}) }

// AddCause notes the add before the queue knows of it: later the key may have been handed out again.
func (e *extension[T]) AddCause(item T, cause Cause) {
	if cause.Time.IsZero() {
		cause.Time = time.Now()
	}
	if !e.ShuttingDown() {
		e.noteAdd(item, cause)
	}
	e.TypedInterface.Add(item)
}

func (e *extension[T]) noteAdd(item T, cause Cause) {
	h := keytable.HashOf(item)
	e.mu.Lock()
	defer e.mu.Unlock()
	s, k := e.mu.keys.Find(h, item)
	if cause.Reason != "" || cause.TraceParent != "" {
		s, k, _ = e.mu.keys.FindOrInsert(h, item)
		e.mu.notes.AddCause(s, func(c Causes) Causes { return c.Plus(cause) })
		k.Value |= noted
	}
	if k == nil || k.Value&processing == 0 || cause.Quiet {
		return
	}
	k.Value |= dirty
	if k.Value&noted != 0 {
		e.mu.notes.Added(s)
	}
}

func (e *extension[T]) Causes(item T) Causes {
	if k, _ := e.SnapshotKey(item); k.Causes != nil {
		return *k.Causes
	}
	return Causes{}
}

func (e *extension[T]) AddedAgain(item T) <-chan struct{} {
	h := keytable.HashOf(item)
	e.mu.Lock()
	defer e.mu.Unlock()
	s, k := e.mu.keys.Find(h, item)
	switch {
	case k == nil || k.Value&processing == 0:
		return nil
	case k.Value&dirty != 0:
		return notes.Closed
	}
	k.Value |= noted
	return e.mu.notes.Await(s)
}

func (e *extension[T]) AddedAt(T) (at time.Time) { return at }

func (e *extension[T]) Stats() Stats {
	st := Stats{Queued: e.Len(), ShuttingDown: e.ShuttingDown()}
	e.mu.Lock()
	defer e.mu.Unlock()
	st.Processing, st.Dropped = e.mu.held, e.mu.dropped
	return st
}

func (e *extension[T]) Snapshot(limit int) Snapshot[T] {
	held := keytable.Take(min(max(limit, 0), maxSnapshot), e.SnapshotKeys())
	return Snapshot[T]{Stats: e.Stats(), Processing: slices.Collect(held)}
}

// SnapshotKey returns the causes also of a key that is not held.
func (e *extension[T]) SnapshotKey(key T) (k KeySnapshot[T], found bool) {
	h := keytable.HashOf(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if s, entry := e.mu.keys.Find(h, key); entry != nil {
		k = e.snapshotLocked(s)
		return k, k.State != ""
	}
	return KeySnapshot[T]{Key: key}, false
}

func (e *extension[T]) snapshotLocked(s keytable.Slot) KeySnapshot[T] {
	entry := e.mu.keys.At(s)
	k := KeySnapshot[T]{Key: entry.Key}
	current, next := e.mu.notes.Causes(s)
	if k.Causes = next; entry.Value&processing != 0 {
		k.State, k.Again, k.Causes = KeyProcessing, entry.Value&dirty != 0, current
	}
	return k
}

func (e *extension[T]) SnapshotKeys() iter.Seq[KeySnapshot[T]] {
	add := func(keys []KeySnapshot[T], s keytable.Slot) []KeySnapshot[T] {
		if k := e.snapshotLocked(s); k.State != "" {
			keys = append(keys, k)
		}
		return keys
	}
	return keytable.InSteps(&e.mu.keys, e.mu.Lock, e.mu.Unlock, add)
}
