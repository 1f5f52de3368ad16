package failures_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// always is a limiter with one delay.
type always time.Duration

func (d always) When(int) time.Duration { return time.Duration(d) }

// A failing key whose user never calls Forget is dropped an hour after its delay has ended, by calls for
// other keys, and with it its memory. One that is still in the queue stays.
func TestForgottenByItself(t *testing.T) {
	const n = 100_000
	c := testkit.NewFakeClock()
	counts := failures.New(c, func(key int) bool { return key == 7 })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for key := range n {
		counts.Fail(key, failures.Failure{}, always(time.Minute))
	}
	c.Step(61*time.Minute - 1)
	counts.Forget(-1)
	if n, _ := counts.Of(n - 1); n != 1 {
		t.Fatal("a key is gone before its time")
	}
	c.Step(1)
	for range n/1000 + 1 {
		counts.Forget(-1)
	}
	for key, n := range counts.All() {
		if key != 7 || n != 1 {
			t.Fatalf("key %d with %d failures is left", key, n)
		}
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("%d bytes are left", grown)
	}
	// A day later, the key that is in the queue still has its count.
	for range 24 {
		c.Step(time.Hour)
		counts.Forget(-1)
	}
	if n, left := counts.Of(7); n != 1 || left != 0 {
		t.Errorf("%d failures, %v left of a key in the queue", n, left)
	}
	if r := counts.Fail(7, failures.Failure{MaxRetries: 1}, always(0)); r != (failures.Retry{Attempt: 2,
		GivenUp: true}) {
		t.Errorf("%+v", r)
	}
}

// While no key fails, the clock is not read, and nothing is allocated.
func TestWithoutFailures(t *testing.T) {
	counts := failures.New(&testkit.HookedClock{}, func(int) bool { return true })
	if n := testing.AllocsPerRun(100, func() { counts.Of(1); counts.Forget(1) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// counting is a limiter that counts a failure once for each delay, as ours do.
type counting struct {
	always
	asked int
}

func (l *counting) WhenNew(int, failures.IsNew) time.Duration {
	l.asked++
	return time.Duration(l.always)
}

func TestAsk(t *testing.T) {
	l := &counting{always: 5}
	if d := failures.Ask(l, 1); d != 5 || l.asked != 1 {
		t.Errorf("%v, asked %d times", d, l.asked)
	}
	if d := failures.Ask(always(3), 1); d != 3 {
		t.Error(d)
	}
}
