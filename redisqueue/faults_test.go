package redisqueue

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/worker"
	"github.com/redis/go-redis/v9"
)

const childAddr = "REDISQUEUE_TEST_CHILD"

// TestChild is a worker process of the tests below. It says what it does, and finishes a key when it reads a line.
func TestChild(t *testing.T) {
	addr := os.Getenv(childAddr)
	if addr == "" {
		t.Skip("not a test of its own: other tests run it as a process")
	}
	q, err := New(context.Background(), redis.NewClient(&redis.Options{Addr: addr}), Config[string]{Name: "test", Lease: 2 * time.Second})
	must(t, err)
	lines := bufio.NewReader(os.Stdin)
	_ = worker.Run(context.Background(), q, func(ctx context.Context, key string) error {
		fence, _ := Fence(ctx)
		fmt.Println("got", key, fence)
		context.AfterFunc(ctx, func() {
			if errors.Is(context.Cause(ctx), ErrLeaseLost) {
				fmt.Println("lost", key)
			}
		})
		if _, err := lines.ReadString('\n'); err != nil {
			os.Exit(0)
		}
		go func() { // Done follows when this has returned.
			for end := time.Now().Add(time.Minute); q.Info().Held > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			}
			fmt.Println("lost dones", q.Info().LostDones)
		}()
		return nil
	}, worker.Options[string]{Workers: 1})
}

// child is a process that runs a test.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// startChild runs a test of this package as a process, with that variable in its environment.
func startChild(t *testing.T, test, variable string) *child {
	c := &child{t: t, cmd: exec.Command(os.Args[0], "-test.run", test), lines: make(chan string, 100)}
	c.cmd.Env = append(os.Environ(), variable)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.in, _ = c.cmd.StdinPipe()
	out, _ := c.cmd.StdoutPipe()
	must(t, c.cmd.Start())
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
		close(c.lines)
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

// says waits for a line that begins so, and returns its rest.
func (c *child) says(what string) string {
	c.t.Helper()
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				c.t.Fatalf("the worker process has ended and not said %q", what)
			}
			if rest, ok := strings.CutPrefix(line, what); ok {
				return strings.TrimSpace(rest)
			}
		case <-time.After(time.Minute):
			c.t.Fatalf("the worker process does not say %q", what)
		}
	}
}

// The key of a process that is killed comes again when its lease ends, with a higher fence.
func TestWorkerKilled(t *testing.T) {
	s := startServer(t)
	c := startChild(t, "^TestChild$", childAddr+"="+s.addr)
	q := newTestQueue(t, s.client(), Config[string]{Lease: 2 * time.Second})
	q.Add("x")
	var first int64
	_, _ = fmt.Sscan(c.says("got x"), &first)
	_ = c.cmd.Process.Kill()
	key, err := q.GetContext(within(t, 10*time.Second))
	if err != nil || key != "x" {
		t.Fatalf("GetContext() = %q, %v", key, err)
	}
	ctx, release := q.Lease(context.Background(), "x")
	defer release()
	// Fences of hand-outs that are seconds apart are microseconds of the server's clock.
	if fence, ok := Fence(ctx); !ok || time.Duration(fence-first)*time.Microsecond < 2*time.Second {
		t.Errorf("the key was handed out under the fence %d, and again under %d before its lease of 2 s had ended", first, fence)
	}
	q.Done("x")
}

// A process that is stopped for longer than its lease loses its key, learns it when it goes on, and does not disturb the new
// holder.
func TestWorkerStopped(t *testing.T) {
	s := startServer(t)
	c := startChild(t, "^TestChild$", childAddr+"="+s.addr)
	q := newTestQueue(t, s.client(), Config[string]{Lease: time.Minute}) // No pause of the machine ends its lease.
	q.Add("x")
	c.says("got x")
	_ = c.cmd.Process.Signal(syscall.SIGSTOP)
	key, err := q.GetContext(within(t, 20*time.Second))
	if err != nil || key != "x" {
		t.Fatalf("GetContext() = %q, %v", key, err)
	}
	_ = c.cmd.Process.Signal(syscall.SIGCONT)
	c.says("lost x")
	fmt.Fprintln(c.in) // Its handler returns, and the worker calls Done.
	if n := c.says("lost dones"); n != "1" {
		t.Errorf("the process counts %s lost Dones, want 1", n)
	}
	if !q.holdsForTest("x") {
		t.Errorf("the new holder was disturbed")
	}
	if st := freshStats(t, q); st.Processing != 1 || st.Queued != 0 {
		t.Errorf("Stats() = %+v, want x to be processed", st)
	}
	q.Done("x")
	if st := freshStats(t, q); st.Processing+st.Queued != 0 || q.Info().LostDones != 0 {
		t.Errorf("Stats() = %+v, %+v, want no keys", st, q.Info())
	}
}

// A server that is killed and restarted from its append-only file loses nothing that was confirmed, and holders keep
// their keys.
func TestServerKilled(t *testing.T) {
	s := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	var logged messages
	var errs atomic.Int64
	q := newTestQueue(t, s.client(), Config[string]{Logger: slog.New(&logged), OnError: func(error) { errs.Add(1) }})
	addAndGet(t, q, "held")
	keys := keysNamed("k", 1000)
	for _, key := range keys {
		q.Add(key)
	}
	q.AddAfter("later", 2*time.Second)
	q.AddRateLimited("failing")
	flush(t, q)
	s.kill()
	q.Add("while it is down")
	q.Done("held")
	eventually(t, 20*time.Second, func() error {
		if q.Info().Outage == nil {
			return fmt.Errorf("Info() = %+v, want an outage", q.Info())
		}
		return nil
	})
	s.start()
	left := map[string]bool{"later": true, "failing": true, "while it is down": true}
	for _, key := range keys {
		left[key] = true
	}
	for len(left) > 0 {
		key, err := q.GetContext(within(t, 20*time.Second))
		if err != nil || !left[key] {
			t.Fatalf("GetContext() = %q, %v; left: %d", key, err, len(left))
		}
		delete(left, key)
		q.Done(key)
	}
	if st := freshStats(t, q); st.Processing+st.Queued+st.Waiting != 0 || q.Info().LostLeases+q.Info().LostDones != 0 {
		t.Errorf("Stats() = %+v, %+v, want no keys and no lost lease", st, q.Info())
	}
	if errs.Load() == 0 || q.Info().Outage != nil {
		t.Errorf("OnError was called %d times; %+v", errs.Load(), q.Info())
	}
	logged.check(t, "The queue's server fails", "The queue's server answers again")
}

// Everything is executed once, in order, although connections are cut at random bytes and the scripts are flushed: failures
// that are counted once too often, or once too little, show.
func TestRepliesLost(t *testing.T) {
	s := startServer(t)
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	var mu sync.Mutex
	var cuts atomic.Int64
	lengths := rand.New(rand.NewPCG(rand.Uint64(), 1)) // guarded by mu
	p := startProxy(t, s.addr, func() int {
		mu.Lock()
		defer mu.Unlock()
		cuts.Add(1)
		return 200 + lengths.IntN(1500)
	})
	client := redis.NewClient(&redis.Options{Addr: p.addr(), MaxRetries: 2})
	t.Cleanup(func() { client.Close() })
	direct := s.client()
	config := Config[string]{}
	config.Backoff.Base, config.Backoff.Max = time.Hour, time.Hour
	flaky := newTestQueue(t, client, config)
	want := make(map[string]int)
	keys := keysNamed("k", 7)
	for i := range 3000 {
		key := keys[random.IntN(len(keys))]
		flaky.AddRateLimited(key)
		want[key]++
		if i%300 == 0 {
			direct.ScriptFlush(context.Background())
		}
		if i%10 == 0 {
			flush(t, flaky)
		}
	}
	flush(t, flaky)
	for _, key := range keys {
		if n := requeues(t, flaky, key); n != want[key] {
			t.Errorf("%s has failed %d times, want %d", key, n, want[key])
		}
	}
	if cuts.Load() < 15 {
		t.Errorf("only %d connections were cut", cuts.Load())
	}
	// The same for keys that are handed out: each comes exactly once.
	for i := range 2000 {
		flaky.Add(fmt.Sprint(i))
	}
	for i := range 2000 {
		mustGet(t, flaky, fmt.Sprint(i))
		flaky.Done(fmt.Sprint(i))
	}
	if st := freshStats(t, flaky); st.Queued+st.Processing != 0 {
		t.Errorf("Stats() = %+v, want no keys that are queued or processed", st)
	}
	if info := flaky.Info(); info.LostDones+info.LostLeases != 0 {
		t.Errorf("%+v", info)
	}
}

// A server that hangs for longer than a lease: holders lose their keys when the lease ends by their own clock, and the
// keys come again.
func TestServerHangs(t *testing.T) {
	s := startServer(t)
	var errs atomic.Int64
	const lease = 2 * time.Second
	q := newTestQueue(t, s.client(), Config[string]{Lease: lease, OnError: func(error) { errs.Add(1) }})
	addAndGet(t, q, "x")
	ctx, release := q.Lease(context.Background(), "x")
	defer release()
	s.signal(syscall.SIGSTOP)
	q.Add("y")
	// Polls are counted, and not time, so that a pause of the machine counts as one poll.
	const poll = 5 * time.Millisecond
	for polls := 0; ctx.Err() == nil; polls++ {
		if polls > int((lease+500*time.Millisecond)/poll) {
			t.Fatalf("the handler's context has not ended although the lease of %v has", lease)
		}
		time.Sleep(poll)
	}
	if err := context.Cause(ctx); err != ErrLeaseLost {
		t.Errorf("the handler's context ended because of %v", err)
	}
	time.Sleep(time.Second)
	s.signal(syscall.SIGCONT)
	// x was given back, but this process does not hand it out while its first handler has not ended.
	mustGet(t, q, "y")
	short, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if key, err := q.GetContext(short); err == nil {
		t.Errorf("got %q, whose first handler has not ended", key)
	}
	q.Done("x")
	mustGet(t, q, "x")
	q.Done("x")
	q.Done("y")
	wantNoKeys(t, q)
	if info := q.Info(); info.LostLeases != 1 || info.LostDones != 1 || errs.Load() == 0 {
		t.Errorf("%+v, OnError called %d times", info, errs.Load())
	}
}

// When the server's memory is full, adds wait in the buffer, and all else goes on.
func TestServerFull(t *testing.T) {
	s := startServer(t)
	client := s.client()
	ctx := context.Background()
	adding, cancel := context.WithCancel(ctx)
	defer cancel()
	q := newTestQueue(t, client, Config[string]{OnError: func(error) { cancel() }})
	for _, key := range []string{"a", "b", "c"} {
		q.Add(key)
	}
	mustGet(t, q, "a")
	s.fill()
	err := q.AddContext(adding, "d") // until the server has refused it
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("AddContext() of a full server: %v", err)
	}
	q.Add("a") // It is held.
	q.Done("a")
	mustGet(t, q, "b")
	mustGet(t, q, "c")
	q.Done("b")
	q.Done("c")
	wantNoKeys(t, q)
	if q.Info().Unsent == 0 {
		t.Errorf("%+v, want adds that wait", q.Info())
	}
	s.limitMemory("0")
	mustGet(t, q, "d")
	mustGet(t, q, "a")
	q.Done("a")
	q.Done("d")
	eventually(t, 5*time.Second, func() error {
		if info := q.Info(); info.Unsent != 0 || info.Outage != nil {
			return fmt.Errorf("%+v", info)
		}
		return nil
	})
}

func TestEvictionIsRefused(t *testing.T) {
	s := startServer(t, "--maxmemory-policy", "allkeys-lru")
	if _, err := New(context.Background(), s.client(), Config[string]{Name: "q"}); !errors.Is(err, ErrEviction) {
		t.Errorf("New() = %v, want ErrEviction", err)
	}
	if _, err := New(context.Background(), clientOf(t, freeAddr(t)), Config[string]{Name: "q"}); err == nil {
		t.Errorf("New() without a server returns no error")
	}
}

// Leases outlive a server's clock that is set forward and back. Delays follow it.
func TestServerClockJumps(t *testing.T) {
	s := startServer(t)
	client := s.client()
	ctx := context.Background()
	config := Config[string]{Lease: 15 * time.Second}
	must(t, config.complete(0))
	newShifted := func() *Queue[string] {
		q := newQueue(client, config, shiftedScript())
		t.Cleanup(func() { endQueue(t, q) })
		return q
	}
	a, b := newShifted(), newShifted()
	addAndGet(t, a, "x")
	a.AddAfter("later", time.Minute)
	flush(t, a)
	var last int64
	for _, shift := range []int{3600, 0, -3600, 0, 86400 * 365} {
		freshStats(t, a) // It renews the lease. A jump takes half of that.
		shiftClock(t, client, time.Duration(shift)*time.Second)
		patience := 1200 * time.Millisecond // longer than the poll interval
		if shift == 3600 {
			patience = 5 * time.Second
		}
		got, err := b.GetContext(within(t, patience))
		if shift == 3600 {
			if got != "later" {
				t.Errorf("an hour later, GetContext() = %q, %v, want the key that was due in a minute", got, err)
			}
		} else if err == nil {
			t.Fatalf("clock shifted by %d s: got %q", shift, got)
		}
		if err == nil {
			leased, release := b.Lease(ctx, got)
			fence, _ := Fence(leased)
			if fence <= last {
				t.Errorf("clock shifted by %d s: fence %d after %d", shift, fence, last)
			}
			last = fence
			release()
			b.Done(got)
		}
		if !a.holdsForTest("x") {
			t.Fatalf("clock shifted by %d s: the lease is lost", shift)
		}
	}
	a.Done("x")
	for range 3 {
		addAndGet(t, b, "y")
		leased, release := b.Lease(ctx, "y")
		if fence, _ := Fence(leased); fence <= last {
			t.Errorf("fence %d after %d", fence, last)
		} else {
			last = fence
		}
		release()
		b.Done("y")
		shiftClock(t, client, -24*time.Hour)
	}
}
