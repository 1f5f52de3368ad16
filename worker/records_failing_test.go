package worker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// failedKeys formats keys as "key attempt error since time nextTry", with times relative to start.
func failedKeys(start time.Time, keys []worker.FailedKey[string]) []string {
	var lines []string
	for _, f := range keys {
		text := fmt.Sprintf("%s %d %s", f.Key, f.Attempt, f.Err)
		for _, at := range []time.Time{f.Since, f.Time, f.NextTry} {
			if at.IsZero() {
				text += " -"
			} else {
				text += " " + at.Sub(start).String()
			}
		}
		lines = append(lines, text)
	}
	return lines
}

// The last error of a failing key is known until it succeeds.
func TestFailingKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		start := time.Now()
		p := worker.New(q, func(ctx context.Context, key string) error {
			time.Sleep(100 * time.Millisecond)
			if worker.CallOf(ctx).Attempt() == 4 {
				return nil
			}
			return fmt.Errorf("%s is broken, %d", key, worker.CallOf(ctx).Attempt())
		}, options{Workers: 2})
		q.Add("a")
		r := run(t, p)
		r.after(500 * time.Millisecond)
		q.Add("b")
		check := func(at time.Duration, want ...string) {
			t.Helper()
			r.after(at)
			s := p.Snapshot(10)
			equal(t, fmt.Sprint("at ", at), failedKeys(start, s.Failing), want...)
			if s.Stats.Failing != len(want) {
				t.Errorf("at %v, %d failing", at, s.Stats.Failing)
			}
		}
		check(time.Second, "a 1 a is broken, 1 100ms - 1.1s", "b 1 b is broken, 1 600ms - 1.6s")
		check(1150*time.Millisecond, "a 1 a is broken, 1 100ms - -", "b 1 b is broken, 1 600ms - 1.6s") // a runs.
		check(2*time.Second, "a 2 a is broken, 2 100ms - 3.2s", "b 2 b is broken, 2 600ms - 3.7s")
		if got := p.Snapshot(1).Failing; len(got) != 1 || got[0].Key != "a" {
			t.Errorf("limited: %+v", got)
		}
		check(time.Minute)
		r.endCleanly()
	})
}

// The last thousand given-up keys are remembered. One that is given up again and again takes no place from
// the others.
func TestMostGivenUpKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		addNumbers(q, 1002)
		p := worker.New(q, broken, options{MaxRetries: worker.NoRetries})
		r := run(t, p)
		for range 20 {
			q.Add("500")
			synctest.Wait()
		}
		keys := p.Snapshot(2000).GivenUp
		if st := p.Stats(); st.GivenUp != 1022 || st.GivenUpKeys != 1000 || len(keys) != 1000 ||
			keys[0].Key != "500" || keys[1].Key != "1001" || keys[999].Key != "2" {
			t.Errorf("%d given up, %d keys, from %+v to %+v", st.GivenUp, st.GivenUpKeys, keys[0], keys[999])
		}
		r.endCleanly()
	})
}

// Keys that were waiting for their retry when somebody else shut the queue down are failing, and not gone.
func TestFailingKeysOfAQueueThatIsShutDown(t *testing.T) {
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := newPriorityQueue(priorityqueue.Config[string]{})
			q.Add("a")
			r := run(t, worker.New(q, broken, options{KeepQueue: keep}))
			q.ShutDown()
			r.returnedLeaving("1 failed and not retried: a")
		})
	}
}
