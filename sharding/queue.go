package sharding

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	foreignqueue "github.com/keyedqueue/workqueue/foreign"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
)

// Queue is a queue of those keys whose slots a [Member] holds.
//
//   - It takes and hands out keys of the slots that the member holds and is not about to hand over. Other
//     keys are dropped, when they are added, or when their turn comes. Whoever holds their slot next, on this
//     replica or another, adds them again from QueueConfig.Keys.
//   - Done of the last handler of a slot that is to move lets it go.
//
// All else is as in the queue that it was made of.
type Queue[T comparable] interface {
	workqueue.ExtendedRateLimiting[T]
	// Lease returns a context for the handler of a key that Get has returned. It is derived from ctx, carries
	// the [Fence], and ends, with a cause, when somebody else may get the key: with leasing.ErrLost
	// when its validity ends, with ErrHandover when the slot is to move and HandoverTimeout has passed, with
	// ErrLeft when Leave could not wait. If the slot has moved since Get, the context has ended already.
	// Package worker calls it; a program without that package must call it, and the returned function when
	// the handler has returned. For a key that no handler has, Lease returns ctx itself. It does not block.
	leasing.Leaser[T]
	// Holds reports whether the member hands out the key now: it holds the slot, and has not stopped handing
	// out its keys to move it.
	Holds(key T) bool
	// Unlisted returns how many slots the member has got, or kept, whose keys QueueConfig.Keys has not listed
	// yet, and for how long the first of them has been waiting: a listing hangs or fails if that is more than
	// a listing takes.
	Unlisted() (slots int, age time.Duration)
}

// NewQueue returns a queue that hands out those keys of inner whose slots the member holds. From now on inner
// must not be used by itself. The result is an [operate.Operable] if inner is one. Its facts on the debug
// page are who holds which slots.
//
// Several queues may share a member, which takes slots when it has all of [Config].Queues: a slot comes with
// its keys in all queues. NewQueue returns an error if inner or member is nil, if config has no Keys, if T
// needs a Hash and config has none, if Hash has no HashVersion, or if the queue's name is taken or not in
// Config.Queues, which may be empty for one queue. It returns [ErrLeft] after Leave was called, and
// [ErrRestored] if that has ended the member.
func NewQueue[T comparable](
	inner workqueue.TypedRateLimitingInterface[T], member *Member, config QueueConfig[T],
) (Queue[T], error) {
	q, err := newQueue(inner, member, config)
	if err != nil {
		return nil, err
	}
	if q.operable != nil {
		return &operableQueue[T]{q, checked[T]{q.operable, q}}, nil
	}
	return q, nil
}

type queue[T comparable] struct {
	leasing.UnimplementedLeaser[T]
	// ExtendedRateLimiting is inner, or what package foreign makes of it.
	workqueue.ExtendedRateLimiting[T]
	operable operate.Operable[T] // inner, or nil
	inner    workqueue.TypedRateLimitingInterface[T]
	member   *Member
	listKeys func(context.Context) (iter.Seq[T], error) // QueueConfig.Keys
	name     string

	hasher  hasher[T]
	running []running[T] // by their slots

	add          func(key T, priority int) // without priorities as Add
	listPriority int

	leased atomic.Bool // Lease was called, or its lack was logged.

	mu struct {
		sync.Mutex
		unlisted map[int]*unlistedSlot // until their keys are listed
		// listing: listLoop runs. listError is why the last listing failed.
		listing   bool
		listError error
	}
}

func newQueue[T comparable](
	inner workqueue.TypedRateLimitingInterface[T], member *Member, config QueueConfig[T],
) (*queue[T], error) {
	switch {
	case inner == nil:
		return nil, errors.New("sharding: the queue below is nil")
	case member == nil:
		return nil, errors.New("sharding: the member is nil: make the queue after Join has returned one")
	case config.Keys == nil:
		return nil, errors.New("sharding: QueueConfig.Keys is required")
	}
	h, err := newHasher(config)
	if err != nil {
		return nil, err
	}
	q := &queue[T]{
		ExtendedRateLimiting: foreignqueue.RateLimiting(inner), inner: inner, member: member,
		listKeys: config.Keys, listPriority: config.ListPriority,
		hasher: h, running: make([]running[T], len(member.slots))}
	q.name = cmp.Or(config.Name, q.Stats().Name)
	q.add = func(key T, _ int) { q.ExtendedRateLimiting.Add(key) }
	if o, ok := inner.(operate.Operable[T]); ok {
		q.operable = o
		q.add = func(key T, priority int) { o.AddWithPriority(key, priority, 0) }
	}
	q.mu.unlisted = make(map[int]*unlistedSlot)
	if err := member.register(q); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *queue[T]) nameAndHash() (name, hash string) { return q.name, q.hasher.name }

func (q *queue[T]) slotOf(key T) int { return slotOf(q.hasher.hash(key), len(q.running)) }

func (q *queue[T]) Holds(key T) bool { return q.member.state(q.slotOf(key)) == serving }

// Add does nothing for a key whose slot is not serving: whoever holds it next lists the key. That may be this
// member, because the slot comes back, or stays although it was to move.
func (q *queue[T]) Add(key T) {
	if q.Holds(key) {
		q.ExtendedRateLimiting.Add(key)
	}
}

func (q *queue[T]) AddCause(key T, cause workqueue.Cause) {
	if q.Holds(key) {
		q.ExtendedRateLimiting.AddCause(key, cause)
	}
}

// AddAfter checks the slot now, and again when the key's time has come.
func (q *queue[T]) AddAfter(key T, after time.Duration) {
	if q.Holds(key) {
		q.ExtendedRateLimiting.AddAfter(key, after)
	}
}

// AddRateLimited and Fail are those of the queue below. They are for handlers that have failed, whose slots
// are checked when the keys' time has come: then take forgets the failures of a key that it drops.

func (q *queue[T]) Get() (key T, shutdown bool) {
	for {
		key, shutdown = q.ExtendedRateLimiting.Get()
		if shutdown || q.take(key) {
			return key, shutdown
		}
	}
}

func (q *queue[T]) GetContext(ctx context.Context) (key T, err error) {
	for {
		key, err = q.ExtendedRateLimiting.GetContext(ctx)
		if err != nil || q.take(key) {
			return key, err
		}
	}
}

func (q *queue[T]) Next(ctx context.Context) (workqueue.HandOut[T], error) {
	for {
		h, err := q.ExtendedRateLimiting.Next(ctx)
		if err != nil || q.take(h.Key) {
			return h, err
		}
	}
}

// take reports whether a key that came out of the queue below may be handed out. If not, it has called Done.
func (q *queue[T]) take(key T) bool {
	slot := q.slotOf(key)
	q.running[slot].put(key)
	if q.member.state(slot) == serving { // after the put
		return true
	}
	q.running[slot].remove(key)
	signal(q.member.toWork)
	// Whoever holds the slot next lists its keys. If that is this member, and the listing has added the key by
	// now, Done queues it.
	q.Forget(key)
	q.ExtendedRateLimiting.Done(key)
	return false
}

// Done says that the caller has finished with a key from Get.
func (q *queue[T]) Done(key T) {
	q.ExtendedRateLimiting.Done(key)
	slot := q.slotOf(key)
	q.running[slot].remove(key)
	if q.member.state(slot) != serving { // after the removal
		signal(q.member.toWork)
	}
	if !q.leased.Load() && q.leased.CompareAndSwap(false, true) {
		q.member.logger.log(slog.LevelError, "A key was handled without Queue.Lease: "+
			"its handler still runs when the key moves, beside another one", "queue", q.name)
	}
}

// operableQueue is a queue over an Operable one.
type operableQueue[T comparable] struct {
	*queue[T]
	checked[T]
}

// checked is an Operable that adds only keys whose slots the member holds.
type checked[T comparable] struct {
	operate.Operable[T]
	q *queue[T]
}

// AddWithPriority checks the slot as AddAfter does.
func (c checked[T]) AddWithPriority(key T, priority int, after time.Duration) {
	if c.q.Holds(key) {
		c.Operable.AddWithPriority(key, priority, after)
	}
}
