package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/sharding"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	slots     = 64
	demoLease = 3 * time.Second // It is short, so that one need not wait for long after the kill.
)

// site is what the demo's replicas look after. Each slot has one.
type site struct {
	changed, handled atomic.Int64 // versions
	handlers         atomic.Int32
}

// replica is what would be a process.
type replica struct {
	name   string
	store  breakable
	member *sharding.Member
	queue  sharding.Queue[int]
	stop   context.CancelFunc // ends the workers
	ended  chan error         // gets what they return
	killed chan struct{}      // closed when the replica is killed
	busy   [slots]atomic.Bool
}

// breakable is a store that a killed replica cannot write to any more.
type breakable struct {
	sharding.Store
	broken atomic.Bool
}

func (b *breakable) Update(ctx context.Context, r sharding.Record) (sharding.Record, error) {
	if b.broken.Load() {
		return r, errors.New("this replica was killed")
	}
	return b.Store.Update(ctx, r)
}

// cluster is the demo.
type cluster struct {
	screen *screen
	store  sharding.Store
	sites  [slots]site
	twice  atomic.Int64 // how often two replicas handled a site at the same time

	mu       sync.Mutex // guards what follows
	replicas []*replica // those that run
}

// demo plays the script. It ends with it, or with ctx.
func demo(ctx context.Context, out io.Writer, live bool) (err error) {
	c := &cluster{store: sharding.Memory()}
	c.screen = &screen{out: out, began: time.Now(), live: live, picture: c.picture}
	sources, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { every(sources, 10*time.Millisecond, c.change) })
	if live {
		group.Go(func() { every(sources, 100*time.Millisecond, func(int) { c.screen.draw() }) })
	}
	defer func() {
		stop()
		group.Wait()
		for _, r := range c.running() {
			err = errors.Join(err, c.leave(r))
		}
	}()
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"a, b and c join", func() error { return errors.Join(c.join(ctx, "a"), c.join(ctx, "b"), c.join(ctx, "c")) }},
		{"d joins", func() error { return c.join(ctx, "d") }},
		{"b leaves", func() error { return c.leave(c.replicaNamed("b")) }},
		{fmt.Sprintf("c is killed: its lease of %v must end before others may take over", demoLease), func() error { return c.kill("c") }},
	} {
		if err := c.step(ctx, step.what, step.do); err != nil {
			return err
		}
	}
	stop()
	group.Wait()
	if err := c.await(ctx, c.allHandled); err != nil {
		return err
	}
	c.screen.say("every site's last version is handled; sites with two replicas at once: %d", c.twice.Load())
	return nil
}

// step does something, and shows what moves until all slots are held in equal shares.
func (c *cluster) step(ctx context.Context, what string, do func() error) error {
	c.screen.say("%s", what)
	before, began := c.holders(), time.Now()
	var heldAt [slots]time.Time // when each slot was seen to have a holder last
	for i := range heldAt {
		heldAt[i] = began
	}
	moved, longest := 0, time.Duration(0)
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	err := c.await(ctx, func() bool {
		holders := c.holders()
		moved = 0
		for i, holder := range holders {
			longest = max(longest, time.Since(heldAt[i]))
			if holder != nil {
				heldAt[i] = time.Now()
			}
			if holder != before[i] {
				moved++
			}
		}
		return len(ended) > 0 && c.isEven(holders)
	})
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	c.screen.say("%d slots have moved, after %.2fs; none was without a holder for more than %.2fs", moved, time.Since(began).Seconds(), longest.Seconds())
	c.screen.draw()
	return sleep(ctx, 2*time.Second)
}

// await polls until done returns true.
func (c *cluster) await(ctx context.Context, done func() bool) error {
	for range 6000 {
		if err := sleep(ctx, 5*time.Millisecond); err != nil || done() {
			return err
		}
	}
	return errors.New("this took longer than 30s")
}

func (c *cluster) join(ctx context.Context, name string) (err error) {
	r := &replica{name: name, ended: make(chan error, 1), killed: make(chan struct{})}
	r.store.Store = c.store
	r.member, err = sharding.Join(ctx, &r.store, sharding.Config{Group: "demo", Name: name, Slots: slots, Lease: demoLease})
	if err != nil {
		return err
	}
	inner := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[int](50*time.Millisecond, time.Second))
	r.queue = sharding.NewQueue(inner, r.member, sharding.QueueConfig[int]{
		Keys: func(context.Context) (keys []int, err error) {
			for i := range slots {
				keys = append(keys, i)
			}
			return keys, nil
		},
		// So that site i is the one of slot i. Real programs do without.
		Hash: func(key int) uint64 { return uint64(key) << 58 },
	})
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	go func() {
		r.ended <- worker.Run(working, r.queue, func(ctx context.Context, key int) error { return c.handle(ctx, r, key) }, worker.Options[int]{Workers: 8})
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replicas = append(c.replicas, r)
	return nil
}

// leave ends a replica as SIGTERM would: its handlers return, and then it hands over.
func (c *cluster) leave(r *replica) error {
	r.stop()
	err := <-r.ended
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(err, r.member.Leave(ctx))
	c.remove(r)
	return err
}

// kill ends a replica as SIGKILL would: its handlers go no further, and it writes nothing any more.
func (c *cluster) kill(name string) error {
	r := c.replicaNamed(name)
	r.store.broken.Store(true)
	close(r.killed)
	r.stop()
	err := <-r.ended
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.member.Leave(ctx) // Ends its goroutines. It cannot hand over.
	c.remove(r)
	return err
}

func (c *cluster) handle(ctx context.Context, r *replica, i int) error {
	s := &c.sites[i]
	if s.handlers.Add(1) > 1 {
		c.twice.Add(1)
	}
	defer s.handlers.Add(-1)
	r.busy[i].Store(true)
	defer r.busy[i].Store(false)
	version := s.changed.Load()
	select {
	case <-time.After(100 * time.Millisecond):
		s.handled.Store(version)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.killed:
		return nil
	}
}

// change changes site n. Every replica hears of it, and only the one that holds its slot keeps the key.
func (c *cluster) change(n int) {
	i := n % slots
	c.sites[i].changed.Add(1)
	for _, r := range c.running() {
		r.queue.Add(i)
	}
}

func (c *cluster) allHandled() bool {
	for i := range c.sites {
		if c.sites[i].handled.Load() != c.sites[i].changed.Load() {
			return false
		}
	}
	return true
}

func (c *cluster) running() []*replica {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*replica(nil), c.replicas...)
}

func (c *cluster) replicaNamed(name string) *replica {
	for _, r := range c.running() {
		if r.name == name {
			return r
		}
	}
	return nil
}

func (c *cluster) remove(r *replica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.replicas {
		if c.replicas[i] == r {
			c.replicas = append(c.replicas[:i], c.replicas[i+1:]...)
			return
		}
	}
}

// holders returns who holds each slot and has workers, or nil.
func (c *cluster) holders() (holders [slots]*replica) {
	for _, r := range c.running() {
		for i := range holders {
			if !r.queue.ShuttingDown() && r.queue.Holds(i) {
				holders[i] = r
			}
		}
	}
	return holders
}

// isEven reports whether all slots are held, in shares that differ by at most one.
func (c *cluster) isEven(holders [slots]*replica) bool {
	shares := make(map[*replica]int)
	for _, r := range holders {
		shares[r]++
	}
	running := c.running()
	for _, r := range running {
		if n := shares[r]; n < slots/len(running) || n > (slots+len(running)-1)/len(running) {
			return false
		}
	}
	return shares[nil] == 0
}

// picture returns a line for each replica.
func (c *cluster) picture() (lines []string) {
	holders := c.holders()
	for _, r := range c.running() {
		var b strings.Builder
		n := 0
		for i, holder := range holders {
			switch {
			case holder == r && r.busy[i].Load() && c.screen.live:
				b.WriteByte('*')
			case holder == r:
				b.WriteByte('#')
			default:
				b.WriteByte('.')
			}
			if holder == r {
				n++
			}
		}
		lines = append(lines, fmt.Sprintf("        %s %s %2d", r.name, b.String(), n))
	}
	return lines
}

// screen prints lines with the time. On a terminal, it keeps the picture below them.
type screen struct {
	began   time.Time
	live    bool
	picture func() []string

	mu    sync.Mutex // guards what follows
	out   io.Writer
	drawn int // lines of the picture on the terminal
}

func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	s.clearLocked()
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
	s.mu.Unlock()
	if s.live {
		s.draw()
	}
}

// draw shows the picture as it is now.
func (s *screen) draw() {
	lines := s.picture()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked()
	fmt.Fprint(s.out, strings.Join(append(lines, ""), "\n"))
	if s.live {
		s.drawn = len(lines)
	}
}

func (s *screen) clearLocked() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

func every(ctx context.Context, d time.Duration, f func(n int)) {
	for n := 0; sleep(ctx, d) == nil; n++ {
		f(n)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
