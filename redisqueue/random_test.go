package redisqueue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

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
	if err := config.complete(0); err != nil {
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
	q.mu.ending.since = time.Now().Add(-time.Hour)
	clear(q.mu.held)
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
		client := s.client()
		t.Logf("the server: %v, its log:\n%s", s.check(client), s.log())
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
