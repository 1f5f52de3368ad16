package redisqueue

import (
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
