package redisqueue

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/worker"
	"github.com/redis/go-redis/v9"
)

const childAddr = "REDISQUEUE_TEST_CHILD"

// inChild returns a client of the server, and skips the test if it is not run as a process by another one.
func inChild(t *testing.T) *redis.Client {
	addr := os.Getenv(childAddr)
	if addr == "" {
		t.Skip("not a test of its own: other tests run it as a process")
	}
	return clientOf(t, addr)
}

// TestChild is a worker process of the tests below. It says what it does, and finishes a key when it reads a
// line.
func TestChild(t *testing.T) {
	q := newTestQueue(t, inChild(t), Config[string]{Lease: 2 * time.Second})
	lines := bufio.NewReader(os.Stdin)
	_ = worker.Run(context.Background(), q, func(ctx context.Context, key string) error {
		fence, _ := Fence(ctx)
		fmt.Println("got", key, fence)
		context.AfterFunc(ctx, func() {
			if errors.Is(context.Cause(ctx), leasing.ErrLost) {
				fmt.Println("lost", key)
			}
		})
		if _, err := lines.ReadString('\n'); err != nil {
			os.Exit(0)
		}
		go func() { // Done follows when this has returned.
			for end := time.Now().Add(time.Minute); held(q) > 0 &&
				time.Now().Before(end); time.Sleep(time.Millisecond) {
			}
			fmt.Println("lost dones", shared(q).LostDones)
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

// startChild runs a test of this package as a process that uses the server.
func startChild(t *testing.T, test string, s *server) *child {
	c := &child{t: t, cmd: exec.Command(os.Args[0], "-test.run", "^"+test+"$"), lines: make(chan string, 100)}
	c.cmd.Env = append(os.Environ(), childAddr+"="+s.addr)
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

// The key of a killed process is handed out when its lease ends, with a higher fence.
func TestWorkerKilled(t *testing.T) {
	s := startServer(t)
	c := startChild(t, "TestChild", s)
	q := newTestQueue(t, s.client(), Config[string]{Lease: 2 * time.Second})
	q.Add("x")
	var first int64
	_, _ = fmt.Sscan(c.says("got x"), &first)
	_ = c.cmd.Process.Kill()
	mustGet(t, q, "x")
	// Fences of hand-outs that are seconds apart are microseconds of the server's clock.
	if fence := fenceOf(q, "x"); time.Duration(fence-first)*time.Microsecond < 2*time.Second {
		t.Errorf("the key was handed out under the fence %d, and again under %d before its lease of 2 s had ended",
			first, fence)
	}
	q.Done("x")
}

// A process that is stopped for longer than its lease loses its key, learns it when it continues, and does
// not disturb the new holder.
func TestWorkerStopped(t *testing.T) {
	s := startServer(t)
	c := startChild(t, "TestChild", s)
	// No pause of the machine ends its lease.
	q := newTestQueue(t, s.client(), Config[string]{Lease: time.Minute})
	q.Add("x")
	c.says("got x")
	_ = c.cmd.Process.Signal(syscall.SIGSTOP)
	mustGet(t, q, "x")
	_ = c.cmd.Process.Signal(syscall.SIGCONT)
	c.says("lost x")
	fmt.Fprintln(c.in) // Its handler returns, and the worker calls Done.
	if n := c.says("lost dones"); n != "1" {
		t.Errorf("the process counts %s lost Dones, want 1", n)
	}
	if st := freshStats(t, q); !q.holdsForTest("x") || st.Processing != 1 || st.Queued != 0 {
		t.Errorf("the new holder was disturbed: %+v", st)
	}
	q.Done("x")
	wantNoKeys(t, q)
}

// A server that is killed and restarted from its append-only file loses nothing that was confirmed, and
// holders keep their keys.
func TestServerKilled(t *testing.T) {
	s := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	var logged bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	q := newTestQueue(t, s.client(), Config[string]{Logger: logger})
	addAndGet(t, q, "held")
	keys := keysNamed("k", 1000)
	addAll(q, keys...)
	q.AddAfter("later", 2*time.Second)
	q.AddRateLimited("failing")
	flush(t, q)
	s.kill()
	q.Add("while it is down")
	q.Done("held")
	waitUntil(t, func() bool { return q.outage() != nil })
	s.start()
	getEach(t, q, append(keys, "later", "failing", "while it is down")...)
	wantNoKeys(t, q)
	if st := shared(q); st.Outage || st.LostLeases+st.LostDones != 0 {
		t.Errorf("%+v", st)
	}
	endQueue(t, q)
	// An outage is logged when it begins and when it ends.
	if log := logged.String(); !regexp.MustCompile(
		"^(.*The queue's server fails.*\n.*The queue's server answers again.*\n)+$").MatchString(log) {
		t.Errorf("logged: %s", log)
	}
}

// Everything is executed once, in order, although connections are cut at random bytes and the scripts are
// flushed: failures that are counted once too often, or once too little, show.
func TestRepliesLost(t *testing.T) {
	s := startServer(t)
	var cuts atomic.Int64
	p := startProxy(t, s.addr, func() int {
		cuts.Add(1)
		return 200 + rand.IntN(1500)
	})
	client, direct := newClient(t, &redis.Options{Addr: p.addr(), MaxRetries: 2}), s.client()
	flaky := newTestQueue(t, client, Config[string]{Backoff: noBackoff})
	keys := keysNamed("k", 10)
	for i := range 300 {
		for _, key := range keys {
			flaky.AddRateLimited(key)
		}
		if i%30 == 0 {
			direct.ScriptFlush(context.Background())
		}
		flush(t, flaky)
	}
	for _, key := range keys {
		wantFailures(t, flaky, key, 300)
	}
	getEach(t, flaky, keys...)
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
	if st, info := freshStats(t, flaky), shared(flaky); st.Queued+st.Processing != 0 ||
		info.LostDones+info.LostLeases != 0 {
		t.Errorf("Stats() = %+v, %+v, want no keys that are queued or processed", st, info)
	}
}

// A server that hangs for longer than a lease: holders lose their keys when the lease ends by their own
// clock, and the keys are handed out again.
func TestServerHangs(t *testing.T) {
	s := startServer(t)
	const lease = 2 * time.Second
	q := newTestQueue(t, s.client(), Config[string]{Lease: lease})
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
	wantErr(t, context.Cause(ctx), leasing.ErrLost)
	time.Sleep(time.Second)
	s.signal(syscall.SIGCONT)
	// x was given back, but this process does not hand it out while its first handler has not ended.
	mustGet(t, q, "y")
	getNothing(t, q, 500*time.Millisecond)
	q.Done("x")
	getEach(t, q, "x")
	q.Done("y")
	wantNoKeys(t, q)
	if st := shared(q); st.LostLeases != 1 || st.LostDones != 1 {
		t.Errorf("%+v", st)
	}
}

// When the server's memory is full, adds wait in the buffer, and all else continues.
func TestServerFull(t *testing.T) {
	s := startServer(t)
	adding, cancel := context.WithCancel(context.Background())
	defer cancel()
	q := newTestQueue(t, s.client(), Config[string]{Logger: loggedTo(func(error) { cancel() })})
	addAll(q, "a", "b", "c")
	mustGet(t, q, "a")
	s.fill()
	err := q.AddContext(adding, "d") // until the server has refused it
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("AddContext() of a full server: %v", err)
	}
	q.Add("a") // It is held.
	q.Done("a")
	getEach(t, q, "b", "c")
	wantNoKeys(t, q)
	if shared(q).Unsent == 0 {
		t.Errorf("%+v, want adds that wait", shared(q))
	}
	s.limitMemory("0")
	getEach(t, q, "a", "d")
	waitUntil(t, func() bool { return shared(q).Unsent == 0 && q.outage() == nil })
}

func TestEvictionIsRefused(t *testing.T) {
	s := startServer(t, "--maxmemory-policy", "allkeys-lru")
	_, err := New(context.Background(), s.client(), Config[string]{Name: "q"})
	wantErr(t, err, ErrEviction)
	if _, err := New(context.Background(), clientOf(t, freeAddr(t)), Config[string]{Name: "q"}); err == nil {
		t.Errorf("New() without a server returns no error")
	}
}

// A server that takes no writes is refused with its error: a read-only
// replica, and a master that lacks replicas.
func TestServerWithoutWritesIsRefused(t *testing.T) {
	master := startServer(t, "--min-replicas-to-write", "1")
	replica := startServer(t, "--replicaof", "127.0.0.1", master.port())
	for want, s := range map[string]*server{"NOREPLICAS": master, "READONLY": replica} {
		client := newClient(t, &redis.Options{Addr: s.addr, MaxRetries: -1})
		if want == "NOREPLICAS" {
			must(t, client.ConfigSet(t.Context(), "min-replicas-to-write", "2").Err())
		}
		if q, err := New(t.Context(), client, Config[string]{Name: "q"}); q != nil || err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, %v, want an error with %s", q, err, want)
		}
	}
}

// Leases outlive a server's clock that is set forward and back. Delays follow it.
func TestServerClockJumps(t *testing.T) {
	client := startServer(t).client()
	config := Config[string]{Lease: 15 * time.Second}
	a, b := newShiftedQueue(t, client, config), newShiftedQueue(t, client, config)
	addAndGet(t, a, "x")
	a.AddAfter("later", time.Minute)
	flush(t, a)
	var last int64
	finish := func(key string) {
		t.Helper()
		fence := fenceOf(b, key)
		if fence <= last {
			t.Errorf("fence %d after %d", fence, last)
		}
		last = fence
		b.Done(key)
	}
	for _, hours := range []int{1, 0, -1, 0, 365 * 24} {
		freshStats(t, a) // It renews the lease. A jump takes half of that.
		shiftClock(t, client, time.Duration(hours)*time.Hour)
		if hours == 1 {
			mustGet(t, b, "later")
			finish("later")
		} else {
			getNothing(t, b, 1200*time.Millisecond) // longer than the poll interval
		}
		if !a.holdsForTest("x") {
			t.Fatalf("clock shifted by %d h: the lease is lost", hours)
		}
	}
	a.Done("x")
	for range 3 {
		addAndGet(t, b, "y")
		finish("y")
		shiftClock(t, client, -24*time.Hour)
	}
}

// AddContext of a key that stands early in a long buffer does not wait for what is behind it.
func TestAddContextOfABufferedKey(t *testing.T) {
	client := startServer(t).client()
	q := newTestQueue(t, client, Config[string]{})
	var slow atomic.Bool
	slow.Store(true)
	client.AddHook(hook(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if slow.Load() {
				time.Sleep(50 * time.Millisecond)
			}
			return next(ctx, cmd)
		}
	}))
	keys := keysNamed("key", 50_000)
	addAll(q, keys...) // about a hundred batches
	must(t, q.AddContext(within(t, 30*time.Second), keys[10_000]))
	if shared(q).Unsent == 0 {
		t.Error("AddContext has waited for all keys")
	}
	slow.Store(false)
	flush(t, q)
}
