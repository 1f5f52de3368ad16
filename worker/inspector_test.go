package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// failedCalls formats calls as "attempt started duration error", with times relative to start.
func failedCalls(start time.Time, calls []worker.FailedCall) (lines []string) {
	for _, c := range calls {
		lines = append(lines, fmt.Sprint(c.Attempt, " ", c.Started.Sub(start), " ", c.Duration, " ", c.Err))
	}
	return lines
}

// Only the first call of a failing key has causes, which are those of the adds that it answers. They are
// known as long as the key fails, and when it was given up.
func TestCausesOfFailedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](
			time.Second, time.Minute))
		p := worker.New(q, func(context.Context, string) error { return errors.New("broken") },
			options{MaxRetries: 8, KeepGivenUp: 1})
		for range 2 {
			q.(extended).AddCause("a", workqueue.Cause{Reason: strings.Repeat("é", 200)})
			q.(extended).AddCause("a", workqueue.Cause{Reason: strings.Repeat("x", 400)})
			q.(extended).AddCause("a", workqueue.Cause{Reason: "last"})
		}
		r := run(t, p)
		want := strings.Repeat("é", 128) + "; " + strings.Repeat("x", 254)
		for _, c := range []struct {
			at       time.Duration
			attempts []int
		}{{2 * time.Second, []int{1, 2}}, {20 * time.Second, []int{1, 2, 3, 4, 5}},
			{time.Hour, []int{1, 6, 7, 8, 9}}} {
			r.after(c.at)
			var got []int
			for i, c := range p.SnapshotKey("a").FailedCalls {
				if got = append(got, c.Attempt); (c.Causes == want) != (i == 0) || i > 0 && c.Causes != "" {
					t.Errorf("attempt %d has the causes %q", c.Attempt, c.Causes)
				}
			}
			equal(t, fmt.Sprint("attempts after ", c.at), got, c.attempts...)
		}
		if p.SnapshotKey("a").GivenUp == nil {
			t.Error("it was not given up")
		}
		r.endCleanly()
	})
}

// Of a key that fails, or was given up, the first call and the last four are known, until it succeeds or is
// forgotten.
func TestFailedCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		start := time.Now()
		var fine atomic.Bool
		p := worker.New(q, func(ctx context.Context, key string) error {
			time.Sleep(100 * time.Millisecond)
			if fine.Load() {
				return nil
			}
			if worker.CallOf(ctx).Attempt() == 6 {
				thePanickingFunction()
			}
			return fmt.Errorf("broken %d", worker.CallOf(ctx).Attempt())
		}, options{MaxRetries: 6})
		if got := p.SnapshotKey("a"); got.Key != "a" || got.MaxAttempts != 7 || got.Running != nil ||
			got.Failing != nil || got.GivenUp != nil || got.FailedCalls != nil {
			t.Errorf("before Run: %+v", got)
		}
		q.Add("a")
		r := run(t, p)
		r.after(1500 * time.Millisecond)
		got := p.SnapshotKey("a")
		if want := []string{"1 0s 100ms broken 1", "2 1.1s 100ms broken 2"}; !slices.Equal(failedCalls(start,
			got.FailedCalls), want) {
			t.Errorf("got %q", failedCalls(start, got.FailedCalls))
		}
		next := start.Add(3200 * time.Millisecond)
		if _, known := q.(extended); !known {
			next = time.Time{}
		}
		if f := got.Failing; f == nil || *f != (worker.FailedKey[string]{Key: "a", Attempt: 2,
			Since: start.Add(100 * time.Millisecond), Err: "broken 2", Time: start.Add(1200 * time.Millisecond),
			NextTry: next}) || got.GivenUp != nil || got.Running != nil {
			t.Errorf("got %+v", got)
		}
		r.after(3250 * time.Millisecond)
		running := worker.RunningKey[string]{Key: "a", Attempt: 3, Started: start.Add(3200 * time.Millisecond),
			Duration: 50 * time.Millisecond}
		if got := p.SnapshotKey("a"); got.Running == nil || *got.Running != running || got.Failing == nil ||
			len(got.FailedCalls) != 2 {
			t.Errorf("got %+v", got)
		}
		r.after(2 * time.Minute)
		got = p.SnapshotKey("a")
		want := []string{"1 0s 100ms broken 1", "4 7.3s 100ms broken 4", "5 15.4s 100ms broken 5",
			"6 31.5s 100ms panic: what a value", "7 1m3.6s 100ms broken 7"}
		if !slices.Equal(failedCalls(start, got.FailedCalls), want) {
			t.Errorf("got %q", failedCalls(start, got.FailedCalls))
		}
		if got.GivenUp == nil || got.GivenUp.Attempt != 7 || got.GivenUp.Err != "broken 7" || got.Failing != nil {
			t.Errorf("given up: %+v", got)
		}
		for i, c := range got.FailedCalls {
			if panicked := strings.Contains(c.Stack, "thePanickingFunction"); panicked != (i == 3) || !panicked &&
				c.Stack != "" {
				t.Errorf("call %d has the stack %q", i, c.Stack)
			}
		}
		// Added again, it fails anew.
		q.Add("a")
		r.after(2*time.Minute + 500*time.Millisecond)
		if got := p.SnapshotKey("a"); got.Failing == nil || got.GivenUp != nil || len(got.FailedCalls) != 1 ||
			got.FailedCalls[0].Attempt != 1 {
			t.Errorf("added again: %+v", got)
		}
		fine.Store(true)
		r.after(3 * time.Minute)
		if got := p.SnapshotKey("a"); got.Failing != nil || got.FailedCalls != nil {
			t.Errorf("after a success: %+v", got)
		}
		fine.Store(false)
		q.Add("a")
		r.after(3*time.Minute + 500*time.Millisecond)
		p.Forget("a")
		if got := p.SnapshotKey("a"); got.Failing != nil || got.FailedCalls != nil {
			t.Errorf("forgotten: %+v", got)
		}
		r.end()
	})
}

func TestMaxAttempts(t *testing.T) {
	for retries, want := range map[int]int{worker.UnlimitedRetries: 0, worker.NoRetries: 1, 1: 2, 4: 5} {
		if got := worker.New(newQueue(), nil,
			options{MaxRetries: retries}).SnapshotKey("a").MaxAttempts; got != want {
			t.Errorf("MaxRetries %d: %d attempts", retries, got)
		}
	}
}

// deep panics far down.
func deep(n int) {
	if n == 0 {
		panic(strings.Repeat("ä", 1<<11))
	}
	deep(n - 1)
}

// Of an error at most 1 KiB is kept, and no part of a letter, and of a stack at most 8 KiB, the last one of a
// key. The errors of all keys take at most 16 MiB: beyond that, those of the keys that failed longest ago are
// forgotten.
func TestFailedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		q := limitedQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Second))
		p := worker.New(q, func(ctx context.Context, key string) error {
			deep(200)
			return nil
		}, options{MaxRetries: 4, KeepGivenUp: n})
		addNumbers(q, n)
		r := run(t, p)
		check := func(when string) {
			t.Helper()
			size, known, last := 0, 0, -1
			for i := range n {
				calls := p.SnapshotKey(fmt.Sprint(i)).FailedCalls
				if len(calls) > 0 {
					known, last = known+1, i
				} else if last >= 0 {
					t.Errorf("%s: calls are known of key %d, and not of key %d, which has failed later", when, last, i)
				}
				for j, c := range calls {
					size += len(c.Err) + len(c.Stack)
					isCut := len(c.Stack) <= 8<<10 && len(c.Stack) >= 8<<10-4 || j < len(calls)-1 && c.Stack == ""
					if len(c.Err) != 1<<10-1 || !utf8.ValidString(c.Err) || !isCut {
						t.Fatalf("%s: %d bytes of the error are kept, %d of the stack", when, len(c.Err), len(c.Stack))
					}
				}
			}
			if size > 16<<20 || size < 14<<20 && known < n {
				t.Errorf("%s: %d bytes are kept of %d keys", when, size, known)
			}
			if last != n-1 || known == n {
				t.Errorf("%s: no calls are known of the last key", when)
			}
		}
		check("first attempts")
		r.after(1500 * time.Millisecond)
		check("second attempts")
		if s := p.Snapshot(n); len(s.Failing) != 512 || s.Stats.Failing != n {
			t.Errorf("%d keys fail, %d are listed", s.Stats.Failing, len(s.Failing))
		}
		r.after(time.Minute)
		check("given up")
		if s := p.Snapshot(n); len(s.GivenUp) != s.Stats.GivenUpKeys ||
			len(s.GivenUp)+int(s.Stats.GivenUpUnlisted) != n {
			t.Errorf("%d given up, %d of them without record, %d listed", s.Stats.GivenUpKeys, s.Stats.GivenUpUnlisted,
				len(s.GivenUp))
		}
		r.endCleanly()
	})
}

func keysOf(failed iter.Seq[worker.FailedKey[any]]) (keys []any) {
	for f := range failed {
		keys = append(keys, f.Key)
	}
	return keys
}

// A provider that inspects pools gets an Inspector, which shows and does what the pool does.
func TestInspectPool(t *testing.T) {
	overNotifying(t, func(t *testing.T, q notifying) {
		metrics := newProvider()
		p := worker.New(q, acts, options{Name: "pool", Workers: 2, MetricsProvider: metrics,
			StuckAfter: time.Second})
		r := run(t, p)
		for _, key := range []string{"fails 1", "drops 1", "fails 2", "drops 2"} {
			q.Add(key)
			synctest.Wait()
		}
		q.AddCause("waits", workqueue.Cause{Reason: "changed"})
		r.after(1500 * time.Millisecond)
		i := metrics.pools["pool"]
		if i.Queue != any(q) || i.Stats().Handled != 6 {
			t.Errorf("%+v", i.Stats())
		}
		if s := i.Snapshot(1); len(s.Running) != 1 || s.Running[0].Key != "waits" || s.Running[0].Stack == "" ||
			len(s.Failing) != 1 || len(s.GivenUp) != 1 || s.Stats.GivenUpKeys != 2 {
			t.Errorf("%+v", s)
		}
		equal(t, "failing", keysOf(i.FailingKeys()), "fails 2", "fails 1")
		equal(t, "given up", keysOf(i.GivenUpKeys()), "drops 2", "drops 1")
		for range i.FailingKeys() {
			break
		}
		for range i.GivenUpKeys() {
			break
		}
		k := i.SnapshotKey("waits")
		if k.Key != "waits" || k.Running == nil || k.Running.Stack == "" || k.Causes.String() != "changed" ||
			k.Failing != nil || k.GivenUp != nil {
			t.Errorf("%+v", k)
		}
		if k := i.SnapshotKey("fails 1"); k.Failing == nil || k.Failing.Err != "fails 1 is broken" ||
			len(k.FailedCalls) != 2 || !k.Causes.IsZero() {
			t.Errorf("%+v", k)
		}
		k = i.SnapshotKey("drops 1")
		if k.GivenUp == nil || k.GivenUp.Err != "drops 1 is broken" || len(k.FailedCalls) != 1 {
			t.Errorf("%+v", k)
		}
		if text, err := json.Marshal(k); err != nil || !strings.Contains(string(text),
			`"failed_calls":[{"attempt":1,`) || strings.Contains(string(text), "running") {
			t.Errorf("%s %v", text, err)
		}
		i.Forget("drops 1")
		q.Forget("fails 1")
		equal(t, "given up", keysOf(i.GivenUpKeys()), "drops 2")
		equal(t, "failing", keysOf(i.FailingKeys()), "fails 2")
		if i.Cancel("fails 2") || !i.Cancel("waits") {
			t.Error("Cancel does not know what runs")
		}
		synctest.Wait()
		if i.SnapshotKey("waits").Running != nil {
			t.Error("it still runs")
		}
		for _, key := range []any{1, nil} {
			for name, f := range map[string]func(){
				"SnapshotKey": func() { i.SnapshotKey(key) }, "Cancel": func() { i.Cancel(key) },
				"Forget": func() { i.Forget(key) },
			} {
				if !panics(f) {
					t.Errorf("%s of %v does not panic", name, key)
				}
			}
		}
		r.end()
	})
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

// A nil interface is a key like any other.
func TestInspectPoolOfInterfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := newProvider()
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[error]())
		p := worker.New(q, func(ctx context.Context, _ error) error { <-ctx.Done(); return nil },
			worker.Options[error]{Name: "pool", MetricsProvider: metrics})
		r := run(t, p)
		q.Add(nil)
		synctest.Wait()
		i := metrics.pools["pool"]
		if i.SnapshotKey(nil).Running == nil || i.SnapshotKey(errBroken).Running != nil || !i.Cancel(nil) {
			t.Error("nil does not run")
		}
		r.endCleanly()
	})
}
