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
	halfOpen, killedByKey, replicasLeft, otherVersions                                                             atomic.Int64
}

func (y *tally) String() string {
	return fmt.Sprintf("%d histories: %d hand-outs (%d done while the lease lived), %d confirmed adds, %d replicas killed, %d cut off, "+
		"%d with half-open connections, %d killed by a key and %d of another version, the server killed %d times, stopped %d times, "+
		"left %d times by the replica that confirmations wait for, and its scripts flushed %d times",
		y.histories.Load(), y.handlings.Load(), y.accepted.Load(), y.confirmed.Load(), y.replicasKilled.Load(), y.replicasCut.Load(),
		y.halfOpen.Load(), y.killedByKey.Load(), y.otherVersions.Load(),
		y.serversKilled.Load(), y.serversStopped.Load(), y.replicasLeft.Load(), y.flushes.Load())
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

func (h *history) startReplica(number int, addr string, config Config[string], random *rand.Rand, flaky *atomic.Bool) *replica {
	lease := config.Lease
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
	q := newQueue(client, config, batchScript)
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

// handledBy returns how many handlers a replica has run.
func (h *history) handledBy(replica int) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, all := range h.handlings {
		for _, did := range all {
			if did.replica == replica {
				n++
			}
		}
	}
	return n
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
	config := Config[string]{Name: "history", Logger: discard, Shards: 2, MaxLostLeases: 6}
	must(t, config.complete(0))
	config.Lease, config.PollInterval, config.WaitTimeout = lease, lease/3, lease/4
	config.Backoff.Base, config.Backoff.Max = time.Millisecond, lease
	h := newHistory(t, 4)
	var follower *server
	if random.IntN(4) == 0 {
		config.WaitReplicas = 1
		follower = startServer(t, "--replicaof", "127.0.0.1", s.port(), "--repl-diskless-sync-delay", "0")
	}
	var flaky atomic.Bool
	flaky.Store(random.IntN(2) == 0)
	replicas, strangers := make(map[int]*replica), make(map[int]*replica)
	number := 0
	var proxies sync.Map // of *proxy, by the number of the replica
	start := func() {
		number++
		replicas[number] = h.startReplica(number, s.addr, config, rand.New(rand.NewPCG(seed, uint64(number))), &flaky)
		proxies.Store(number, replicas[number].proxy)
	}
	var mu sync.Mutex // guards dead and kills
	kills, dead := 0, make(map[int]bool)
	h.kill = func(n int) {
		mu.Lock()
		defer mu.Unlock()
		kills++
		dead[n] = true
		y.killedByKey.Add(1)
		p, ok := proxies.Load(n)
		for ; !ok; p, ok = proxies.Load(n) { // It is being started.
			time.Sleep(time.Millisecond)
		}
		p.(*proxy).close() // The server hears no more of it. The rest is up to bury.
	}
	// bury replaces the replicas that a key has killed.
	bury := func() {
		mu.Lock()
		var gone []int
		for n := range dead {
			gone = append(gone, n)
		}
		clear(dead)
		mu.Unlock()
		for _, n := range gone {
			if r := replicas[n]; r != nil {
				r.kill()
				delete(replicas, n)
				start()
			}
		}
	}
	if random.IntN(5) == 0 {
		h.killer = "killer"
	}
	// The first replica defines what all others must have: it should not be one of another version.
	first := newQueue(s.client(), config, batchScript)
	must(t, first.checkScripts(context.Background()))
	if h.killer != "" {
		first.Add(h.killer)
	}
	must(t, first.ShutDownContext(within(t, 30*time.Second)))
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
		bury()
		switch fault := random.IntN(12); fault {
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
		case 8, 9:
			for n, r := range replicas {
				pause := time.Duration(random.IntN(800)) * time.Millisecond
				half := [](*atomic.Bool){&r.proxy.toServer, &r.proxy.toReplica}[random.IntN(2)]
				story = append(story, fmt.Sprint("half-open connections of replica ", n, " for ", pause))
				y.halfOpen.Add(1)
				half.Store(true)
				time.AfterFunc(pause, func() { half.Store(false) })
				break
			}
		case 10:
			story = append(story, "start a replica of another version")
			y.otherVersions.Add(1)
			other := config
			other.keys = "of another version"
			number++
			stranger := h.startReplica(number, s.addr, other, rand.New(rand.NewPCG(seed, uint64(number))), &flaky)
			strangers[number] = stranger
		case 11:
			if follower != nil {
				story = append(story, "the server's replica leaves")
				y.replicasLeft.Add(1)
				follower.kill()
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
	for n, r := range strangers {
		r.kill()
		if h.handledBy(n) > 0 {
			fail(fmt.Errorf("a replica of another version has got keys"))
		}
	}
	var last *replica
	// On a machine with far too much work, calls time out for minutes.
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		bury()
		for _, last = range replicas {
			break
		}
		killerEnded := h.killer == ""
		if !killerEnded {
			given, err := last.q.GivenUpKey(context.Background(), h.killer)
			killerEnded = err == nil && given != nil
		}
		if len(h.unhandled()) == 0 && killerEnded {
			break
		}
		// Where calls take longer than leases, keys are given up that are innocent. They are not lost.
		given, _ := last.q.GivenUp(context.Background(), 10)
		for _, k := range given {
			if k.Key != h.killer {
				_, _ = last.q.Retry(context.Background(), k.Key)
			}
		}
		if time.Now().After(deadline) {
			fail(fmt.Errorf("never handled: %q, the killer has ended: %v, queue: %+v", h.unhandled(), killerEnded, last.q.Stats()))
		}
	}
	bury()
	// A lease that ends between a handler's look at it and the end of its replica was given back, and does not count.
	if kills > config.MaxLostLeases+2 {
		fail(fmt.Errorf("a key has killed %d replicas, want about %d", kills, config.MaxLostLeases))
	}
	for _, last = range replicas {
		break
	}
	for _, r := range replicas {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		// A replica whose connection is still half open may say that it has not sent everything.
		if err := r.q.ShutDownContext(ctx); err != nil && err != ErrNotSent {
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
