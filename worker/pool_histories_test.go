package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// TestHistories runs pools in which everything happens at random: handlers give all kinds of answers, keys
// are held and released, canceled, forgotten and removed, the number of workers changes, and the end comes at
// any moment in any way. No key is lost, calls for a key do not overlap, each Get has its Done, and the
// numbers add up.
//
//	WORKER_HISTORIES=10000 go test -run Histories ./worker
func TestHistories(t *testing.T) {
	n, first := 400, uint64(0)
	if text := os.Getenv("WORKER_HISTORIES"); text != "" {
		n, _ = strconv.Atoi(text)
		first = rand.Uint64() >> 20
	}
	for name, newQueue := range map[string]func() stringQueue{
		"root": func() stringQueue { return newQueue() },
		"priority": func() stringQueue {
			return priorityqueue.New(priorityqueue.Config[string]{RateLimiter: newLimiter()})
		},
		"groups": func() stringQueue {
			return priorityqueue.New(priorityqueue.Config[string]{
				RateLimiter: newLimiter(), MinInterval: 3 * time.Millisecond,
				Group: func(key string) string { return key[:1] }, Limit: func(string) int { return 2 },
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range n / 4 {
				seed := first + uint64(i)
				synctest.Test(t, func(t *testing.T) {
					h := &history{T: t, queue: newQueue(), random: rand.New(rand.NewPCG(seed, 0)),
						keys: make(map[string]*keyHistory)}
					for i := range 20 {
						h.keys[fmt.Sprint(i)] = &keyHistory{}
					}
					h.play()
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

func newLimiter() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Second)
}

// history is the life of a pool, and what is known of its keys.
type history struct {
	*testing.T
	queue     stringQueue
	pool      *worker.Pool[string]
	fromNowOn bool // handlers succeed

	mu     sync.Mutex
	random *rand.Rand
	keys   map[string]*keyHistory
	calls  uint64
}

// keyHistory is what happened to a key. A call pays what is owed when it begins.
type keyHistory struct {
	running bool
	owed    debt
	excused bool // the last add came at the moment of the shutdown
}

// debt is why a key must be handled again, from the weakest reason on.
type debt int

const (
	nothingOwed debt = iota
	owedLater        // it waits for its time, and a shutdown may drop it
	owedRetry        // it has failed
	owedNow          // it was added
)

func (h *history) chance(percent int) bool { return h.number(100) < percent }

func (h *history) number(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.IntN(n)
}

func (h *history) anyKey() string { return fmt.Sprint(h.number(len(h.keys))) }

func (h *history) moment(longest time.Duration) time.Duration {
	return time.Duration(h.number(int(longest)))
}

func (h *history) play() {
	o := options{
		Workers: h.number(5), MaxRetries: h.number(4), Drain: worker.Drain(h.number(3)),
		HandlerTimeout: 15 * time.Millisecond,
		DrainTimeout:   1 + h.moment(30*time.Millisecond), CancelGrace: worker.NoGrace,
		StuckAfter: 5 * time.Millisecond,
		OnFinish:   h.finished,
	}
	if o.CancelGrace = worker.NoGrace; h.chance(50) {
		o.CancelGrace = h.moment(20*time.Millisecond) + 1
	}
	_, extended := h.queue.(workqueue.Extended[string])
	if o.KeepQueue = extended && h.chance(30); o.KeepQueue && o.Drain == worker.All {
		o.Drain = worker.Running
	}
	h.pool = worker.New(h.queue, h.handle, o)
	r := run(h.T, h.pool)
	for range 150 {
		h.act()
		time.Sleep(h.moment(2 * time.Millisecond))
	}
	switch {
	case h.chance(20) && !o.KeepQueue:
		h.queue.ShutDown()
		setWorkers(h.T, h.pool, 1+h.number(4)) // A paused pool would continue.
	case h.chance(30):
		h.pool.Stop(worker.Drain(h.number(3)))
	default:
		r.cancel()
	}
	err := <-r.result
	left := h.pool.Left()
	time.Sleep(time.Minute) // Handlers that were left behind return.
	if o.KeepQueue {
		h.fromNowOn = true
		next := worker.New(h.queue, h.handle, options{Workers: 2, KeepQueue: true, OnFinish: h.finished})
		r := run(h.T, next)
		time.Sleep(time.Hour)
		r.endCleanly()
	}
	h.check(err, left, o.KeepQueue)
}

// act does something to the pool, its queue or a key.
func (h *history) act() {
	key := h.anyKey()
	switch n := h.number(100); {
	case n < 60:
		h.add(key, owedNow, func() { h.queue.Add(key) })
	case n < 70:
		h.add(key, owedLater, func() { h.queue.AddAfter(key, h.moment(10*time.Millisecond)) })
	case n < 76:
		h.pool.Cancel(key)
	case n < 82:
		h.pool.Release(key)
	case n < 85:
		h.forgive(key, owedLater, func() { h.pool.Forget(key) })
	case n < 92:
		setWorkers(h.T, h.pool, h.number(5))
	case n < 95:
		s := h.pool.Snapshot(5)
		if s.Stats.Busy > s.Stats.Living {
			h.Errorf("%+v", s.Stats)
		}
		h.pool.SnapshotKey(key)
	default:
		if o, ok := h.queue.(operate.Operable[string]); ok {
			h.operate(o, key)
		}
	}
}

func (h *history) operate(o operate.Operable[string], key string) {
	switch h.number(4) {
	case 0:
		h.forgive(key, nothingOwed, func() { o.Remove(key) })
	case 1:
		o.PauseGroup(key[:1], h.moment(20*time.Millisecond))
	case 2:
		o.ResumeGroup(key[:1])
	case 3:
		h.add(key, owedNow, func() { o.AddWithPriority(key, h.number(10), 0) })
	}
}

// add notes what an add makes owed, and adds.
func (h *history) add(key string, d debt, add func()) {
	h.owe(key, d, false)
	add()
	if h.queue.ShuttingDown() { // It may have come too late.
		h.owe(key, d, true)
	}
}

// forgive forgets a key, or removes it: then no more than d is owed. What was added comes, unless it was
// removed.
func (h *history) forgive(key string, d debt, forget func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.keys[key]; k.owed < owedNow || d == nothingOwed {
		k.owed = min(k.owed, d)
	}
	forget()
}

func (h *history) owe(key string, d debt, excused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.keys[key]
	k.owed, k.excused = max(k.owed, d), excused
}

// handle is the handler.
func (h *history) handle(ctx context.Context, key string) error {
	h.mu.Lock()
	k := h.keys[key]
	if k.running {
		h.Errorf("two calls for %s overlap", key)
	}
	k.running, k.owed, k.excused = true, nothingOwed, false
	h.calls++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		k.running = false
	}()
	if h.fromNowOn {
		return nil
	}
	select {
	case <-time.After(h.moment(8 * time.Millisecond)):
	case <-ctx.Done():
		if h.chance(50) { // The others do not notice.
			return ctx.Err()
		}
		time.Sleep(h.moment(30 * time.Millisecond))
	}
	if h.chance(10) {
		h.arrange(worker.CallOf(ctx).Hold("a call's", 1+h.moment(20*time.Millisecond)))
	}
	return h.answer(ctx)
}

// arrange releases a hold at once, later or not at all.
func (h *history) arrange(release func()) {
	switch h.number(3) {
	case 0:
		release()
	case 1:
		time.AfterFunc(h.moment(20*time.Millisecond), release)
	}
}

func (h *history) answer(ctx context.Context) error {
	d := h.moment(10 * time.Millisecond)
	switch n := h.number(200); {
	case n < 80:
		return nil
	case n < 110:
		return errBroken
	case n < 115:
		panic("one of many")
	case n < 120:
		runtime.Goexit()
		return nil
	case n < 125:
		return worker.Terminal(errBroken)
	case n < 135:
		return worker.RequeueAfter(d)
	case n < 145:
		return worker.Requeue{}
	case n < 150:
		return worker.Every(1 + d)
	case n < 160:
		return worker.RetryAfter(errBroken, d)
	case n < 175:
		return holds(ctx, "the world", 1+d, h.arrange)
	case n < 180:
		h.arrange(worker.CallOf(ctx).Hold("the world and a retry", 1+d))
		return errBroken
	case n < 199:
		select {
		case <-worker.CallOf(ctx).UntilAdded().Done():
			return worker.ErrAdded
		case <-time.After(d):
			return nil
		}
	default:
		return worker.Fatal(errBroken)
	}
}

// finished notes what an answer makes owed. It is called before the queue's Done.
func (h *history) finished(_ context.Context, r outcome) {
	switch r.Next {
	case worker.NextRetry:
		h.owe(r.Key, owedRetry, false)
	case worker.NextInterrupted:
		h.owe(r.Key, owedNow, false)
	case worker.NextRequeue:
		d := owedLater
		if r.After <= 0 {
			d = owedNow
		}
		h.owe(r.Key, d, false)
	}
}

func (h *history) check(err error, left worker.Left[string], kept bool) {
	if err != nil && !errors.Is(err, errBroken) {
		h.Errorf("Run returned %v", err)
	}
	synctest.Wait()
	reported := slices.Concat(left.Unfinished, left.NotStarted, left.Failing)
	for key, k := range h.keys {
		if k.owed > nothingOwed && (kept || k.owed > owedLater) && !k.excused && !slices.Contains(reported, key) {
			h.Errorf("%s is lost: owed %d, left %v, it is %+v, %+v", key, k.owed, left, *k, h.pool.SnapshotKey(key))
		}
	}
	if st := stats(h.queue); st.Processing != 0 || st.UnmatchedDones != 0 || !kept && st.Queued+st.Waiting != 0 {
		h.Errorf("the queue: %+v", st)
	}
	st := h.pool.Stats()
	if !st.Ended || st.Living+st.Busy+st.OnHold != 0 || !kept && st.Handled != h.calls {
		h.Errorf("%d calls, the pool: %+v", h.calls, st)
	}
}
