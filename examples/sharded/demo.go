package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
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

// replica is what would be a process. It is the store that its member uses.
type replica struct {
	sharding.Store
	name   string
	member *sharding.Member
	queue  sharding.Queue[int]
	stop   context.CancelFunc // ends the workers
	ended  chan error         // gets what they return

	runs, killed atomic.Bool
	busy         [slots]atomic.Bool
}

// Update fails when the replica was killed: it writes nothing any more.
func (r *replica) Update(ctx context.Context, record sharding.Record) (sharding.Record, error) {
	if r.killed.Load() {
		return record, errors.New("this replica was killed")
	}
	return r.Store.Update(ctx, record)
}

// cluster is the demo.
type cluster struct {
	screen   *screen
	sites    [slots]site
	twice    atomic.Int64 // how often two replicas handled a site at the same time
	replicas []*replica
}

// demo plays the script. It ends with it, or with ctx.
func demo(ctx context.Context, out io.Writer, live bool) (err error) {
	c, store := new(cluster), sharding.Memory()
	for _, name := range []string{"a", "b", "c", "d"} {
		c.replicas = append(c.replicas, &replica{Store: store, name: name, ended: make(chan error, 1)})
	}
	c.screen = &screen{out: out, began: time.Now(), live: live, picture: c.picture}
	changing, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for n := 0; sleep(changing, 10*time.Millisecond) == nil; n++ {
			c.change(n % slots)
			if live && n%10 == 0 {
				c.screen.draw()
			}
		}
	})
	defer func() {
		stop()
		group.Wait()
		// All before the first one leaves: the others would list the keys of its slots.
		for _, r := range c.running() {
			r.stop()
		}
		for _, r := range c.running() {
			err = errors.Join(err, r.end(false))
		}
	}()
	r := c.replicas
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"a, b and c join", func() error {
			return errors.Join(c.join(ctx, r[0]), c.join(ctx, r[1]), c.join(ctx, r[2]))
		}},
		{"d joins", func() error { return c.join(ctx, r[3]) }},
		{"b leaves", func() error { return r[1].end(false) }},
		{fmt.Sprintf("c is killed: its lease of %v must end before others may take over", demoLease),
			func() error { return r[2].end(true) }},
	} {
		if err := c.step(ctx, step.what, step.do); err != nil {
			return err
		}
	}
	stop()
	group.Wait()
	if err := await(ctx, c.allHandled); err != nil {
		return err
	}
	c.screen.say("every site's last version is handled; sites with two replicas at once: %d", c.twice.Load())
	return nil
}

// step does something, and shows what moves until all slots are held in equal shares.
func (c *cluster) step(ctx context.Context, what string, do func() error) error {
	c.screen.say("%s", what)
	before, began := c.holders(), time.Now()
	var without [slots]time.Time // since when each slot has been without a holder; zero if it has one
	moved, longest := 0, time.Duration(0)
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	err := await(ctx, func() bool {
		holders := c.holders()
		moved = 0
		for i, holder := range holders {
			switch {
			case holder != nil:
				without[i] = time.Time{}
			case without[i].IsZero():
				without[i] = time.Now()
			default:
				longest = max(longest, time.Since(without[i]))
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
	c.screen.say("%d slots have moved, after %.2fs; none was without a holder for more than %.2fs", moved,
		time.Since(began).Seconds(), longest.Seconds())
	c.screen.draw()
	return sleep(ctx, 2*time.Second)
}

func (c *cluster) join(ctx context.Context, r *replica) (err error) {
	// The picture shows what happens, and the others have the keys that a replica leaves undone.
	quiet := slog.New(slog.DiscardHandler)
	r.member, err = sharding.Join(ctx, r, sharding.Config{
		Group: "demo", Name: r.name, Slots: slots, Lease: demoLease, Logger: quiet,
	})
	if err != nil {
		return err
	}
	inner := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[int](
		50*time.Millisecond, time.Second))
	r.queue, err = sharding.NewQueue(inner, r.member, sharding.QueueConfig[int]{
		Keys: func(context.Context) (iter.Seq[int], error) {
			var keys []int
			for i := range slots {
				keys = append(keys, i)
			}
			return slices.Values(keys), nil
		},
		// So that site i is the one of slot i. Real programs do without.
		Hash: func(key int) uint64 { return uint64(key) << 58 }, HashVersion: "site",
	})
	if err != nil {
		return err
	}
	var working context.Context
	working, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.runs.Store(true)
	go func() {
		handle := func(ctx context.Context, key int) error { return c.handle(ctx, r, key) }
		r.ended <- worker.Run(working, r.queue, handle, worker.Options[int]{Workers: 8, Logger: quiet})
	}()
	return nil
}

// end ends a replica as SIGTERM would: its handlers return, and then it hands over. Or it ends it as SIGKILL
// would.
func (r *replica) end(kill bool) error {
	r.killed.Store(kill)
	r.stop()
	err := <-r.ended
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if kill {
		cancel() // Leave ends its goroutines. It cannot hand over.
	}
	left := r.member.Leave(ctx)
	r.runs.Store(false)
	if kill {
		return err
	}
	return errors.Join(err, left)
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
	if err := sleep(ctx, 100*time.Millisecond); err != nil || r.killed.Load() {
		return err
	}
	s.handled.Store(version)
	return nil
}

// change changes a site. Every replica hears of it, and only the holder of its slot keeps the key.
func (c *cluster) change(i int) {
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

func (c *cluster) running() (running []*replica) {
	for _, r := range c.replicas {
		if r.runs.Load() {
			running = append(running, r)
		}
	}
	return running
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
		if more := shares[r] - slots/len(running); more != 0 && more != 1 {
			return false
		}
	}
	return shares[nil] == 0
}

// picture returns a line for each replica.
func (c *cluster) picture() (lines []string) {
	holders := c.holders()
	for _, r := range c.running() {
		line := []byte(strings.Repeat(".", slots))
		n := 0
		for i, holder := range holders {
			if holder == r {
				n++
				line[i] = '#'
				if c.screen.live && r.busy[i].Load() {
					line[i] = '*'
				}
			}
		}
		lines = append(lines, fmt.Sprintf("        %s %s %2d", r.name, line, n))
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
	s.show(fmt.Sprintf("%5.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...)), s.live)
}

// draw shows the picture as it is now.
func (s *screen) draw() { s.show("", true) }

func (s *screen) show(text string, picture bool) {
	var lines []string
	if picture {
		lines = s.picture()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
	fmt.Fprint(s.out, text, strings.Join(append(lines, ""), "\n"))
	if s.live {
		s.drawn = len(lines)
	}
}

// await polls until done returns true.
func await(ctx context.Context, done func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("this took longer than 30s"))
	defer cancel()
	for !done() {
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
