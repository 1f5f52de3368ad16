package redisqueue

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// A replica that has been idle for longer than its lease has nothing to send to the server at shutdown, and ends.
func TestShutDownAfterIdleLease(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{Lease: time.Second, Logger: discard})
	q.Add("x")
	if err := q.Flush(within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1200 * time.Millisecond)
	if err := q.ShutDownContext(within(t, 3*time.Second)); err != nil {
		t.Errorf("ShutDownContext() = %v", err)
	}
}

// A getter that comes while the server hangs for longer than a lease gets what another replica adds afterwards.
func TestGetterOutlivesHang(t *testing.T) {
	s := startServer(t)
	config := Config[string]{Lease: time.Second, Logger: discard}
	q, other := newTestQueue(t, s.client(), config), newTestQueue(t, s.client(), config)
	s.signal(syscall.SIGSTOP)
	got := make(chan string, 1)
	go func() {
		key, _ := q.Get()
		got <- key
	}()
	time.Sleep(1500 * time.Millisecond)
	s.signal(syscall.SIGCONT)
	time.Sleep(500 * time.Millisecond)
	other.Add("x")
	select {
	case key := <-got:
		q.Done(key)
	case <-time.After(5 * time.Second):
		t.Error("Get has not returned 5 s after an add")
	}
}

// A replica that is shut down while the server is full tries its adds for a lease, without haste, and ends then.
func TestShutDownOnFullServer(t *testing.T) {
	s := startServer(t)
	client := s.client()
	q := newTestQueue(t, client, Config[string]{Lease: time.Second, Logger: discard})
	q.Add("x")
	mustGet(t, q, "x")
	ctx := within(t, 10*time.Second)
	client.Set(ctx, "ballast", strings.Repeat("x", 10<<20), 0)
	if err := client.ConfigSet(ctx, "maxmemory", "3mb").Err(); err != nil {
		t.Fatal(err)
	}
	q.Add("y")
	q.Done("x")
	if err := q.ShutDownContext(ctx); err != nil {
		t.Errorf("ShutDownContext() = %v", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.totals.dropped; n != 1 {
		t.Errorf("%d adds were dropped, want 1", n)
	}
	if n := q.shards[0].batches; n > 30 {
		t.Errorf("%d batches", n)
	}
}

// Getters that gave up take no memory, although no key ever comes.
func TestGettersThatGaveUp(t *testing.T) {
	var l getters[string]
	first := &getter[string]{}
	l.push(first)
	for range 10000 {
		g := &getter[string]{}
		l.push(g)
		g.gone = true
		l.n--
	}
	last := &getter[string]{}
	l.push(last)
	if len(l.line) > 100 {
		t.Errorf("%d entries for 2 getters", len(l.line))
	}
	if l.pop() != first || l.pop() != last || l.pop() != nil || l.n != 0 {
		t.Error("the getters come in a wrong order")
	}
}

// While a key is held, another string of it is finished and makes the key come again; it is not held forever.
func TestTwoStringsOfOneKey(t *testing.T) {
	client := startServer(t).client()
	old := newTestQueue(t, client, Config[string]{Logger: discard})
	q := newTestQueue(t, client, Config[string]{Logger: discard, Codec: codec[string]{
		func(key string) (string, error) { return key, nil },
		func(encoded string) (string, error) { return strings.ToLower(encoded), nil },
	}})
	q.Add("x")
	mustGet(t, q, "x")
	old.Add("X")
	short := within(t, 300*time.Millisecond)
	if key, err := q.GetContext(short); err == nil {
		t.Fatalf("got %q, which is held", key)
	}
	q.Done("x")
	mustGet(t, q, "x")
	q.Done("x")
	if err := q.Flush(within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if st := q.Stats(); st.Queued+st.Processing != 0 {
		t.Errorf("Stats() = %+v, want no keys", st)
	}
}

var _ worker.RequeueCounter[string] = (*Queue[string])(nil)

// A queue whose server does not answer, or that has shut down, does not say that a key has no failures.
func TestUnknownNumberOfFailures(t *testing.T) {
	s := startServer(t)
	q := newTestQueue(t, s.client(), Config[string]{Logger: discard})
	q.AddRateLimited("a")
	if n, err := q.NumRequeuesContext(within(t, 5*time.Second), "a"); n != 1 || err != nil {
		t.Errorf("NumRequeuesContext returned %d, %v", n, err)
	}
	s.kill()
	if _, err := q.NumRequeuesContext(within(t, time.Millisecond), "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a server: %v", err)
	}
	if _, err := q.NumRequeuesContext(context.Background(), "a"); err == nil {
		t.Error("without a server there is a number")
	}
	s.start()
	endQueue(t, q)
	if _, err := q.NumRequeuesContext(context.Background(), "a"); !errors.Is(err, workqueue.ErrShutDown) {
		t.Errorf("after shutdown: %v", err)
	}
}
