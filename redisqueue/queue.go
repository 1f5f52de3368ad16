package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/redis/go-redis/v9"
)

// Queue is one replica's end of a queue on a server; [New] makes one. Its methods are safe for concurrent
// use. It implements workqueue's ExtendedRateLimiting, Operable and Leaser, with the differences that the
// package comment lists.
//
// Methods with a key panic, without a lock, for one that cannot be hashed; those that send it also for one
// that is not equal to itself, that the codec cannot encode, or that is reserved. What is added while the
// server does not answer is kept in memory without a bound: the encoded key and about 220 bytes each, which
// Unsent in Shared of Stats counts.
type Queue[T comparable] struct {
	workqueue.Unimplemented[T]
	operate.UnimplementedOperable[T]
	leasing.UnimplementedLeaser[T]

	config   Config[T]
	client   redis.UniversalClient
	script   *redis.Script // batchScript; tests have another clock
	settings string        // see Config.settings
	tool     bool          // see Attach
	// shards do not change. What is in them is guarded by mu.
	shards []*shard[T]
	// blocking is for calls that wait on the server: a read of each shard.
	blocking redis.UniversalClient
	ended    chan struct{} // closed when mu.ending.over is set

	// No foreign code runs under mu: no codec, no context's method, no hook.
	mu struct {
		sync.Mutex
		// held has the keys that this process's workers have, those included whose lease is lost, until Done.
		held map[T]*hold[T]
		// getters are the calls of Get that wait, the longest first. Each channel has room for the one key.
		// Shutdown closes and removes them all.
		getters     []chan T
		inCalls     int // the sum of fetcher.inCall; a cancelled getter counts until the reply
		nonEmpty    int // how many shards may have keys, see fetcher
		ending      ending
		totals      totals
		latest      latest[T]
		saidItPolls bool // because the server's user may not call BLPOP
		// foreign is other people's code, which q.unlock runs once mu is free: the logger and ends of handlers'
		// contexts.
		foreign []func()
	}
}

// New returns a replica's end of the queue with that name. It checks that the server answers, is new enough,
// does not evict keys and runs the queue's scripts, and that earlier replicas had the same number of shards
// and type of keys. ctx bounds only these checks. New returns an error for a config that makes no sense or a
// type of key that needs a Codec, [ErrEviction], [ErrIncompatible], and the client's error if the server does
// not answer or refuses. It refuses a redis.Ring. An idle queue has no goroutine and no timer, and need not
// be shut down. The caller must keep the client open until shutdown has ended.
//
// The client's ReadTimeout should be well below the lease, as it is by default: a server that hangs is asked
// again only after it.
func New[T comparable](ctx context.Context, client redis.UniversalClient, config Config[T]) (*Queue[T], error) {
	if err := checkClient(client); err != nil {
		return nil, err
	}
	if err := config.complete(); err != nil {
		return nil, err
	}
	if err := onEachNode(ctx, client, checkNode); err != nil {
		return nil, err
	}
	q := newQueue(client, config, batchScript)
	err := q.checkScripts(ctx)
	if err == nil {
		err = q.publish()
	}
	if err != nil {
		q.closeBlocking()
		return nil, err
	}
	return q, nil
}

// closeBlocking closes the client of the calls that wait, unless that is the caller's own.
func (q *Queue[T]) closeBlocking() {
	if q.blocking != q.client {
		_ = q.blocking.Close()
	}
}

// newQueue is New with a complete config and without the checks.
func newQueue[T comparable](client redis.UniversalClient, config Config[T], script *redis.Script) *Queue[T] {
	q := &Queue[T]{
		config:   config,
		client:   client,
		script:   script,
		settings: config.settings(),
		blocking: ownConnections(client, config.Shards),
		ended:    make(chan struct{}),
	}
	q.mu.held = make(map[T]*hold[T])
	q.mu.ending.endDrains = make(chan struct{})
	q.mu.totals.stats.Name = config.Name
	q.mu.latest.requeues = make(map[T]*requeues)
	q.mu.latest.timer = q.newTimer(q.askForCountsLocked)
	for i := range config.Shards {
		q.shards = append(q.shards, newShard(q, newKeyNames(config.Name, i)))
	}
	return q
}

// patience is how long methods without a context wait for the server.
const patience = time.Second

// ErrIncompatible is returned by [New], and reported by a queue, if the replicas before it have another
// format of data, another number of shards or another type of keys: together they would corrupt the queue.
var ErrIncompatible = errors.New("redisqueue: the queue does not match the one on the server")

// checkScripts returns an error unless the server executes the queue's scripts, and the queue on it matches
// the config.
func (q *Queue[T]) checkScripts(ctx context.Context) error {
	for _, s := range q.shards {
		b := &batch{session: session{id: newSession()}} // Its batchSeq is 0.
		text, err := q.script.Run(ctx, q.client, s.names.of(b.session.id), s.argv(b)...).Text()
		if err != nil {
			return fmt.Errorf("redisqueue: the server does not execute the queue's scripts: %w", err)
		}
		if text != "OK" {
			return fmt.Errorf("%w: here it has %s, on the server %s. Give all replicas the same, or let the queue "+
				"run empty, stop them all and purge it",
				ErrIncompatible, q.config.description, strings.TrimPrefix(text, "REFUSED "))
		}
	}
	return nil
}

// whileOpen calls f under the lock, unless ctx or this replica has ended.
func (q *Queue[T]) whileOpen(ctx context.Context, f func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.unlock()
	if q.mu.ending.over {
		return workqueue.ErrShutDown
	}
	f()
	return nil
}

// holdOf returns the hold of a key, nil if no worker of this process has it.
func (q *Queue[T]) holdOf(item T) *hold[T] {
	q.mu.Lock()
	defer q.mu.Unlock() // deferred, because the look-up panics for a key that cannot be hashed
	return q.mu.held[item]
}

// unlock unlocks q.mu, and then calls the foreign code that must not run under it.
func (q *Queue[T]) unlock() {
	foreign := q.mu.foreign
	q.mu.foreign = nil
	q.mu.Unlock()
	for _, f := range foreign {
		f()
	}
}

// ErrNotSent is returned by ShutDownContext if operations in the buffer were dropped: their adds are lost,
// and their keys are handed out again.
var ErrNotSent = errors.New("redisqueue: the server has not received everything")

// ending is how far the shutdown of this replica has got: it is stopping; when no worker holds a key and the
// buffers are empty, or were dropped, each session quits; then it is over.
type ending struct {
	stopping bool      // ShutDown or a drain was called: no more keys are handed out
	since    time.Time // when it was called, or when the last held key was Done after it
	// over: no worker holds a key, and every operation was sent or dropped. Nothing is sent from now on.
	over      bool
	dropped   bool          // what was not sent was dropped
	endDrains chan struct{} // closed by ShutDown: drains wait no longer
}

// ShutDown ends this replica's part in the queue. Get returns, and keys on their way to this process go back
// to the server. Workers finish the keys that they hold; until the last one is Done, leases are renewed and
// adds accepted. The queue's goroutines end when the buffer is empty, when the server has not answered, or
// has been full, for a lease, or when the program has closed the client. If the process ends before its
// workers have finished, that is no crash: their keys are handed out again, unchanged, when the lease ends.
//
// ShutDown does not wait for that, and may be called again. Before a process exits it should call
// ShutDownContext, Settle or Flush. Stats counts the adds that were dropped.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopLocked()
	close(q.mu.ending.endDrains)
	q.mu.ending.endDrains = make(chan struct{}) // for the next drain
}

// ShutDownWithDrain is a ShutDown that waits until the workers of this process have finished the keys that
// they hold, and the server knows it: without a bound for a worker that does not call Done, and up to a lease
// after the last Done for a server that does not answer. It does not wait for keys that are queued: other
// replicas have them.
func (q *Queue[T]) ShutDownWithDrain() { _ = q.ShutDownContext(context.Background()) }

// ShutDownContext is ShutDownWithDrain, waiting no longer than ctx. It returns nil when this replica has
// ended and the server has everything, [ErrNotSent] if something was dropped, ctx.Err() if ctx was done
// first, and ErrShutDown if a call of ShutDown ended the wait. It may be called again to wait on.
func (q *Queue[T]) ShutDownContext(ctx context.Context) error {
	q.mu.Lock()
	q.stopLocked()
	endDrains := q.mu.ending.endDrains
	q.mu.Unlock()
	return q.awaitEnd(ctx, endDrains)
}

// awaitEnd waits for the end of this replica, which has begun, or until ctx is done or stop is closed.
func (q *Queue[T]) awaitEnd(ctx context.Context, stop <-chan struct{}) (err error) {
	select {
	case <-q.ended:
	case <-stop:
		err = workqueue.ErrShutDown
	case <-ctx.Done():
		err = ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !q.mu.ending.over:
		return err
	case q.mu.ending.dropped:
		return ErrNotSent
	}
	return nil
}

// ShuttingDown reports whether one of the methods that shut down was called on this replica. It does not ask
// the server.
func (q *Queue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.ending.stopping
}

func (q *Queue[T]) stopLocked() {
	if q.mu.ending.stopping {
		return
	}
	q.mu.ending.stopping, q.mu.ending.since = true, time.Now()
	for _, g := range q.mu.getters {
		close(g)
	}
	q.mu.getters = nil
	for _, s := range q.shards {
		if s.session.held > 0 {
			s.putLocked(newOp(codeEnds, ""))
		}
	}
	q.endLocked()
}

// quitsLocked reports whether nothing is left to do for the session after a shutdown, so that it should quit.
func (s *shard[T]) quitsLocked() bool {
	return s.q.mu.ending.stopping && len(s.q.mu.held) == 0 && s.buffer.len() == 0 &&
		s.session.id != "" && s.fetcher.inCall == 0
}

// endLocked ends this replica if it has been shut down and nothing is left to do. Otherwise the shards send
// what is left.
func (q *Queue[T]) endLocked() {
	e := &q.mu.ending
	if !e.stopping || e.over || len(q.mu.held) > 0 {
		return
	}
	q.kickAllLocked()
	for _, s := range q.shards {
		if s.session.id != "" || s.buffer.len() > 0 || s.fetcher.inCall > 0 {
			return
		}
	}
	e.over = true
	close(q.ended)
	q.mu.latest.timer.Stop()
	go q.closeBlocking() // It may say goodbye to the server.
	for _, s := range q.shards {
		for _, t := range []*time.Timer{s.timers.lease, s.timers.adds, s.timers.watch, s.timers.wake} {
			t.Stop()
		}
		s.failConfirmationsLocked(workqueue.ErrShutDown)
	}
}

// givesUpLocked reports whether to drop what is not sent: after a shutdown, when the last Done and since are
// at least a lease ago.
func (q *Queue[T]) givesUpLocked(since time.Time) bool {
	e, lease := &q.mu.ending, q.config.Lease
	return e.stopping && len(q.mu.held) == 0 && time.Since(e.since) >= lease && time.Since(since) >= lease
}

// dropLocked drops unsent and the whole buffer: for a tool because the server refused them, otherwise at the
// end of a shutdown.
func (s *shard[T]) dropLocked(unsent []*op) {
	e, err := &s.q.mu.ending, s.server.outage
	unsent = append(unsent, s.buffer.drop()...)
	if e.stopping {
		err = workqueue.ErrShutDown
		e.dropped = e.dropped || len(unsent) > 0
		if len(unsent) > 0 {
			s.q.logLocked(slog.LevelWarn, "The queue has ended, and its server has not received everything", "err",
				fmt.Errorf("%w: %d operations", ErrNotSent, len(unsent)))
		}
	}
	for _, o := range unsent {
		if o.code.isAdd() && !o.isAboutHeld() { // Without its answer a held key is handed out again.
			s.q.mu.totals.stats.Dropped++
		}
		if o.onResult != nil {
			o.onResult(opResult{}, err)
		} else if !e.stopping {
			s.refused = err
		}
	}
	if !e.stopping {
		s.confirmations.executed = s.buffer.newest // Nothing is left to wait for.
	}
	s.failConfirmationsLocked(err)
	s.endSessionLocked()
}
