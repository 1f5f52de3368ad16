package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// Of a key that fails, or was given up, the pool shows the count, the last error, since when and the stack of
// the last panic, until it succeeds or is forgotten.
func TestSnapshotKeyOfAFailingKey(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		start := time.Now()
		var fine atomic.Bool
		p := worker.New(q, func(ctx context.Context, key string) error {
			time.Sleep(100 * time.Millisecond)
			if fine.Load() {
				return nil
			}
			if worker.CallOf(ctx).Attempt() == 2 {
				thePanickingFunction()
			}
			return fmt.Errorf("broken %d", worker.CallOf(ctx).Attempt())
		}, options{MaxRetries: 6})
		if got := p.SnapshotKey("a"); got.Key != "a" || got.MaxAttempts != 7 || got.Running != nil ||
			got.Failing != nil || got.GivenUp != nil {
			t.Errorf("before Run: %+v", got)
		}
		q.Add("a")
		r := run(t, p)
		r.after(500 * time.Millisecond)
		if got := p.SnapshotKey("a"); got.Failing == nil {
			t.Errorf("before the panic: %+v", got)
		}
		r.after(1500 * time.Millisecond)
		got := p.SnapshotKey("a")
		if f := got.Failing; f == nil || *f != (worker.FailedKey[string]{Key: "a", Attempt: 2,
			Since: start.Add(100 * time.Millisecond), Err: "panic: what a value",
			NextTry: start.Add(3200 * time.Millisecond)}) || got.GivenUp != nil || got.Running != nil {
			t.Errorf("got %+v", got)
		}
		r.after(3250 * time.Millisecond)
		running := worker.RunningKey[string]{Key: "a", Attempt: 3, Started: start.Add(3200 * time.Millisecond),
			Duration: 50 * time.Millisecond}
		if got := p.SnapshotKey("a"); got.Running == nil || *got.Running != running || got.Failing == nil {
			t.Errorf("got %+v", got)
		}
		r.after(2 * time.Minute)
		got = p.SnapshotKey("a")
		if f := got.GivenUp; f == nil || f.Attempt != 7 || f.Err != "broken 7" || got.Failing != nil ||
			!f.Since.Equal(start.Add(100*time.Millisecond)) || f.Time.Sub(start) != 63700*time.Millisecond {
			t.Errorf("given up: %+v", got)
		}
		// Added again, it fails anew.
		q.Add("a")
		r.after(2*time.Minute + 500*time.Millisecond)
		if got := p.SnapshotKey("a"); got.Failing == nil || got.GivenUp != nil || got.Failing.Attempt != 1 {
			t.Errorf("added again: %+v", got)
		}
		fine.Store(true)
		r.after(3 * time.Minute)
		if got := p.SnapshotKey("a"); got.Failing != nil || got.GivenUp != nil {
			t.Errorf("after a success: %+v", got)
		}
		fine.Store(false)
		q.Add("a")
		r.after(3*time.Minute + 500*time.Millisecond)
		p.Forget("a")
		if got := p.SnapshotKey("a"); got.Failing != nil {
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

// Of an error at most 1 KiB is kept, and no part of a letter.
func TestWhatIsKeptOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		p := worker.New(q, func(context.Context, string) error { panic(strings.Repeat("ä", 1<<11)) },
			options{MaxRetries: worker.NoRetries})
		q.Add("a")
		r := run(t, p)
		synctest.Wait()
		if k := p.SnapshotKey("a"); k.GivenUp == nil || len(k.GivenUp.Err) != 1<<10-1 ||
			!utf8.ValidString(k.GivenUp.Err) {
			t.Errorf("%+v", k)
		}
		r.endCleanly()
	})
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
		if i.Queue.Queue != any(q) || i.Stats().Handled != 6 {
			t.Errorf("%+v", i.Stats())
		}
		if busiest := i.Busiest(1); len(busiest) != 1 || busiest[0].Key != "fails 1" || busiest[0].Calls != 2 {
			t.Errorf("%+v", busiest)
		}
		if n := i.Stats().GivenUpKeys; n != 2 {
			t.Errorf("%d keys are given up", n)
		}
		equal(t, "failing", namesIn(i, worker.KeyFailing), "fails 1", "fails 2")
		equal(t, "given up", namesIn(i, worker.KeyGivenUp), "drops 2", "drops 1")
		equal(t, "running", namesIn(i, worker.KeyRunning), "waits")
		equal(t, "on hold", namesIn(i, worker.KeyOnHold))
		for k := range i.Keys(worker.KeyRunning) { // It comes with everything.
			if k.Running == nil || k.Running.Stack == "" || k.Causes.String() != "changed" {
				t.Errorf("%+v", k)
			}
		}
		for range i.Keys(worker.KeyFailing) {
			break
		}
		if !panics(func() { i.Keys("idle") }) {
			t.Error("a pool has idle keys")
		}
		k := i.SnapshotKey("waits")
		if k.Key != "waits" || k.Running == nil || k.Running.Stack == "" || k.Causes.String() != "changed" ||
			k.Failing != nil || k.GivenUp != nil {
			t.Errorf("%+v", k)
		}
		if k := i.SnapshotKey("fails 1"); k.Failing == nil || k.Failing.Err != "fails 1 is broken" ||
			k.Failing.Attempt != 2 || !k.Causes.IsZero() {
			t.Errorf("%+v", k)
		}
		k = i.SnapshotKey("drops 1")
		if k.GivenUp == nil || k.GivenUp.Err != "drops 1 is broken" {
			t.Errorf("%+v", k)
		}
		if text, err := json.Marshal(k); err != nil || !strings.Contains(string(text),
			`"given_up":{"key":"drops 1","attempt":1,`) || strings.Contains(string(text), "running") {
			t.Errorf("%s %v", text, err)
		}
		i.Forget("drops 1")
		q.Forget("fails 1")
		equal(t, "given up", namesIn(i, worker.KeyGivenUp), "drops 2")
		equal(t, "failing", namesIn(i, worker.KeyFailing), "fails 2")
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

// namesIn returns the names of the keys of that state.
func namesIn(i worker.Inspector, state worker.KeyState) (names []string) {
	for k := range i.Keys(state) {
		names = append(names, fmt.Sprint(k.Key))
	}
	return names
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}
