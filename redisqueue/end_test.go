package redisqueue

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
	"github.com/redis/go-redis/v9"
)

const childGrace = "REDISQUEUE_TEST_GRACE" // the CancelGrace of TestEndChild

// TestEndChild is the program of the package's documentation, and ends at an interrupt. Its handlers take a
// moment; those of keys that begin with "deaf" take forever, even if their contexts end.
func TestEndChild(t *testing.T) {
	addr := os.Getenv(childAddr)
	if addr == "" {
		t.Skip("not a test of its own: other tests run it as a process")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	grace, err := time.ParseDuration(os.Getenv(childGrace))
	must(t, err)
	run := func() error {
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		queue, err := New(ctx, client, Config[string]{
			Name: "test", Lease: time.Second, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
		})
		if err != nil {
			return err
		}
		return worker.Run(ctx, queue, func(ctx context.Context, key string) error {
			fmt.Println("got", key, worker.CallOf(ctx).Attempt(), worker.CallOf(ctx).AtOnce())
			if strings.HasPrefix(key, "deaf") {
				select {}
			}
			<-ctx.Done()
			time.Sleep(time.Millisecond)
			return nil
		}, worker.Options[string]{
			Workers: 3, DrainTimeout: 20 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(os.Stdout, nil)),
			CancelGrace: grace,
		})
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("ended")
}

// interrupt makes the process end, and returns what it has said.
func (c *child) interrupt() (said []string) {
	c.t.Helper()
	must(c.t, c.cmd.Process.Signal(syscall.SIGINT))
	for timeout := time.After(time.Minute); ; {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return said
			}
			said = append(said, line)
		case <-timeout:
			c.t.Fatalf("the process does not end: %q", said)
		}
	}
}

// A program that ends as the documentation shows leaves nothing behind: when its process has ended, the
// server knows of each Done, and no error was logged.
func TestCleanEnd(t *testing.T) {
	t.Setenv(childGrace, "10s")
	s := startServer(t)
	other := newTestQueue(t, s.client(), Config[string]{})
	for i := range 10 {
		c := startChild(t, "TestEndChild", s)
		for k := range 3 {
			other.Add(fmt.Sprintf("%d/%d", i, k))
		}
		for range 3 {
			c.says("got")
		}
		said := c.interrupt()
		if !slices.Contains(said, "ended") || strings.Contains(fmt.Sprint(said), "level=ERROR") {
			t.Errorf("the process has said %q", said)
		}
		wantNoKeys(t, other)
	}
}

// A program that ends although its handler ignores its context says so: the key is handed out when the lease
// has ended, at once, however often that happens, and counts neither as failed nor as lost.
func TestEndBesideDeafHandler(t *testing.T) {
	t.Setenv(childGrace, "50ms")
	s := startServer(t)
	other := newTestQueue(t, s.client(), Config[string]{Lease: time.Second, MaxLostLeases: 2})
	other.Add("deaf")
	for i := range 4 {
		c := startChild(t, "TestEndChild", s)
		if said := c.says("got deaf"); said != fmt.Sprint("1 ", i) {
			t.Errorf("attempt and AtOnce are %s, want 1 %d", said, i)
		}
		said := c.interrupt()
		if !slices.Contains(said, "ended") || strings.Contains(fmt.Sprint(said), "level=ERROR") {
			t.Errorf("the process has said %q", said)
		}
	}
	mustGet(t, other, "deaf")
	if k, err := other.key(context.Background(), "deaf"); err != nil || k.LostLeases != 0 || k.Requeues != 0 {
		t.Errorf("%+v, %v", k, err)
	}
	other.Done("deaf")
}

// A program that adds a key, shuts its queue down and closes the client logs nothing.
func TestAdderEndsQuietly(t *testing.T) {
	s := startServer(t)
	var logged atomic.Int64
	for i := range 20 {
		client := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: i%2 - 1})
		logger := loggedTo(func(err error) {
			logged.Add(1)
			t.Log(err)
		})
		q := newTestQueue(t, client, Config[string]{Lease: time.Second, Logger: logger})
		must(t, q.AddContext(within(t, time.Minute), "x"))
		if i < 15 {
			q.ShutDown()
		}
		must(t, client.Close())
		if i < 15 {
			waitUntil(t, func() bool { return isOver(q) })
		}
	}
	if n := logged.Load(); n > 0 {
		t.Errorf("%d errors are logged", n)
	}
}

// A handler that flushes after its program has closed the client hears that its adds were dropped, and can return.
func TestFlushAfterClose(t *testing.T) {
	s := startServer(t)
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	q := newTestQueue(t, client, Config[string]{})
	addAndGet(t, q, "x")
	flush(t, q)
	must(t, client.Close())
	q.ShutDown()
	q.Add("y")
	for range 3 {
		wantErr(t, q.Flush(within(t, time.Minute)), workqueue.ErrShutDown)
	}
	q.Done("x")
	<-q.ended
}

func isOver(q *Queue[string]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.ending.over
}

// Settle returns the keys of whose Done the server may not know.
func TestSettle(t *testing.T) {
	_, f, q, _ := oneFaulty(t, Config[string]{})
	addAndGet(t, q, "done")
	addAndGet(t, q, "held")
	if keys, err := q.Settle(within(t, time.Minute)); keys != nil || err != nil {
		t.Errorf("Settle() = %q, %v", keys, err)
	}
	f.down.Store(true)
	q.ShutDown()
	q.Done("done")
	keys, err := q.Settle(within(t, 10*time.Millisecond))
	if wantErr(t, err, context.DeadlineExceeded); !slices.Equal(keys, []string{"done"}) {
		t.Errorf("Settle() = %q", keys)
	}
	f.down.Store(false)
	if keys, err = q.Settle(within(t, time.Minute)); keys != nil || err != nil {
		t.Errorf("Settle() = %q, %v", keys, err)
	}
	q.Done("held")
	if keys, err = q.Settle(within(t, time.Minute)); keys != nil || err != nil || !isOver(q) {
		t.Errorf("Settle() = %q, %v; the replica has ended: %v", keys, err, isOver(q))
	}
}

// A handler that never fits between two deploys: its calls are interrupted and handed back, which is counted
// in a row, on whichever replica the next one runs. A call that ends of itself ends the row.
func TestInterruptionsOutlastDeploys(t *testing.T) {
	s := startServer(t)
	other := newTestQueue(t, s.client(), Config[string]{})
	other.Add("long")
	call := func(handle func(ctx context.Context) error) (atOnce int) {
		q := newTestQueue(t, s.client(), Config[string]{})
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		must(t, worker.Run(ctx, q, func(ctx context.Context, _ string) error {
			atOnce = worker.CallOf(ctx).AtOnce()
			stop()
			return handle(ctx)
		}, worker.Options[string]{DrainTimeout: time.Millisecond}))
		return atOnce
	}
	interrupted := func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for want := range 8 {
		if n := call(interrupted); n != want {
			t.Errorf("after %d interruptions AtOnce() = %d", want, n)
		}
	}
	call(func(context.Context) error { return nil })
	other.Add("long")
	if n := call(interrupted); n != 0 {
		t.Errorf("after success AtOnce() = %d", n)
	}
}
