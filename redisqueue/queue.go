package redisqueue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

// Queue is one replica's end of a queue on a server; [New] makes one. Its methods are safe for concurrent use. Those of
// workqueue's interfaces keep their contract, but for the differences that the package comment lists.
//
// Methods with a key panic, without a lock, for one that cannot be hashed or is not equal to itself, for one that the codec
// cannot encode, and for the reserved one. What is added while the server does not answer is kept in memory without a bound:
// see [Info].
type Queue[T comparable] struct {
	config      Config[T]
	client      redis.UniversalClient
	script      script // batchScript; tests have another clock
	settings    string // see Config.settings
	description string // see Config.description
	// shards do not change. What is in them is guarded by mu.
	shards []*shard[T]
	ended  chan struct{} // closed when mu.ending.over is set

	// No foreign code runs under mu: no codec, no context's method, no hook.
	mu struct {
		sync.Mutex
		// held has the keys that this process's workers have, those included whose lease is lost, until Done.
		held    map[T]*hold[T]
		getters []getter[T] // the calls of Get that wait, the longest first
		// requested is the sum of the shards' requested: how many keys the calls in flight may bring. It is never more
		// than there are getters, but for those that were cancelled meanwhile.
		requested int
		ending    ending
		totals    totals
		lost      losses // what unlock announces
	}
}

var (
	_ workqueue.TypedRateLimitingInterface[string] = (*Queue[string])(nil)
	_ workqueue.Extended[string]                   = (*Queue[string])(nil)
	_ workqueue.KeyReader[string]                  = (*Queue[string])(nil)
	_ workqueue.KeyRemover[string]                 = (*Queue[string])(nil)
	_ workqueue.CauseAdder[string]                 = (*Queue[string])(nil)
	_ workqueue.AddNotifier[string]                = (*Queue[string])(nil)
	_ workqueue.GivenUpKeeper[string]              = (*Queue[string])(nil)
)

// New returns a replica's end of the queue with that name, after it has made sure that the server answers, is new enough,
// does not evict keys and runs the queue's scripts, and that the replicas before it had the same number of shards and type of
// keys. ctx bounds that alone. New returns an error for a config that makes no sense or a type of key that needs a Codec,
// [ErrEviction], [ErrIncompatible], and what the client returns if the server does not answer or refuses. A queue that has
// nothing to do has no goroutine and no timer; it need not be shut down. The client stays the caller's, and must stay open
// until shutdown has ended.
//
// The client's ReadTimeout should be well below the lease, as it is by default: only after that is a server that hangs
// asked again.
func New[T comparable](ctx context.Context, client redis.UniversalClient, config Config[T]) (*Queue[T], error) {
	if err := config.complete(readTimeout(client)); err != nil {
		return nil, err
	}
	if err := onEachNode(ctx, client, checkNode); err != nil {
		return nil, err
	}
	q := newQueue(client, config, batchScript)
	if err := q.checkScripts(ctx); err != nil {
		return nil, err
	}
	q.observe()
	return q, nil
}

// newQueue is New with a complete config and without a look at the server.
func newQueue[T comparable](client redis.UniversalClient, config Config[T], script script) *Queue[T] {
	q := &Queue[T]{
		config:      config,
		client:      client,
		script:      script,
		settings:    config.settings(),
		description: config.description(),
		ended:       make(chan struct{}),
	}
	q.mu.held = make(map[T]*hold[T])
	q.mu.totals.stats.Name = config.Name
	for i := range config.Shards {
		q.shards = append(q.shards, newShard(q, newKeyNames(config.Name, i)))
	}
	return q
}

// locate encodes item and returns its shard. It panics for what is no key.
func (q *Queue[T]) locate(item T) (string, *shard[T]) {
	if item != item {
		panic(fmt.Sprintf("redisqueue: a key of type %T is not equal to itself", item))
	}
	encoded, err := q.config.Codec.Encode(item)
	if err != nil {
		panic(fmt.Errorf("redisqueue: encode a key of type %T: %w", item, err))
	}
	if encoded == filler {
		panic("redisqueue: a key of 80 zero bytes is reserved")
	}
	if len(q.shards) == 1 {
		return encoded, q.shards[0]
	}
	// FNV-1a. All replicas, of all versions, must agree on it.
	h := uint32(2166136261)
	for i := range len(encoded) {
		h = (h ^ uint32(encoded[i])) * 16777619
	}
	return encoded, q.shards[h%uint32(len(q.shards))]
}

// enqueue calls put with item's shard and its string, under the lock, unless this replica has ended.
func (q *Queue[T]) enqueue(item T, put func(s *shard[T], encoded string) (seq uint64)) {
	encoded, s := q.locate(item)
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.ending.over {
		put(s, encoded)
	}
}

// Add queues item, from any replica. It does not block: the key goes to a buffer, in which further adds of it are
// merged, and from there to the server as soon as the last call to it has returned. The buffer survives an outage of the
// server, but not of this process: see AddContext and Flush. Once this replica has shut down and its workers hold no
// key, Add does nothing; until then, other replicas can process what handlers add that still run.
func (q *Queue[T]) Add(item T) { q.enqueue(item, (*shard[T]).addLocked) }

// AddContext is Add that returns nil when the server has item, and WaitReplicas replicas of it have: after one round trip, which
// it shares with concurrent callers, or two if a call is under way, and another one for the replicas. If ctx has ended it
// adds nothing. If ctx ends while it waits, it returns an error that is ctx.Err() and, if the server fails, the reason; the
// add is then on its way all the same. It returns [ErrNotReplicated] if too few replicas have confirmed, and ErrShutDown if
// Add would do nothing, or if the add was dropped during shutdown.
func (q *Queue[T]) AddContext(ctx context.Context, item T) error {
	return q.confirm(ctx, item, (*shard[T]).addLocked)
}

// Flush returns nil when the server, and WaitReplicas replicas of it, have all that this replica was asked for before:
// adds, Done and the rest. Its errors are those of AddContext, joined if several shards fail. After shutdown it returns nil
// if the server has everything, and ErrShutDown if something was given up or replicas would have to confirm.
func (q *Queue[T]) Flush(ctx context.Context) error {
	return q.confirmAll(ctx, func(s *shard[T]) *confirmation { return s.confirmLocked(s.numbered) })
}

// AddAfter adds item when duration has passed on the queue's clock, or at once if duration is not positive. It
// does not block. The earliest time counts, of all replicas'. Delays are rounded up to microseconds. The key waits on the
// server, and any replica may get it. After shutdown AddAfter does nothing, as Add.
func (q *Queue[T]) AddAfter(item T, duration time.Duration) {
	q.enqueue(item, after[T](duration))
}

// AddAfterContext is AddAfter with the confirmation of [Queue.AddContext].
func (q *Queue[T]) AddAfterContext(ctx context.Context, item T, duration time.Duration) error {
	return q.confirm(ctx, item, after[T](duration))
}

// AddRateLimited counts a failure of item and adds it after the delay that follows from Backoff, Limit and Burst, or from
// RateLimiter. It does not block. After shutdown it does nothing, as Add.
func (q *Queue[T]) AddRateLimited(item T) { q.enqueue(item, q.failure(item)) }

// failure counts a failure of item with RateLimiter, if there is one. It returns the add that follows.
func (q *Queue[T]) failure(item T) func(s *shard[T], encoded string) (seq uint64) {
	if limiter := q.config.RateLimiter; limiter != nil {
		return after[T](limiter.When(item))
	}
	return (*shard[T]).addRateLimitedLocked
}

// AddRateLimitedContext is AddRateLimited with the confirmation of [Queue.AddContext].
func (q *Queue[T]) AddRateLimitedContext(ctx context.Context, item T) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return q.confirm(ctx, item, q.failure(item))
}

// Forget forgets the failures of item: the next one counts as the first. It does not block. After shutdown it does nothing,
// as Add.
func (q *Queue[T]) Forget(item T) {
	if limiter := q.config.RateLimiter; limiter != nil {
		limiter.Forget(item)
		return
	}
	q.enqueue(item, func(s *shard[T], encoded string) uint64 {
		return s.enqueueLocked(&op{kind: opOther, arg: "f" + encoded})
	})
}

// NumRequeues returns how many failures of item were counted, on all replicas, since it was forgotten. It asks the server,
// after what was called before, for up to a second, and returns 0 if that does not answer, and after shutdown. With a
// RateLimiter it asks that.
func (q *Queue[T]) NumRequeues(item T) int {
	n, _ := q.NumRequeuesContext(context.Background(), item)
	return n
}

// NumRequeuesContext is NumRequeues that returns an error if the server has not answered when ctx ends or a second has
// passed. After shutdown it returns ErrShutDown. Package worker calls it.
func (q *Queue[T]) NumRequeuesContext(ctx context.Context, item T) (int, error) {
	if limiter := q.config.RateLimiter; limiter != nil {
		return limiter.NumRequeues(item), nil
	}
	encoded, s := q.locate(item)
	return s.ask(ctx, "n"+encoded)
}

// Get waits for a key and hands it to the caller, who must call Done with it. It waits through outages of the server.
// After shutdown it returns shutdown = true at once, also if keys are queued: those are for the other replicas. The getter
// that has waited longest gets the next key. Getters share the calls of the server.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	item, err := q.GetContext(context.Background())
	return item, err != nil
}

// GetContext is Get that gives up when ctx is done, and returns ctx.Err() then. After shutdown it returns ErrShutDown.
func (q *Queue[T]) GetContext(ctx context.Context) (item T, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	q.mu.Lock()
	g := q.waitForKeyLocked()
	q.mu.Unlock()
	var ok bool
	select {
	case item, ok = <-g:
	case <-ctx.Done():
		if q.cancel(g) {
			return item, ctx.Err()
		}
		item, ok = <-g
	}
	if !ok {
		return item, workqueue.ErrShutDown
	}
	return item, nil
}

// Done ends the processing of item. It does not block: the server hears of it with the next call, which begins at once; see
// Flush. If the key was added meanwhile, it is queued again. If its lease was lost, Done changes nothing on the server and is
// counted in [Info]. For a key that this process does not hold it changes nothing and counts as unmatched in Stats. During
// shutdown it works as before; the last Done lets the replica end.
func (q *Queue[T]) Done(item T) {
	checkHashable(item)
	q.mu.Lock()
	q.doneLocked(item)
	q.unlock()
}

// checkHashable panics, outside of all locks, for a key that no map can have.
func checkHashable[T comparable](item T) {
	_ = map[T]struct{}(nil)[item]
}

// Purge deletes the queue from the server, with its keys, delays, failures and what was set aside. Keys that are being
// processed, on any replica, lose their leases with the replica's next call. It deletes without blocking the server, one shard
// after the other; what is added meanwhile may be deleted or not, and the replicas go on with an empty queue. It returns
// an error if the server does not answer, or ctx ends; then a part may be deleted. It works after shutdown too.
func (q *Queue[T]) Purge(ctx context.Context) error {
	for _, s := range q.shards {
		session := newSession()
		for {
			left, err := purgeScript.run(ctx, q.client, s.names.of(session), session)
			if err != nil {
				return fmt.Errorf("redisqueue: purge: %w", err)
			}
			if n, _ := left.(int64); n == 0 {
				break
			}
		}
	}
	return nil
}
