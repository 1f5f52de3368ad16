package redisqueue

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

// Get waits for a key and hands it to the caller, who must call Done with it. It waits through outages of the
// server. After shutdown it returns shutdown = true at once, also if keys are queued: those are for the other
// replicas. The getter that has waited longest gets the next key. Getters share the calls of the server.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	item, err := q.GetContext(context.Background())
	return item, err != nil
}

// GetContext is Get that gives up when ctx is done, and returns ctx.Err() then. After shutdown it returns
// ErrShutDown.
func (q *Queue[T]) GetContext(ctx context.Context) (item T, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	g := q.waitForKey()
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

// Done ends the processing of item. It does not block: the server hears of it with the next call, which
// begins at once; see Flush. If the key was added meanwhile, it is queued again. If its lease was lost, Done
// changes nothing on the server and is counted in [Info]. For a key that this process does not hold it
// changes nothing and counts as unmatched in Stats. During shutdown it works as before; the last Done lets
// the replica end.
func (q *Queue[T]) Done(item T) {
	checkHashable(item)
	q.mu.Lock()
	defer q.unlock()
	h := q.mu.held[item]
	if h == nil {
		q.mu.totals.stats.UnmatchedDones++
		return
	}
	s := h.shard
	now := time.Now()
	s.expireLocked(now) // The nextHandOut may be lost too.
	delete(q.mu.held, item)
	delete(s.watched, h.encoded)
	if q.mu.ending.stopping && len(q.mu.held) == 0 {
		q.mu.ending.since = now
	}
	q.mu.totals.workDuration.observe(now.Sub(h.began))
	if h.lost {
		q.mu.totals.info.LostDones++
	} else {
		s.session.held--
		s.enqueueLocked(aboutHeld(codeDone, h.handedOut))
	}
	if h.nextHandOut != nil {
		s.session.held--
		s.handLocked(*h.nextHandOut, item, now)
	}
	q.endLocked()
}

// waitForKey makes the caller wait for a key.
func (q *Queue[T]) waitForKey() chan T {
	g := make(chan T, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.ending.stopping {
		close(g)
		return g
	}
	q.mu.getters = append(q.mu.getters, g)
	for _, s := range q.shards {
		s.kickLocked()
		s.sleepLocked()
	}
	return g
}

// cancel removes g from the getters, and returns false if it has a key already or knows of the shutdown.
func (q *Queue[T]) cancel(g chan T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.mu.getters, g)
	if i < 0 {
		return false
	}
	q.mu.getters = slices.Delete(q.mu.getters, i, i+1)
	if len(q.mu.getters) == 0 {
		for _, s := range q.shards {
			s.fetcher.timer.Stop()
			s.kickLocked() // so that wake-ups go to others
		}
	}
	return true
}

// fetcher gets keys for the callers of Get. It and the server agree on who moves next:
//
//	drained = false  the next batch asks for keys, as many as getters wait (requested). If it brings fewer and
//	                 none are queued, both sides know that this session sleeps: asleep here, SLEEPERS on the
//	                 server.
//	drained = true   the shard asks for none. A goroutine reads the session's WAKE list, and a timer runs until
//	                 the next delayed key is due, or for two poll intervals. What makes drained false again: a
//	                 wake-up, that time, the poll interval, an add from here, a reply that speaks of queued
//	                 keys, and the end of the session.
type fetcher struct {
	fetcherState
	requested int         // how many keys the call in flight may bring
	reading   bool        // the goroutine that waits for a wake-up exists
	timer     *time.Timer // for nextDue, and polls
}

// fetcherState is what changes with the answer to a batch.
type fetcherState struct {
	drained bool
	asleep  bool // the server knows that getters sleep here
	// woken: a wake-up has come since the call in flight began, and may have overtaken its reply: that reply
	// does not set drained.
	woken   bool
	nextDue time.Time // when the next delayed key is due, zero if none waits
	asked   time.Time // when the last reply came to a batch that wants keys
}

// after returns what follows from the reply to a batch that was executed.
func (f fetcherState) after(b *batch, r *reply, now time.Time) fetcherState {
	nothingLeft := r.counts.Queued == 0 || r.counts.Paused || r.counts.Limited
	switch {
	case b.want > 0:
		f.asked = now
		f.drained = len(r.keys) < b.want && nothingLeft
		f.asleep = f.drained && !b.quits
	case b.asleep:
		f.asleep, f.drained = false, false // No wake-up comes from now on, so the next getter must ask.
	}
	if !nothingLeft || f.woken || r.nextDue == 0 { // With 0, more keys are due than one batch moves.
		f.drained = false
	}
	f.nextDue = time.Time{}
	if r.nextDue > 0 {
		f.nextDue = now.Add(r.nextDue)
	}
	return f
}

func (s *shard[T]) setDrainedLocked(drained bool) {
	if s.fetcher.drained && !drained {
		s.q.mu.askable++
	} else if !s.fetcher.drained && drained {
		s.q.mu.askable--
	}
	s.fetcher.drained = drained
}

// demandLocked returns how many keys the next batch asks for: this shard's part of the getters that no call
// in flight may serve.
func (s *shard[T]) demandLocked() int {
	unserved := len(s.q.mu.getters) - s.q.mu.requested
	if s.fetcher.drained || unserved <= 0 || s.session.abandoned {
		return 0
	}
	askable := s.q.mu.askable
	return min((unserved+askable-1)/askable, maxWant)
}

// requestLocked notes how many keys the call in flight may bring.
func (s *shard[T]) requestLocked(n int) {
	s.q.mu.requested += n - s.fetcher.requested
	s.fetcher.requested = n
}

// wakesUpLocked reports whether the session should leave SLEEPERS: the server counts it as asleep, but no
// getter waits.
func (s *shard[T]) wakesUpLocked() bool { return s.fetcher.asleep && len(s.q.mu.getters) == 0 }

// arrival is a key that was handed out, decoded.
type arrival[T comparable] struct {
	handedOut
	item T
	bad  error // why it could not be decoded
}

// receiveLocked decides what becomes of a key that the server has handed out.
func (s *shard[T]) receiveLocked(key arrival[T], serverNow int64, now time.Time) {
	q := s.q
	switch {
	case s.session.abandoned || s.session.id == "":
		return // It comes again when the session has quit.
	case key.bad != nil:
		s.enqueueLocked(aboutHeld(codeSetAside, key.handedOut))
		q.reportLocked("A key cannot be decoded and was set aside", key.bad)
		return
	}
	waited := time.Duration(serverNow-key.since) * time.Microsecond
	q.mu.totals.latency.observe(waited)
	key.addedAt, key.retryAt = now.Add(-waited), now.Add(key.left)
	switch h := q.mu.held[key.item]; {
	case h == nil:
		s.handLocked(key.handedOut, key.item, now)
	case h.encoded != key.encoded:
		// Another string of a key that a worker has: finish this one, and add the worker's string instead.
		h.shard.addLocked(h.encoded)
		s.enqueueLocked(aboutHeld(codeDone, key.handedOut))
	default:
		if h.nextHandOut == nil {
			s.session.held++
		}
		h.nextHandOut = &key.handedOut
	}
}

// handLocked gives a key that the session holds to a getter, or back to the server if none waits.
func (s *shard[T]) handLocked(key handedOut, item T, now time.Time) {
	q := s.q
	if len(q.mu.getters) == 0 {
		s.enqueueLocked(aboutHeld(codeHandBack, key))
		return
	}
	g := q.mu.getters[0]
	q.mu.getters[0] = nil
	q.mu.getters = q.mu.getters[1:]
	q.mu.held[item] = &hold[T]{handedOut: key, shard: s, began: now}
	s.session.held++
	g <- item
}

// sleepLocked waits for a wake-up, the next delayed key or the poll interval, if getters wait and the shard
// has no keys for them. The timer also polls, because a read on a dead connection returns much later than it
// should.
func (s *shard[T]) sleepLocked() {
	if !s.fetcher.drained || s.sending || len(s.q.mu.getters) == 0 || s.session.id == "" {
		return
	}
	if !s.fetcher.reading {
		s.fetcher.reading = true
		go s.readWakeUp(s.names.wake(s.session.id))
	}
	poll := time.Until(s.fetcher.asked.Add(2 * s.q.config.PollInterval))
	if !s.fetcher.nextDue.IsZero() {
		poll = min(poll, time.Until(s.fetcher.nextDue))
	}
	s.fetcher.timer.Reset(poll)
}

// wakeLocked asks the server for keys, if getters wait.
func (s *shard[T]) wakeLocked() {
	s.setDrainedLocked(false)
	s.fetcher.woken = true
	s.kickLocked()
}

// ownConnections returns a client of the same server with at most n connections, for the calls that wait: in
// the client's own pool they would hold the connections that others need. It returns a client that is not
// go-redis's own as it is.
func ownConnections(client redis.UniversalClient, n int) redis.UniversalClient {
	// In the options of a client that exists, zero means none. For a new client, that is -1.
	bounds := []string{"ReadTimeout", "WriteTimeout", "MaxRetries"}
	switch c := client.(type) {
	case *redis.Client:
		return redis.NewClient(unshared(*c.Options(), n, bounds...))
	case *redis.ClusterClient:
		return redis.NewClusterClient(unshared(*c.Options(), n, bounds...))
	case *redis.Ring:
		return redis.NewRing(unshared(*c.Options(), n, "MaxRetries"))
	}
	return client
}

// unshared returns the options of a second client: with n connections, and with defaults for what a client
// writes to while it connects. In the fields none, zero becomes -1. Only newer versions of go-redis have some
// fields, so the code finds them by name.
func unshared[O any](options O, n int, none ...string) *O {
	fields := reflect.ValueOf(&options).Elem()
	for _, name := range []string{
		"MinIdleConns", "MaxIdleConns", "MaxActiveConns", "MaintNotificationsConfig", "PushNotificationProcessor",
	} {
		if field := fields.FieldByName(name); field.IsValid() {
			field.SetZero()
		}
	}
	for _, name := range none {
		if field := fields.FieldByName(name); field.IsZero() {
			field.SetInt(-1)
		}
	}
	fields.FieldByName("PoolSize").SetInt(int64(n))
	return &options
}

// readWakeUp waits for a wake-up, no longer than the poll interval.
func (s *shard[T]) readWakeUp(list string) {
	q, ctx, interval := s.q, context.Background(), s.q.config.PollInterval
	var err error
	if interval >= time.Second {
		err = q.blocking.BLPop(ctx, interval.Truncate(time.Second), list).Err()
	} else {
		err = q.blocking.Do(ctx, "BLPOP", list, strconv.FormatFloat(interval.Seconds(), 'f', 3, 64)).Err()
	}
	// Not errors.Is: a Sentinel without a master returns, at once, an error that wraps redis.Nil.
	if err != nil && err != redis.Nil {
		q.pause(interval)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.fetcher.reading = false
	s.wakeLocked() // Without getters this lets the session leave SLEEPERS, so that wake-ups go to others.
}
