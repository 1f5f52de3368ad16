package redisqueue

import (
	"syscall"
	"testing"
	"time"
)

// A replica that has been idle for longer than its lease has nothing to tell the server at shutdown, and ends.
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
