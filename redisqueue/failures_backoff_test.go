package redisqueue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
)

// A key's handler fails for a while, during which events add the key. Then it is repaired, without an event.
// What becomes of it is what docs/backoff.md says of priorityqueue: the calls are those without events, and
// the events, and it succeeds when it would without any.
func TestBackoffWithEvents(t *testing.T) {
	const never = 1000 * time.Hour
	addr := startServer(t).addr
	for _, c := range []struct {
		down, every time.Duration
		calls       int
		late        time.Duration
	}{
		{time.Second, never, 8, 275 * time.Millisecond},
		{time.Second, 5 * time.Millisecond, 207, 275 * time.Millisecond},
		{time.Second, 50 * time.Millisecond, 27, 275 * time.Millisecond},
		{10 * time.Second, never, 11, 235 * time.Millisecond},
		{10 * time.Second, 50 * time.Millisecond, 210, 235 * time.Millisecond},
		{10 * time.Second, 5 * time.Second, 12, 235 * time.Millisecond},
		{10 * time.Minute, never, 17, 55355 * time.Millisecond},
		{10 * time.Minute, 5 * time.Second, 136, 55355 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("down=%v/every=%v", c.down, c.every), func(t *testing.T) {
			client := clientForBubbles(t, addr)
			synctest.Test(t, func(t *testing.T) {
				config := Config[string]{
					Name: fmt.Sprint("backoff", queueNumber.Add(1)), PollInterval: 10 * time.Second,
					Backoff: workqueue.BackoffConfig[string]{Base: 5 * time.Millisecond, Max: 1000 * time.Second},
				}
				must(t, config.complete())
				q := newQueue(bubbleClient{client}, config, bubbleScript())
				calls, late := 0, time.Duration(0)
				repair := time.Now().Add(c.down)
				succeeded := make(chan struct{})
				go func() {
					for {
						key, shutdown := q.Get()
						if shutdown {
							return
						}
						if time.Now().Before(repair) {
							calls++
							q.AddRateLimited(key)
						} else {
							late = time.Since(repair)
							close(succeeded)
						}
						q.Done(key)
					}
				}()
				q.Add("key")
				for time.Until(repair) > c.every {
					time.Sleep(c.every + time.Microsecond)
					q.Add("key")
				}
				<-succeeded
				q.ShutDown()
				time.Sleep(time.Minute) // It may wait for a key.
				if calls != c.calls || late.Round(5*time.Millisecond) != c.late {
					t.Errorf("%d calls, it succeeds after %v, want %d and %v", calls, late, c.calls, c.late)
				}
			})
		})
	}
}
