package redisqueue

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// history is what some replicas did with a few keys. Each key has versions: a producer writes one and then adds the key,
// and a handler reads the version when it starts.
type history struct {
	t     *testing.T
	keys  []string
	began time.Time

	mu        sync.Mutex
	written   map[string]int
	confirmed map[string]int // the last version whose add was confirmed
	seen      map[string]int // the last version that a handler which was Done in time has read
	handlings map[string][]handling
	quiet     atomic.Bool // producers end
	short     bool        // no handler takes longer than a lease

	// With replicas in processes of their own: what a handler reads the version with, and calls in the end, and what the
	// producer calls.
	version func(key string) int
	handled func(key string, did handling, version int)
	wrote   func(key string, version int)
}

// handling is what one handler did with a key.
type handling struct {
	replica     int
	fence       int64
	start, done time.Time
	accepted    bool // Done was called while the lease lived
}

func newHistory(t *testing.T, keys int) *history {
	h := &history{
		t: t, keys: keysNamed("key", keys), began: time.Now(), written: make(map[string]int), confirmed: make(map[string]int),
		seen: make(map[string]int), handlings: make(map[string][]handling),
	}
	h.version, h.handled, h.wrote = h.latest, h.record, func(string, int) {}
	return h
}

// latest returns the version of a key.
func (h *history) latest(key string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.written[key]
}

// record notes what a handler did that has read that version.
func (h *history) record(key string, did handling, version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if did.accepted {
		h.seen[key] = max(h.seen[key], version)
	}
	h.handlings[key] = append(h.handlings[key], did)
}

// handledAtLeast returns an error if fewer keys were handed out.
func (h *history) handledAtLeast(n int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, all := range h.handlings {
		n -= len(all)
	}
	if n > 0 {
		return fmt.Errorf("%d hand-outs are missing", n)
	}
	return nil
}

func (h *history) write(key string) (version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written[key]++
	return h.written[key]
}

func (h *history) confirm(key string, version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirmed[key] = max(h.confirmed[key], version)
}

// work gets and handles keys until q is shut down or ctx ends.
func (h *history) work(ctx context.Context, replica int, q *Queue[string], random *rand.Rand) {
	for {
		key, err := q.GetContext(ctx)
		if err != nil {
			return
		}
		leased, release := q.Lease(ctx, key)
		fence, _ := Fence(leased)
		did := handling{replica: replica, fence: fence, start: time.Now()}
		version := h.version(key)
		pause := time.NewTimer(time.Duration(random.IntN(20)) * time.Millisecond)
		if random.IntN(40) == 0 && !h.short {
			pause.Reset(q.config.Lease * 5 / 4) // It must be renewed.
		}
		select {
		case <-leased.Done():
		case <-pause.C:
		}
		pause.Stop()
		if ctx.Err() != nil {
			release()
			return // The replica is dead.
		}
		if random.IntN(20) == 0 {
			q.AddRateLimited(key)
		}
		did.done = time.Now() // before the look at the lease, which must have lived until then
		did.accepted = q.holdsForTest(key) && context.Cause(leased) == nil
		h.handled(key, did, version)
		q.Done(key)
		release()
	}
}

// holdsForTest reports whether the lease of key lives.
func (q *Queue[T]) holdsForTest(item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	held := q.held[item]
	return held != nil && !held.lost && time.Since(held.shard.session.leaseFrom) < q.config.Lease
}

// produce adds versions until ctx ends, and notes which adds were confirmed.
func (h *history) produce(ctx context.Context, q *Queue[string], random *rand.Rand) {
	for ctx.Err() == nil && !h.quiet.Load() {
		key := h.keys[random.IntN(len(h.keys))]
		version := h.write(key)
		h.wrote(key, version)
		adding, cancel := context.WithTimeout(ctx, time.Second)
		if err := q.AddContext(adding, key); err == nil {
			h.confirm(key, version)
		}
		cancel()
		time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
	}
}

// confirmedAtLeast returns an error if fewer adds were confirmed.
func (h *history) confirmedAtLeast(n int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, versions := range h.confirmed {
		n -= versions
	}
	if n > 0 {
		return fmt.Errorf("%d confirmed adds are missing", n)
	}
	return nil
}

// unhandled returns the keys whose last confirmed version no handler has read that was Done in time.
func (h *history) unhandled() (keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, version := range h.confirmed {
		if h.seen[key] < version {
			keys = append(keys, fmt.Sprintf("%s: version %d of %d", key, h.seen[key], version))
		}
	}
	return keys
}

// run lets each queue have three workers and a producer while fault happens, and looks at the history.
func (h *history) run(queues []*Queue[string], fault func()) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var workers, producers sync.WaitGroup
	for n, q := range queues {
		for i := range 3 {
			workers.Go(func() { h.work(ctx, n, q, rand.New(rand.NewPCG(uint64(n), uint64(i)))) })
		}
		producers.Go(func() { h.produce(ctx, q, rand.New(rand.NewPCG(uint64(n), 9))) })
	}
	fault()
	h.quiet.Store(true)
	producers.Wait()
	eventually(h.t, time.Minute, func() error {
		if left := h.unhandled(); len(left) > 0 {
			return fmt.Errorf("never handled: %q; %+v", left, queues[0].Info())
		}
		return nil
	})
	for _, q := range queues {
		if err := q.ShutDownContext(within(h.t, 30*time.Second)); err != nil {
			h.t.Errorf("shutdown: %v, %+v", err, q.Info())
		}
	}
	workers.Wait()
	if err := h.check(); err != nil {
		h.log()
		h.t.Error(err)
	}
	var y tally
	h.count(&y)
	h.t.Logf("%d hand-outs, %d done while the lease lived, %d confirmed adds", y.handlings.Load(), y.accepted.Load(), y.confirmed.Load())
}

// tally adds up what random histories did.
type tally struct {
	histories, handlings, accepted, confirmed, replicasKilled, replicasCut, serversKilled, serversStopped, flushes atomic.Int64
}

func (y *tally) String() string {
	return fmt.Sprintf("%d histories: %d hand-outs (%d done while the lease lived), %d confirmed adds, %d replicas killed and %d cut off, "+
		"the server killed %d times, stopped %d times and its scripts flushed %d times",
		y.histories.Load(), y.handlings.Load(), y.accepted.Load(), y.confirmed.Load(), y.replicasKilled.Load(), y.replicasCut.Load(),
		y.serversKilled.Load(), y.serversStopped.Load(), y.flushes.Load())
}

// count adds h to y.
func (h *history) count(y *tally) {
	h.mu.Lock()
	defer h.mu.Unlock()
	y.histories.Add(1)
	for _, n := range h.confirmed {
		y.confirmed.Add(int64(n))
	}
	for _, all := range h.handlings {
		y.handlings.Add(int64(len(all)))
		for _, did := range all {
			if did.accepted {
				y.accepted.Add(1)
			}
		}
	}
}

// log prints all that handlers did, for a history that failed.
func (h *history) log() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, all := range h.handlings {
		h.t.Logf("%s: written %d, confirmed %d, seen %d", key, h.written[key], h.confirmed[key], h.seen[key])
		for _, did := range all {
			h.t.Logf("%s: replica %d, fence %d, %v to %v, done in time: %v",
				key, did.replica, did.fence, did.start.Sub(h.began), did.done.Sub(h.began), did.accepted)
		}
	}
}

// check looks for two handlers that had a key at once, and for fences that do not grow.
func (h *history) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, all := range h.handlings {
		slices.SortFunc(all, func(a, b handling) int { return a.start.Compare(b.start) })
		for i, a := range all {
			for _, b := range all[i+1:] {
				if b.fence <= a.fence {
					return fmt.Errorf("%s: fence %d of replica %d comes after %d of replica %d", key, b.fence, b.replica, a.fence, a.replica)
				}
				if a.accepted && b.start.Before(a.done) {
					return fmt.Errorf("%s: replica %d got it %v before replica %d was Done", key, b.replica, a.done.Sub(b.start), a.replica)
				}
			}
		}
	}
	return nil
}

var discard = slog.New(slog.DiscardHandler)

// replica is a queue of its own with workers and a producer, behind a proxy.
type replica struct {
	q      *Queue[string]
	proxy  *proxy
	cancel context.CancelFunc
	ended  sync.WaitGroup
	quiet  sync.WaitGroup // the producer
}

func (h *history) startReplica(number int, addr string, lease time.Duration, random *rand.Rand, flaky *atomic.Bool) *replica {
	var mu sync.Mutex
	cuts := rand.New(rand.NewPCG(random.Uint64(), 3)) // guarded by mu
	cut := func() int {
		mu.Lock()
		defer mu.Unlock()
		if !flaky.Load() || cuts.IntN(2) == 0 {
			return -1
		}
		return cuts.IntN(20000)
	}
	p := startProxy(h.t, addr, cut)
	client := redis.NewClient(&redis.Options{Addr: p.addr(), MaxRetries: -1, ReadTimeout: 2 * lease, DialTimeout: lease})
	h.t.Cleanup(func() { client.Close() })
	config := Config[string]{Name: "history", Logger: discard, Shards: 2}
	if err := config.complete(); err != nil {
		h.t.Fatal(err)
	}
	config.Lease, config.PollInterval = lease, lease/3
	config.Backoff.Base = time.Millisecond
	q := newQueue(client, config, newScripts(batchSource))
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{q: q, proxy: p, cancel: cancel}
	for range 3 {
		random := rand.New(rand.NewPCG(random.Uint64(), 1))
		r.ended.Go(func() { h.work(ctx, number, q, random) })
	}
	producer := rand.New(rand.NewPCG(random.Uint64(), 2))
	r.quiet.Go(func() { h.produce(ctx, q, producer) })
	return r
}

// kill ends the replica as a crash does: the server hears no more of it.
func (r *replica) kill() {
	r.proxy.close()
	r.cancel()
	r.ended.Wait()
	r.quiet.Wait()
	r.q.abandonForTest()
}

// abandonForTest ends the goroutines of a queue that cannot reach its server.
func (q *Queue[T]) abandonForTest() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopLocked()
	q.ending.since = time.Now().Add(-time.Hour)
	clear(q.held)
	for _, s := range q.shards {
		s.session.held = 0
	}
}

// tryHistory lets replicas work while they, their connections and their server fail at random.
func tryHistory(t *testing.T, seed uint64, y *tally) {
	const lease = 400 * time.Millisecond
	random := rand.New(rand.NewPCG(seed, 0))
	s := startServer(t, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
	h := newHistory(t, 4)
	var flaky atomic.Bool
	flaky.Store(random.IntN(2) == 0)
	replicas := make(map[int]*replica)
	number := 0
	start := func() {
		number++
		replicas[number] = h.startReplica(number, s.addr, lease, rand.New(rand.NewPCG(seed, uint64(number))), &flaky)
	}
	for range 3 {
		start()
	}
	var story []string
	for faults := 2 + random.IntN(4); faults > 0; faults-- {
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		if faults == 1 {
			// The last fault meets the last versions: a later add would hide that one is lost.
			h.quiet.Store(true)
		}
		switch fault := random.IntN(8); fault {
		case 0, 1, 2:
			for n, r := range replicas {
				story = append(story, fmt.Sprint("kill replica ", n))
				r.kill()
				y.replicasKilled.Add(1)
				delete(replicas, n)
				break
			}
			start()
		case 6, 7:
			for n, r := range replicas {
				pause := time.Duration(random.IntN(800)) * time.Millisecond
				story = append(story, fmt.Sprint("cut off replica ", n, " for ", pause))
				y.replicasCut.Add(1)
				r.proxy.gate.Lock()
				time.AfterFunc(pause, r.proxy.gate.Unlock)
				break
			}
		case 3:
			story = append(story, "kill the server")
			s.kill()
			y.serversKilled.Add(1)
			time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
			s.start()
		case 4:
			pause := time.Duration(random.IntN(800)) * time.Millisecond
			story = append(story, fmt.Sprint("stop the server for ", pause))
			y.serversStopped.Add(1)
			s.signal(syscall.SIGSTOP)
			time.Sleep(pause)
			s.signal(syscall.SIGCONT)
		case 5:
			story = append(story, "flush the scripts")
			client := redis.NewClient(&redis.Options{Addr: s.addr})
			y.flushes.Add(1)
			_ = client.ScriptFlush(context.Background()).Err()
			client.Close()
		}
	}
	fail := func(err error) {
		for n, r := range replicas {
			t.Logf("replica %d: %+v", n, r.q.Info())
		}
		h.log()
		t.Fatalf("seed %d, %q: %v", seed, story, err)
	}
	// Nothing fails any more and nothing is added: all that was confirmed must be handled.
	flaky.Store(false)
	for _, r := range replicas {
		r.quiet.Wait()
	}
	last := replicas[number]
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if len(h.unhandled()) == 0 {
			break
		}
		if time.Now().After(deadline) {
			fail(fmt.Errorf("never handled: %q, queue: %+v", h.unhandled(), last.q.Stats()))
		}
	}
	for _, r := range replicas {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := r.q.ShutDownContext(ctx); err != nil {
			fail(fmt.Errorf("shutdown: %w", err))
		}
		cancel()
		r.cancel()
		r.ended.Wait()
	}
	if err := h.check(); err != nil {
		fail(err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer client.Close()
	if err := checkInvariants(client, last.q); err != nil {
		fail(err)
	}
	h.count(y)
}

// Histories with random faults: no key is with two workers at once while the first one's lease lives, and no confirmed add
// is lost. WORKQUEUE_HISTORIES is how many there are, WORKQUEUE_SEED the seed of the first.
func TestRandomHistories(t *testing.T) {
	n, seed := 100, rand.Uint64N(1<<40)
	if s, err := strconv.Atoi(os.Getenv("WORKQUEUE_HISTORIES")); err == nil {
		n = s
	} else if testing.Short() {
		n = 5
	}
	if s, err := strconv.ParseUint(os.Getenv("WORKQUEUE_SEED"), 10, 64); err == nil {
		seed = s
	}
	var next atomic.Int64
	var all sync.WaitGroup
	var y tally
	for range min(n, 8) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && !t.Failed(); i = next.Add(1) - 1 {
				t.Run(fmt.Sprint("seed=", seed+uint64(i)), func(t *testing.T) { tryHistory(t, seed+uint64(i), &y) })
				if m := y.histories.Load(); m%500 == 0 {
					t.Log(&y)
				}
			}
		})
	}
	all.Wait()
	t.Log(&y)
}
