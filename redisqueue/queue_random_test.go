package redisqueue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	histories, handlings, accepted, confirmed, replicasKilled, replicasCut, serversKilled, serversStopped,
	flushes atomic.Int64
	halfOpen, killedByKey, otherVersions, pauses, limited                atomic.Int64
	lateAnswers, replicasEnded, serversFull, limitsChanged, olderScripts atomic.Int64
}

func (y *tally) String() string {
	return fmt.Sprintf(
		"%d histories: %d hand-outs (%d done while the lease lived), %d confirmed adds, %d replicas killed, %d cut off, "+
			"%d with half-open connections, %d killed by a key and %d of another version, the server killed %d times, stopped %d times, "+
			"full %d times, and its scripts flushed %d times; "+
			"the queue paused %d times, %d with a start limit; %d answers after the lease, %d orderly ends; "+
			"limits changed %d times; %d replicas with an older script",
		y.histories.Load(), y.handlings.Load(), y.accepted.Load(), y.confirmed.Load(), y.replicasKilled.Load(),
		y.replicasCut.Load(),
		y.halfOpen.Load(), y.killedByKey.Load(), y.otherVersions.Load(),
		y.serversKilled.Load(), y.serversStopped.Load(), y.serversFull.Load(),
		y.flushes.Load(), y.pauses.Load(), y.limited.Load(), y.lateAnswers.Load(), y.replicasEnded.Load(),
		y.limitsChanged.Load(), y.olderScripts.Load())
}

// count adds h to y.
func (h *history) count(y *tally) {
	h.mu.Lock()
	defer h.mu.Unlock()
	y.histories.Add(1)
	y.lateAnswers.Add(h.late.Load())
	y.olderScripts.Add(h.olderScripts.Load())
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

// tally returns what has happened so far.
func (h *history) tally() *tally {
	var y tally
	h.count(&y)
	return &y
}

// replica is a queue of its own with workers and a producer, behind a proxy.
type replica struct {
	q      *Queue[string]
	proxy  *proxy
	cancel context.CancelFunc
	ended  sync.WaitGroup
	quiet  sync.WaitGroup // the producer
}

// olderScripts are those of other versions of the library with the same format of data. While two versions run, as in a rolling
// upgrade, their scripts share the data: that is tested, and not the calls and replies of an older version, for this package's
// calls all of them. testdata has the script of each release (see tools/README.md), and batch-unreleased.lua, an earlier state of
// the script. Until the first release, what has changed in calls and replies is changed there too.
var olderScripts = sync.OnceValue(func() (scripts []*redis.Script) {
	names, _ := filepath.Glob("testdata/batch-*.lua")
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		scripts = append(scripts, redis.NewScript(string(source)))
	}
	return scripts
})

func (h *history) startReplica(number int, addr string, config Config[string], random *rand.Rand,
	flaky *atomic.Bool) *replica {
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
	client := newClient(h.t, &redis.Options{Addr: p.addr(), MaxRetries: -1, ReadTimeout: 2 * lease,
		DialTimeout: lease})
	script := batchScript
	if older := olderScripts(); len(older) > 0 && random.IntN(4) == 0 {
		script = older[random.IntN(len(older))]
		h.olderScripts.Add(1)
	}
	q := newQueue(client, config, script)
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{q: q, proxy: p, cancel: cancel}
	for range 3 {
		random := rand.New(rand.NewPCG(random.Uint64(), 1))
		r.ended.Go(func() {
			if h.work(ctx, number, q, random) {
				p.close() // The server hears no more of it. The rest is up to who buries it.
				h.dead <- number
			}
		})
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
	config := Config[string]{Name: "history", Logger: discard, Shards: 2, MaxLostLeases: 6}
	must(t, config.complete())
	config.Lease, config.PollInterval = lease, lease/3
	config.Backoff.Base, config.Backoff.Max = time.Millisecond, lease
	h := newHistory(t, 4)
	if random.IntN(3) == 0 {
		config.StartLimit = StartLimit{Rate: 400, Burst: 8}
		y.limited.Add(1)
	}
	var flaky atomic.Bool
	flaky.Store(random.IntN(2) == 0)
	replicas := make(map[int]*replica)
	foreign := newHistory(t, 4) // of replicas of another version
	var strangers []*replica
	number := 0
	start := func() {
		number++
		replicas[number] = h.startReplica(number, s.addr, config, rand.New(rand.NewPCG(seed, uint64(number))),
			&flaky)
	}
	kills := 0
	// bury replaces the replicas that a key has killed.
	bury := func() {
		for len(h.dead) > 0 {
			n := <-h.dead
			kills++
			y.killedByKey.Add(1)
			if r := replicas[n]; r != nil {
				r.kill()
				delete(replicas, n)
				start()
			}
		}
	}
	// anyReplica returns one of those that live.
	anyReplica := func() (n int, r *replica) {
		for n, r = range replicas {
			break
		}
		return n, r
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
	admin := s.client()
	limitMemory := func(to string) error {
		return admin.ConfigSet(context.Background(), "maxmemory", to).Err()
	}
	var story []string
	happens := func(count *atomic.Int64, what ...any) {
		story = append(story, fmt.Sprint(what...))
		count.Add(1)
	}
	for faults := 2 + random.IntN(4); faults > 0; faults-- {
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		if faults == 1 {
			// The last fault meets the last versions: a later add would hide that one is lost.
			h.quiet.Store(true)
		}
		bury()
		n, r := anyReplica()
		fault, pause := random.IntN(18), time.Duration(random.IntN(800))*time.Millisecond
		switch fault {
		case 0, 1, 2:
			happens(&y.replicasKilled, "kill replica ", n)
			r.kill()
			delete(replicas, n)
			start()
		case 3:
			happens(&y.serversKilled, "kill the server")
			s.kill()
			time.Sleep(pause / 4)
			s.start()
		case 4:
			happens(&y.serversStopped, "stop the server for ", pause)
			s.signal(syscall.SIGSTOP)
			time.Sleep(pause)
			s.signal(syscall.SIGCONT)
		case 5:
			happens(&y.flushes, "flush the scripts")
			_ = s.client().ScriptFlush(context.Background()).Err()
		case 6, 7:
			happens(&y.replicasCut, "cut off replica ", n, " for ", pause)
			r.proxy.gate.Lock()
			time.AfterFunc(pause, r.proxy.gate.Unlock)
		case 8, 9:
			happens(&y.halfOpen, "half-open connections of replica ", n, " for ", pause)
			half := [](*atomic.Bool){&r.proxy.toServer, &r.proxy.toReplica}[random.IntN(2)]
			half.Store(true)
			time.AfterFunc(pause, func() { half.Store(false) })
		case 10:
			happens(&y.otherVersions, "start a replica of another version")
			other := config
			other.description = "format 0, of another version"
			number++
			strangers = append(strangers, foreign.startReplica(number, s.addr, other,
				rand.New(rand.NewPCG(seed, uint64(number))), &flaky))
		case 13, 14:
			// Handlers may be running: it says that it ends, for a moment, and is gone.
			happens(&y.replicasEnded, "end replica ", n)
			r.q.ShutDown()
			_, _ = r.q.Settle(within(t, pause/4))
			r.kill()
			delete(replicas, n)
			start()
		case 15, 16:
			happens(&y.serversFull, "the server is full for ", pause)
			_ = limitMemory("100kb")
			time.AfterFunc(pause, func() { _ = limitMemory("0") })
		case 11, 17:
			config.StartLimit = []StartLimit{{}, {Rate: 100, Burst: 1}, {Rate: 400, Burst: 8}, {Rate: 20, Burst: 40}}[random.IntN(4)]
			happens(&y.limitsChanged, "limits change, beginning with replica ", n, ": ", config.StartLimit)
			r.kill()
			delete(replicas, n)
			start()
		case 12:
			happens(&y.pauses, "pause the queue for ", pause)
			r.q.Pause(pause)
		}
	}
	fail := func(err error) {
		for n, r := range replicas {
			t.Logf("replica %d: %+v", n, shared(r.q))
		}
		h.log()
		client := s.client()
		t.Logf("the server: %v, its log:\n%s", s.check(client), s.log())
		t.Fatalf("seed %d, %q: %v", seed, story, err)
	}
	// Nothing fails any more and nothing is added: all that was confirmed must be handled.
	flaky.Store(false)
	eventually(t, time.Minute, func() error { return limitMemory("0") })
	for _, r := range replicas {
		r.quiet.Wait()
	}
	for _, r := range strangers {
		r.kill()
	}
	if foreign.tally().handlings.Load() > 0 {
		fail(fmt.Errorf("a replica of another version has got keys"))
	}
	var last *replica
	// On a machine with far too much work, calls time out for minutes.
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		bury()
		_, last = anyReplica()
		killerEnded := h.killer == ""
		if !killerEnded {
			k, err := last.q.key(context.Background(), h.killer)
			killerEnded = err == nil && k.GivenUp != nil
		}
		if len(h.unhandled()) == 0 && killerEnded {
			break
		}
		// Where calls take longer than leases, keys are given up that are innocent. They are not lost.
		for _, k := range last.q.GivenUpKeys(10) {
			if k.Err == errLate.Error() {
				fail(fmt.Errorf("%s was given up by a late answer", k.Key))
			}
			if k.Key != h.killer {
				last.q.RetryGivenUp(k.Key)
			}
		}
		if time.Now().After(deadline) {
			fail(fmt.Errorf("never handled: %q, the killer has ended: %v, queue: %+v", h.unhandled(), killerEnded,
				last.q.Stats()))
		}
	}
	bury()
	// A lease that ends between a handler's look at it and the end of its replica was given back, and does not
	// count.
	if kills > config.MaxLostLeases+2 {
		fail(fmt.Errorf("a key has killed %d replicas, want about %d", kills, config.MaxLostLeases))
	}
	_, last = anyReplica()
	for _, r := range replicas {
		// A replica whose connection is still half open may say that it has not sent everything.
		if err := r.q.ShutDownContext(within(t, 20*time.Second)); err != nil && err != ErrNotSent {
			fail(fmt.Errorf("shutdown: %w", err))
		}
		r.cancel()
		r.ended.Wait()
	}
	if err := h.check(); err != nil {
		fail(err)
	}
	if err := checkInvariants(s.client(), last.q); err != nil {
		fail(err)
	}
	h.count(y)
}

// Histories with random faults: no key is with two workers at once while the first one's lease lives, and no
// confirmed add is lost. WORKQUEUE_HISTORIES is how many there are, WORKQUEUE_SEED the seed of the first.
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
