package redisqueue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// No call blocks the server for long: not when many keys come due, not when a dead replica held ten thousand, and not when a
// queue is purged. The bound is 5 ms. The server measures wall time and shares its cores with others, so one call in twenty may
// take longer here.
func TestBoundedWork(t *testing.T) {
	due, held := 200_000, 10_000
	if testing.Short() {
		due, held = 20_000, 1_000
	}
	s := startServer(t, "--slowlog-log-slower-than", "5000", "--slowlog-max-len", "10000")
	admin := s.client()
	ctx := context.Background()
	config := Config[string]{Name: "test", Logger: discard, Lease: 2 * time.Second}
	q := newTestQueue(t, s.client(), config)

	// A replica gets many keys and is heard of no more.
	dead := newTestQueue(t, s.client(), config)
	for _, key := range keysNamed("held", held) {
		dead.Add(key)
	}
	var getting sync.WaitGroup
	for range held {
		getting.Go(func() { _, _ = dead.GetContext(within(t, 30*time.Second)) })
	}
	getting.Wait()
	if n := dead.Info().Held; n != held {
		t.Fatalf("the replica holds %d keys", n)
	}
	dead.mu.Lock()
	dead.ending.over = true // It sends nothing any more.
	close(dead.ending.ended)
	dead.mu.Unlock()

	for _, key := range keysNamed("due", due) {
		q.AddAfter(key, time.Millisecond)
	}
	eventually(t, time.Minute, func() error {
		if st := q.Stats(); st.Queued < held+due {
			return fmt.Errorf("Stats() = %+v, want %d keys queued", st, held+due)
		}
		return nil
	})
	if err := q.Purge(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if st := q.Stats(); st.Queued+st.Processing+st.Waiting > 0 {
		t.Errorf("Stats() after Purge = %+v", st)
	}
	slow, err := admin.SlowLogGet(ctx, 10000).Result()
	if err != nil {
		t.Fatal(err)
	}
	longest := redis.SlowLog{}
	for _, entry := range slow {
		if entry.Duration > longest.Duration {
			longest = entry
		}
	}
	t.Logf("%d calls of %d took longer than 5 ms, the longest %v", len(slow), q.Info().Calls, longest.Duration)
	if uint64(len(slow)) > q.Info().Calls/20 {
		t.Errorf("too many; the longest: %.200q", longest.Args)
	}
}
