package sharding

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// The simulation runs members on a store in virtual time. Each history is random: processes join, leave, are killed and
// stopped; their clocks run too fast or too slow by all that the margin allows; calls are slow, fail, or succeed and report
// an error; watches stall, repeat or end; the table is deleted; handlers do not return. Then all faults end, and the
// bounds of quiet times are checked as well.
//
//	SHARDING_HISTORIES=100000 go test -run Simulation -timeout 24h ./sharding

var simSeed = flag.Uint64("sharding.seed", 0, "the seed of the only history to simulate")

const (
	simLease    = 15 * time.Second
	simHandover = 4 * time.Second
	simSlots    = 16
	simKeys     = 40
	// simDrift is how much a clock may be too fast or too slow with the default margin of an eighth: (1+d)/(1-d) < 8/7.
	simDrift = 0.066
)

func TestSimulation(t *testing.T) {
	n := 100
	if v := os.Getenv("SHARDING_HISTORIES"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	if *simSeed != 0 {
		simulate(t, *simSeed)
		return
	}
	first := uint64(time.Now().UnixNano())
	var next, handled atomic.Int64
	var failed atomic.Bool
	t.Run("histories", func(t *testing.T) {
		for p := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(p), func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1); i <= int64(n) && !failed.Load(); i = next.Add(1) {
					handled.Add(int64(simulate(t, first+uint64(i))))
					failed.Store(failed.Load() || t.Failed())
				}
			})
		}
	})
	t.Logf("%d histories, %d handlers", min(next.Load(), int64(n)), handled.Load())
}

func simulate(t *testing.T, seed uint64) (handled int) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: Memory(), rand: rand.New(rand.NewPCG(seed, 0)), began: time.Now()}
		w.mu.active = make(map[string]map[*handling]bool)
		w.mu.versions = make(map[string]int)
		w.mu.handled = make(map[string]int)
		w.mu.epochs = make(map[string]lastEpoch)
		w.run()
		handled = w.mu.calls
		if w.mu.failed {
			t.Errorf("seed %d:\n%s\nrepeat: go test -run Simulation -sharding.seed %d", seed, strings.Join(w.mu.trace, "\n"), seed)
		}
	})
	return handled
}

// world is a history.
type world struct {
	t     *testing.T
	store Store
	rand  *rand.Rand
	began time.Time

	processes []*process // those that are not dead
	number    int

	mu struct {
		sync.Mutex
		trace    []string
		failed   bool
		active   map[string]map[*handling]bool
		versions map[string]int // the newest of each key
		handled  map[string]int // the newest that a handler has finished
		calls    int
		stuck    bool // handlers may ignore their contexts
		epochs   map[string]lastEpoch
		deletes  bool // people delete records
	}
}

// process is a replica.
type process struct {
	*simStore
	w      *world
	clock  *simClock
	member *Member
	queue  Queue[string]
	end    context.CancelFunc // of the workers
	ended  chan struct{}

	cacheMu sync.Mutex
	cache   map[string]int // the version of each key that the process has heard of
}

type handling struct {
	p   *process
	id  string // of the member
	ctx context.Context
}

type lastEpoch struct {
	p     *process
	epoch int64
}

func (w *world) logf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logLocked(format, args...)
}

func (w *world) logLocked(format string, args ...any) {
	w.mu.trace = append(w.mu.trace, fmt.Sprintf("%9.3fs ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) failf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(format, args...)
}

func (w *world) failLocked(format string, args ...any) {
	w.mu.failed = true
	w.logLocked("FAILURE: "+format, args...)
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.failed
}

// Write makes w the destination of the members' logs.
func (w *world) Write(line []byte) (int, error) {
	w.logf("%s", strings.TrimSpace(string(line)))
	return len(line), nil
}

func (w *world) run() {
	stopChanges := w.changeKeys()
	w.storm()
	w.logf("all faults end")
	w.calm()
	if !w.failed() {
		w.checkQuiet()
	}
	stopChanges()
	w.checkHandled()
	for _, p := range w.processes {
		p.die()
	}
	time.Sleep(time.Hour) // Late calls end.
}

// changeKeys changes keys all the time. Each process hears of it sooner or later.
func (w *world) changeKeys() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	r := rand.New(rand.NewPCG(w.rand.Uint64(), 1))
	go func() {
		defer close(done)
		for wait(ctx, time.Duration(r.Int64N(int64(time.Second)))) == nil {
			w.mu.Lock()
			key := "key-" + strconv.Itoa(r.IntN(simKeys))
			w.mu.versions[key]++
			version := w.mu.versions[key]
			processes := slices.Clone(w.processes)
			w.mu.Unlock()
			for _, p := range processes {
				go p.hear(key, version, p.random(3*time.Second))
			}
		}
	}()
	return func() { cancel(); <-done }
}

// hear is an informer: it changes the cache and then adds the key.
func (p *process) hear(key string, version int, later time.Duration) {
	time.Sleep(later)
	p.stop.wait()
	p.cacheMu.Lock()
	p.cache[key] = max(p.cache[key], version)
	p.cacheMu.Unlock()
	p.queue.Add(key)
}

// list lists the cache, or not all of it.
func (p *process) list(context.Context) (keys []string, err error) {
	p.stop.wait()
	p.cacheMu.Lock()
	defer p.cacheMu.Unlock()
	for key := range p.cache {
		keys = append(keys, key)
	}
	if p.chance(p.now().fail) {
		return keys[:len(keys)/2], errInjected
	}
	return keys, nil
}

func (w *world) join(f faults) *process {
	w.number++
	stop := &stopper{}
	p := &process{
		w: w, ended: make(chan struct{}), cache: make(map[string]int),
		simStore: &simStore{Store: w.store, stop: stop, name: fmt.Sprintf("p%d", w.number), log: w.logf, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 2)), faults: f},
	}
	p.clock = &simClock{start: time.Now(), rate: 1 + simDrift*[]float64{-1, 0, 1}[w.rand.IntN(3)], stop: stop}
	life := 0
	config := Config{
		Group: "g", Name: p.name, Slots: simSlots, Lease: simLease, HandoverTimeout: simHandover, Clock: p.clock,
		Logger: slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "group" || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}})).With("process", p.name),
		newID: func(name string) string {
			life++
			return fmt.Sprintf("%s-%s.%d", name, p.name, life)
		},
	}
	w.logf("%s joins with a clock of speed %.3f", p.name, p.clock.rate)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if p.member, err = Join(ctx, p.simStore, config); err != nil {
		w.logf("%s cannot join: %v", p.name, err)
		return nil
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 2*time.Second)
	p.queue = NewQueue(workqueue.NewTypedRateLimitingQueue(limiter), p.member, QueueConfig[string]{Keys: p.list})
	var running context.Context
	running, p.end = context.WithCancel(context.Background())
	go func() {
		defer close(p.ended)
		if err := worker.Run(running, p.queue, p.handle, worker.Options[string]{Workers: 3, DrainTimeout: time.Second}); err != nil && !p.isDead() {
			w.logf("%s: the workers end: %v", p.name, err)
		}
	}()
	p.sync()
	return p
}

// sync is an informer's first list. From then on the process hears of all changes.
func (p *process) sync() {
	p.w.mu.Lock()
	p.w.processes = append(p.w.processes, p)
	versions := maps.Clone(p.w.mu.versions)
	p.w.mu.Unlock()
	for key, version := range versions {
		p.hear(key, version, 0)
	}
}

// handle checks that no other process handles the key, takes some time, and notes the version that it has handled.
func (p *process) handle(ctx context.Context, key string) error {
	p.stop.wait()
	if p.isDead() {
		return nil
	}
	h := &handling{p, p.member.ID(), ctx}
	p.w.begin(key, h)
	defer p.w.finish(key, h)
	p.cacheMu.Lock()
	version := p.cache[key]
	p.cacheMu.Unlock()
	took := p.random(3 * time.Second)
	if stuck := p.w.stuck() && p.chance(0.02); stuck {
		time.Sleep(10 * took)
	} else if err := wait(ctx, took); err != nil {
		return err
	}
	p.stop.wait()
	if p.isDead() || ctx.Err() != nil {
		return errors.New("ended")
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.mu.handled[key] = max(p.w.mu.handled[key], version)
	return nil
}

func (w *world) stuck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.stuck
}

func (w *world) begin(key string, h *handling) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.calls++
	if h.ctx.Err() != nil {
		return
	}
	for other := range w.mu.active[key] {
		if other.p != h.p && other.active() {
			w.failLocked("%s handles %s while %s handles it", h.p.name, key, other.p.name)
		} else if other.p != h.p && other.lives() {
			w.failLocked("%s handles %s while a handler of %s, which lives, has not returned", h.p.name, key, other.p.name)
		}
	}
	epoch, _ := Epoch(h.ctx)
	if last := w.mu.epochs[key]; epoch < last.epoch || epoch == last.epoch && h.p != last.p {
		// (When the table was deleted, epochs go on from the clock, and those of the simulation are far apart.)
		if !w.mu.deletes {
			w.failLocked("%s handles %s in epoch %d, and %s did in epoch %d", h.p.name, key, epoch, last.p.name, last.epoch)
		}
	}
	w.mu.epochs[key] = lastEpoch{h.p, epoch}
	if w.mu.active[key] == nil {
		w.mu.active[key] = make(map[*handling]bool)
	}
	w.mu.active[key][h] = true
}

func (h *handling) active() bool { return h.ctx.Err() == nil && !h.p.stop.isStopped() && !h.p.isDead() }

// lives reports whether the handler's slots must still be with its member, although its context may have ended: the
// member has neither died nor been taken for dead nor given up to leave.
func (h *handling) lives() bool {
	if h.p.isDead() || h.p.member.ctx.Err() != nil {
		return false
	}
	_, err := h.p.w.store.Get(context.Background(), "g-member-"+h.id)
	return err == nil
}

func (w *world) finish(key string, h *handling) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.active[key], h)
}

// storm lets everything happen.
func (w *world) storm() {
	level := []float64{0, 0.02, 0.1, 0.25}[w.rand.IntN(4)]
	f := faults{fail: level, lost: level, slow: level, watch: level / 2}
	w.mu.Lock()
	w.mu.stuck = w.rand.IntN(2) == 0
	w.mu.deletes = w.rand.IntN(4) == 0
	w.mu.Unlock()
	w.logf("faults %.2f, handlers that do not return: %v", level, w.mu.stuck)
	for range 1 + w.rand.IntN(4) {
		w.join(f)
	}
	for range 10 + w.rand.IntN(20) {
		time.Sleep(time.Duration(w.rand.Int64N(int64(simLease))))
		if w.failed() {
			return
		}
		if len(w.processes) == 0 {
			w.join(f)
			continue
		}
		i := w.rand.IntN(len(w.processes))
		p := w.processes[i]
		d := time.Duration(w.rand.Int64N(int64(2 * simLease)))
		switch action := w.rand.IntN(10); {
		case action < 3 && len(w.processes) < 8:
			w.join(f)
		case action == 3:
			w.remove(i)
			go w.leave(p)
		case action == 4:
			w.logf("%s is killed", p.name)
			w.remove(i)
			p.die()
		case action == 5:
			w.logf("%s is stopped for %v", p.name, d)
			p.stop.stop()
			time.AfterFunc(d, func() { w.logf("%s goes on", p.name); p.stop.resume() })
		case action == 6:
			w.logf("%s is cut off for %v", p.name, d)
			p.cut(d)
		case action == 7 && w.rand.IntN(3) == 0:
			w.logf("the server is away for %v", d)
			for _, p := range w.processes {
				p.cut(d)
			}
		case action == 8 && w.mu.deletes:
			name := "g-table"
			if w.rand.IntN(3) == 0 {
				name = "g-member-" + p.member.ID()
			}
			if r, err := w.store.Get(context.Background(), name); err == nil {
				w.logf("somebody deletes %s", name)
				_ = w.store.Delete(context.Background(), r.Name, r.Version)
			}
		}
	}
}

func (w *world) remove(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.processes = slices.Delete(slices.Clone(w.processes), i, i+1)
}

func (w *world) leave(p *process) {
	w.logf("%s leaves", p.name)
	p.end()
	<-p.ended
	ctx, cancel := context.WithTimeout(context.Background(), 2*simLease)
	defer cancel()
	began := time.Now()
	err := p.member.Leave(ctx)
	w.logf("%s has left after %v: %v", p.name, time.Since(began), err)
	p.die()
}

// die ends the process without any orderly end.
func (p *process) die() {
	p.kill()
	p.member.end()
	p.end()
	p.queue.ShutDown()
	p.stop.resume()
}

// calm ends all faults, and waits until nothing of them is left.
func (w *world) calm() {
	for _, p := range w.processes {
		p.setFaults(faults{})
		p.cut(0)
		p.stop.resume()
	}
	w.mu.Lock()
	w.mu.stuck = false
	w.mu.Unlock()
	for len(w.processes) < 2 {
		w.join(faults{})
	}
	time.Sleep(4 * simLease)
}

// checkQuiet checks what holds without faults: shares, moves, bounds, and that no key was forgotten.
func (w *world) checkQuiet() {
	time.Sleep(20 * time.Second) // Retries, and handovers that were given up, are done.
	w.checkShares("in the end")

	w.logf("a quiet join")
	before := w.holders()
	joined := w.join(faults{})
	w.within(2*time.Second+3*time.Second, func() bool { return w.sharesDiffer() == "" }) // and handlers' time
	w.checkShares("after a join")
	if moves, least := moved(before, w.holders()), simSlots/len(w.processes); moves != least {
		w.failf("%d slots moved after a join, want %d", moves, least)
	}

	w.logf("a quiet leave")
	i := w.rand.IntN(len(w.processes))
	p := w.processes[i]
	w.remove(i)
	p.end()
	<-p.ended
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), simLease)
	defer cancel()
	if err := p.member.Leave(ctx); err != nil {
		w.failf("Leave: %v", err)
	}
	w.within(time.Second-time.Since(began), func() bool { return w.sharesDiffer() == "" })
	p.die()

	w.logf("a quiet kill")
	i = slices.Index(w.processes, joined)
	if i < 0 {
		i = 0
	}
	p = w.processes[i]
	w.remove(i)
	p.die()
	if len(w.processes) == 0 {
		return
	}
	lease := float64(simLease) / (1 - simDrift)
	w.within(time.Duration(lease)+time.Second, func() bool { return w.sharesDiffer() == "" })
}

// within waits until something is so, and fails if that takes too long.
func (w *world) within(limit time.Duration, done func() bool) {
	for began := time.Now(); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > limit {
			w.failf("not after %v: %s", limit, w.sharesDiffer())
			return
		}
	}
}

func (w *world) holders() []string {
	r, err := w.store.Get(context.Background(), "g-table")
	if err != nil {
		w.failf("%v", err)
		return nil
	}
	t, err := decodeTable(r, simSlots)
	if err != nil {
		w.failf("%v", err)
		return nil
	}
	var holders []string
	for _, s := range t.slots {
		holders = append(holders, s.holder)
	}
	return holders
}

func moved(before, after []string) (n int) {
	for i := range before {
		if before[i] != after[i] {
			n++
		}
	}
	return n
}

// sharesDiffer returns what is wrong with the shares, if anything.
func (w *world) sharesDiffer() string {
	var shares []int
	sum := 0
	for _, p := range w.processes {
		n := 0
		for s := range p.member.slots {
			if p.member.state(s) == held {
				n++
			}
		}
		shares = append(shares, n)
		sum += n
	}
	if sum != simSlots || slices.Max(shares)-slices.Min(shares) > 1 {
		return fmt.Sprintf("shares are %v", shares)
	}
	return ""
}

func (w *world) checkShares(when string) {
	if wrong := w.sharesDiffer(); wrong != "" {
		w.failf("%s %s: %s", wrong, when, strings.Join(w.holders(), " "))
	}
}

// checkHandled checks that the newest version of each key was handled.
func (w *world) checkHandled() {
	time.Sleep(30 * time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, version := range w.mu.versions {
		if w.mu.handled[key] != version {
			w.failLocked("%s was handled at version %d, and has version %d", key, w.mu.handled[key], version)
		}
	}
}
