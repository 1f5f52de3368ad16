package sharding

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
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
)

// The simulation runs members on a store in virtual time. Each history is random: processes join, leave, are
// killed and stopped; their clocks run too fast or too slow by all that the margin allows; calls are slow,
// fail, or succeed and report an error; the server refuses writes of all, of the table, or of the records of
// others; watches stall, repeat or end; machines are suspended; loggers block and listings hang; leases
// differ; handlers do not return, and create what their caches do not show; processes of other Slots join;
// somebody damages the table.
// Then all faults end, and the bounds of quiet times are checked as well. It cannot express wall clocks that
// are set and backups that are restored, which have tests of their own.
//
//	SHARDING_HISTORIES=100000 go test -run '^TestSimulation$' -timeout 24h ./sharding

var simSeed = flag.Uint64("sharding.seed", 0,
	"the seed of the only history to simulate or, with SHARDING_HISTORIES, of the first one")

const (
	simLease    = 15 * time.Second
	simHandover = 4 * time.Second
	simSlots    = 16
	simKeys     = 40
	// simDrift is how much a clock may be too fast or too slow with the default margin of a sixth:
	// (1+d)/(1-d) < 6/5. While chrony corrects a clock, it makes it wrong by up to 0.083.
	simDrift = 0.09
)

func TestSimulation(t *testing.T) {
	n, first := 100, uint64(1) // Always the same ones.
	if v := os.Getenv("SHARDING_HISTORIES"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
		first = uint64(time.Now().UnixNano())
	} else if *simSeed != 0 {
		n = 1
	}
	first = cmp.Or(*simSeed, first)
	var next, histories, handled, twice atomic.Int64
	var failed atomic.Bool
	t.Run("histories", func(t *testing.T) {
		for p := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(p), func(t *testing.T) {
				t.Parallel()
				defer func() { failed.Store(failed.Load() || t.Failed()) }() // A history that fails ends this goroutine.
				for i := next.Add(1); i <= int64(n) && !failed.Load() && timeIsLeft(t); i = next.Add(1) {
					calls, creates := simulate(t, first+uint64(i)-1)
					handled.Add(int64(calls))
					twice.Add(int64(creates))
					if done := histories.Add(1); done%500 == 0 {
						t.Logf("%d histories", done)
					}
				}
			})
		}
	})
	t.Logf("%d histories, %d handlers; %d would have created a second child by what their cache showed",
		histories.Load(), handled.Load(), twice.Load())
}

// timeIsLeft reports whether another history can end before the test's timeout. On a slow machine fewer are
// simulated.
func timeIsLeft(t *testing.T) bool {
	deadline, ok := t.Deadline()
	return !ok || time.Until(deadline) > 2*time.Minute
}

func simulate(t *testing.T, seed uint64) (handled, twice int) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		w := &world{t: t, server: server, store: Leases(server, "ns"), rand: rand.New(rand.NewPCG(seed, 0)),
			began: time.Now()}
		w.mu.active = make(map[string]map[*handling]bool)
		w.mu.versions = make(map[string]int)
		w.mu.handled, w.mu.children = make(map[string]int), make(map[string]int)
		w.mu.epochs = make(map[string]lastEpoch)
		w.run()
		handled, twice = w.mu.calls, w.mu.createdTwice
		if w.mu.failed {
			t.Errorf("seed %d:\n%s\nrepeat: go test -run Simulation -sharding.seed %d", seed,
				strings.Join(w.mu.trace, "\n"), seed)
		}
	})
	return handled, twice
}

// world is a history.
type world struct {
	t      *testing.T
	server *simServer
	store  Store
	rand   *rand.Rand
	began  time.Time
	leases bool // processes have different ones
	// addsQueue: a rolling update adds or removes a queue, so some processes have one queue less.
	addsQueue bool

	processes []*process // those that are not dead
	intruders []*process // those of other Slots
	number    int

	mu struct {
		sync.Mutex
		trace    []string
		failed   bool
		active   map[string]map[*handling]bool
		versions map[string]int // the newest of each key
		handled  map[string]int // the newest that a handler has finished
		calls    int
		children map[string]int // the newest version of each key that has a child
		// createdTwice counts handlers that have looked into the cache alone, and would have created a second
		// child.
		createdTwice int
		stuck        bool // handlers may ignore their contexts
		epochs       map[string]lastEpoch
		edited       bool // somebody has deleted or damaged a table
	}
}

func (w *world) logf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logLocked(format, args...)
}

func (w *world) logLocked(format string, args ...any) {
	w.mu.trace = append(w.mu.trace, fmt.Sprintf("%9.3fs ", time.Since(w.began).Seconds())+
		fmt.Sprintf(format, args...))
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
	stopChanges() // A later change of a key would hide that an earlier one was lost.
	w.logf("all faults end")
	w.calm()
	w.checkHandled()
	stopChanges = w.changeKeys()
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

// storm lets everything happen.
func (w *world) storm() {
	level := []float64{0, 0.02, 0.1, 0.25}[w.rand.IntN(4)]
	f := faults{fail: level, lost: level, slow: level, watch: level / 2, limit: w.rand.IntN(8) == 0}
	w.leases, w.addsQueue = w.rand.IntN(4) == 0, w.rand.IntN(4) == 0
	w.mu.Lock()
	w.mu.stuck = w.rand.IntN(2) == 0
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
		switch action := w.rand.IntN(14); {
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
			p.stop.stop(func() {})
			time.AfterFunc(d, func() { w.logf("%s continues", p.name); p.stop.resume() })
		case action == 6:
			w.logf("%s is cut off for %v", p.name, d)
			p.cut(d)
		case action == 7 && w.rand.IntN(3) == 0:
			w.logf("the server is away for %v", d)
			for _, p := range w.processes {
				p.cut(d)
			}
		case action == 8:
			w.logf("the machine of %s is suspended for %v", p.name, d)
			p.clock.suspend(d)
		case action == 9:
			err, what := []error{errInjected, ErrRefused}[w.rand.IntN(2)], refusable(w.rand.IntN(3))
			w.logf("what %s writes fails for %v: %v, %s", p.name, d, err,
				[]string{"all", "the table", "records of others"}[what])
			p.refuse(d, err, what)
		case action == 10:
			w.logf("the logger of %s blocks for %v", p.name, d)
			p.logging.stop(func() {})
			time.AfterFunc(d, p.logging.resume)
		case action == 11:
			w.logf("listings of %s hang for %v", p.name, d)
			p.listing.stop(func() {})
			time.AfterFunc(d, p.listing.resume)
		case action == 12:
			w.intrude(d)
		case action == 13 && w.rand.IntN(8) == 0: // Seldom: noteEdited makes the history less strict.
			w.noteEdited()
			w.logf("somebody damages the table: %t", setData(w.server, "g-table", "{"))
		}
	}
}

// calm ends all faults, and waits until nothing of them is left.
func (w *world) calm() {
	for _, p := range w.processes {
		p.setFaults(faults{})
		p.cut(0)
		p.refuse(0, nil, allRecords)
		p.stop.resume()
		p.logging.resume()
		p.listing.resume()
	}
	for _, p := range w.intruders {
		p.die()
	}
	w.deleteSpoiled()
	w.mu.Lock()
	w.mu.stuck = false
	w.mu.Unlock()
	w.addsQueue = false
	for i, p := range slices.Backward(w.processes) {
		if len(p.queues) == 1 { // The rolling update ends.
			w.remove(i)
			go w.leave(p)
		}
	}
	for len(w.processes) < 2 {
		w.join(faults{})
	}
	time.Sleep(2 * simLease)
	w.deleteSpoiled() // Others may have taken a dead intruder for alive, and given slots to it.
	time.Sleep(4 * simLease)
}

// deleteSpoiled deletes a table of other slots or hashes. Members replace a damaged one themselves.
func (w *world) deleteSpoiled() {
	if r, err := w.store.Get(context.Background(), "g-table"); err == nil {
		own := map[string]string{"0": "string", "1": "string"}
		if t, err := decodeTable(r, simSlots); errors.Is(err, ErrIncompatible) ||
			err == nil && len(contradictions(t.hashes, own)) > 0 {
			w.logf("somebody deletes the spoiled table: %v", w.store.Delete(context.Background(), r.Name, r.Version))
			w.noteEdited() // It may be that of processes of other Slots, which no record of a living member shows.
		}
	}
}

// noteEdited notes that somebody takes the table away. Then what it gave to a member does not count any more,
// and epochs may go back.
func (w *world) noteEdited() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.edited = true
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
	lease := float64(p.lease) / (1 - simDrift)
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
			if p.member.state(s) == serving {
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
