package sharding

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// process is a replica.
type process struct {
	*simStore
	w      *world
	clock  *simClock
	lease  time.Duration
	member *Member
	// intruder: it has other Slots, or hashes keys in another way.
	intruder bool
	queues   []simQueue         // of the keys with even and, if its version has that, with odd numbers
	end      context.CancelFunc // of the workers
	ended    chan struct{}
	// logging and listing stop a part of the process.
	logging, listing stopper

	cacheMu  sync.Mutex
	cache    map[string]int // the version of each key that the process has heard of
	children map[string]int // the version of each key whose child it has heard of
}

// simQueue is a queue of any type of keys.
type simQueue struct {
	add      func(path string)
	run      func(context.Context) error
	shutDown func()
}

func asIs(path string) string { return path }

func toName(path string) namespacedName {
	namespace, name, _ := strings.Cut(path, "/")
	return namespacedName{namespace, name}
}

func toPath(n namespacedName) string { return n.Namespace + "/" + n.Name }

func newSimQueue[T comparable](p *process, queue int, hash func(T) uint64, keyOf func(path string) T,
	pathOf func(T) string) simQueue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[T](100*time.Millisecond, 2*time.Second)
	q := mustQueue(workqueue.NewTypedRateLimitingQueue(limiter), p.member, QueueConfig[T]{
		Name: strconv.Itoa(queue), Hash: hash, HashVersion: "other",
		Keys: func(context.Context) (iter.Seq[T], error) {
			paths, err := p.list(queue)
			return func(yield func(T) bool) {
				for _, path := range paths {
					if !yield(keyOf(path)) {
						return
					}
				}
			}, err
		},
	})
	handle := func(ctx context.Context, key T) error { return p.handle(ctx, pathOf(key)) }
	return simQueue{
		add: func(path string) { q.Add(keyOf(path)) }, shutDown: q.ShutDown,
		run: func(ctx context.Context) error {
			return worker.Run(ctx, q, handle, worker.Options[T]{Workers: 2, DrainTimeout: time.Second})
		},
	}
}

type handling struct {
	p   *process
	id  string // of the member
	ctx context.Context
}

type lastEpoch struct {
	*handling
	epoch int64
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
			n := r.IntN(simKeys)
			key := fmt.Sprintf("ns-%d/key-%d", n%7, n)
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
	if i := queueOf(key); i < len(p.queues) {
		p.queues[i].add(key)
	}
}

func queueOf(key string) int { return int(key[len(key)-1]-'0') % 2 }

// list lists the keys of a queue in the cache, or not all of them.
func (p *process) list(queue int) (keys []string, err error) {
	p.stop.wait()
	p.listing.wait()
	p.cacheMu.Lock()
	defer p.cacheMu.Unlock()
	for key := range p.cache {
		if queueOf(key) == queue {
			keys = append(keys, key)
		}
	}
	if p.chance(p.now().fail) {
		return keys[:len(keys)/2], errInjected
	}
	return keys, nil
}

// join starts a process of the group.
func (w *world) join(f faults) *process {
	p := w.start(f, simSlots, nil)
	if p == nil {
		return nil
	}
	w.mu.Lock()
	w.processes = append(w.processes, p)
	w.mu.Unlock()
	p.sync()
	return p
}

// intrude starts a process of another number of slots or another hash, as in a rollout that changes it, and
// kills it later. Nearly always it cannot join, or gets nothing. If it does, because there was no table, it
// has the group for itself, and the others must hold nothing.
func (w *world) intrude(d time.Duration) {
	slots, hash := simSlots/2, (func(string) uint64)(nil)
	if w.rand.IntN(2) == 0 {
		slots, hash = simSlots, func(key string) uint64 { return HashString("other" + key) }
	}
	p := w.start(faults{}, slots, hash)
	if p == nil {
		return
	}
	p.sync()
	w.intruders = append(w.intruders, p)
	time.AfterFunc(d, p.die)
}

// start makes a member with queues and workers. It returns nil if that cannot join.
func (w *world) start(f faults, slots int, hash func(string) uint64) *process {
	w.number++
	stop := &stopper{}
	p := &process{
		w: w, ended: make(chan struct{}), cache: make(map[string]int), children: make(map[string]int),
		simStore: &simStore{Store: w.store, stop: stop, name: fmt.Sprintf("p%d", w.number), log: w.logf,
			failf: w.failf, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 2)), faults: f, server: w.server},
		lease: simLease, intruder: slots != simSlots || hash != nil,
	}
	if w.leases {
		p.lease = []time.Duration{10, 15, 25}[w.rand.IntN(3)] * time.Second
	}
	p.clock = &simClock{
		start: time.Now(), wrong: time.Duration(w.rand.Int64N(int64(time.Hour))),
		rate: 1 + simDrift*[]float64{-1, 0, 1}[w.rand.IntN(3)], stop: stop,
	}
	life := 0
	queues := []string{"0", "1"}
	if w.addsQueue && w.rand.IntN(2) == 0 {
		queues = queues[:1]
	}
	config := Config{
		Group: "g", Name: p.name, Queues: queues, Slots: slots, Lease: p.lease, HandoverTimeout: simHandover,
		Clock: p.clock,
		Logger: slog.New(stoppable{slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string,
			a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "group" || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}}), &p.logging}).With("process", p.name),
		newID: func(name string) string {
			life++
			return fmt.Sprintf("%s-%s.%d", name, p.name, life)
		},
	}
	w.logf("%s joins with a clock of speed %.3f and %d slots, an intruder: %v, queues: %d", p.name, p.clock.rate,
		slots, p.intruder, len(queues))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if p.member, err = Join(ctx, p.simStore, config); err != nil {
		w.logf("%s cannot join: %v", p.name, err)
		return nil
	}
	late := w.rand.IntN(4) == 0 // It makes its queues later, and must hold nothing before.
	var running context.Context
	running, p.end = context.WithCancel(context.Background())
	var workers sync.WaitGroup
	names := w.rand.IntN(2) == 0 // A version of the program whose keys are no strings.
	for i := range config.Queues {
		if late {
			time.Sleep(p.random(3 * time.Second))
			if p.member.Stats().Held > 0 {
				w.failf("%s holds slots with %d of its queues", p.name, i)
			}
		}
		if names && hash == nil {
			p.queues = append(p.queues, newSimQueue(p, i, nil, toName, toPath))
		} else {
			p.queues = append(p.queues, newSimQueue(p, i, hash, asIs, asIs))
		}
		q := p.queues[i]
		workers.Go(func() {
			if err := q.run(running); err != nil && !p.isDead() {
				w.logf("%s: the workers end: %v", p.name, err)
			}
		})
	}
	go func() {
		workers.Wait()
		close(p.ended)
	}()
	return p
}

// sync is an informer's first list.
func (p *process) sync() {
	p.w.mu.Lock()
	versions := maps.Clone(p.w.mu.versions)
	p.w.mu.Unlock()
	for key, version := range versions {
		p.hear(key, version, 0)
	}
}

// handle checks that no other process handles the key, takes some time, and notes the version that it has
// handled.
func (p *process) handle(ctx context.Context, key string) error {
	for p.stop.wait(); p.stop.isStopped() && !p.isDead(); p.stop.wait() {
		time.Sleep(time.Millisecond)
	}
	if p.isDead() {
		return nil
	}
	h := &handling{p, p.member.ID(), ctx}
	p.w.begin(key, h)
	defer p.w.finish(key, h)
	p.cacheMu.Lock()
	version, shown := p.cache[key], p.children[key]
	p.cacheMu.Unlock()
	exists := p.w.child(key)
	took := p.random(3 * time.Second)
	if p.w.stuck() && p.chance(0.02) {
		time.Sleep(10 * took)
		for p.chance(0.98) && p.w.stuck() { // Some never return.
			time.Sleep(time.Second)
		}
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
	if version > shown && !p.stop.isStopped() {
		p.w.createLocked(key, version, exists)
	}
	return nil
}

// child returns the newest version of key that has a child.
func (w *world) child(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.children[key]
}

// createLocked creates the child of a version of key, which a handler has not seen in its cache. Nevertheless
// it may be there. Then a read past the cache, when the handler began, must have shown it: see "Caches after
// a handover" in docs/sharding.md.
func (w *world) createLocked(key string, version, exists int) {
	if w.mu.children[key] >= version {
		w.mu.createdTwice++
		if exists < version && !w.mu.edited {
			w.failLocked("version %d of %s has a child that a read past the cache did not show", version, key)
		}
		return
	}
	w.mu.children[key] = version
	for _, p := range w.processes {
		time.AfterFunc(p.random(3*time.Second), func() {
			p.cacheMu.Lock()
			defer p.cacheMu.Unlock()
			p.children[key] = max(p.children[key], version)
		})
	}
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
		} else if other.p.intruder == h.p.intruder && // Of intruders only contexts count.
			other.p != h.p && !w.mu.edited && other.lives() {
			w.failLocked("%s handles %s while a handler of %s, which lives, has not returned", h.p.name, key,
				other.p.name)
		}
	}
	epoch, _ := Fence(h.ctx)
	if last := w.mu.epochs[key]; epoch < last.epoch || epoch == last.epoch && epoch > 0 && h.p != last.p {
		if !w.mu.edited {
			w.failLocked("%s handles %s in epoch %d, and %s did in epoch %d", h.p.name, key, epoch, last.p.name,
				last.epoch)
		}
	}
	w.mu.epochs[key] = lastEpoch{h, epoch}
	if w.mu.active[key] == nil {
		w.mu.active[key] = make(map[*handling]bool)
	}
	w.mu.active[key][h] = true
}

func (h *handling) active() bool { return h.ctx.Err() == nil && !h.p.stop.isStopped() && !h.p.isDead() }

// lives reports whether the handler's slots must still be with its member, although its context may have
// ended: the member has neither died nor been taken for dead nor given up to leave.
func (h *handling) lives() bool {
	if h.p.isDead() || h.p.member.ctx.Err() != nil || h.p.member.ID() != h.id {
		return false
	}
	name := "g-member-" + h.id
	r, err := h.p.w.store.Get(context.Background(), name)
	if err != nil {
		return false
	}
	d, err := decodeMember(r)
	return err == nil && !d.Dead
}

func (w *world) finish(key string, h *handling) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.active[key], h)
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
	for _, q := range p.queues {
		q.shutDown()
	}
	p.stop.resume()
	p.logging.resume()
	p.listing.resume()
}
