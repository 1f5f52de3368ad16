package failures_test

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/failures"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// always is a limiter with one delay.
type always time.Duration

func (d always) When(int) time.Duration { return time.Duration(d) }

// fail is what a queue in memory does when a call has failed.
func fail(counts *failures.Counts[int], key int, f failures.Failure, l always) failures.Retry {
	h := keytable.HashOf(key)
	r := counts.Judge(h, key, f, l, false)
	if !r.GivenUp {
		counts.Record(h, key, r, f.Err)
	}
	return r
}

// A failing key whose user never calls Forget is dropped an hour after its delay has ended, by calls for
// other keys, and with it its memory. A key that is still in the queue stays.
func TestForgottenByItself(t *testing.T) {
	const n = 100_000
	c := testkit.NewFakeClock()
	counts := failures.New(c, func(key int) bool { return key == 7 })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for key := range n {
		fail(counts, key, failures.Failure{}, always(time.Minute))
	}
	c.Step(61*time.Minute - 1)
	counts.Forget(-1)
	if f := counts.Of(n - 1); f.Count != 1 {
		t.Fatal("a key is gone before its time")
	}
	c.Step(1)
	for range n/1000 + 1 {
		counts.Forget(-1)
	}
	if left := keysOf(counts, math.MaxInt); !slices.Equal(left, []int{7}) || counts.Of(7).Count != 1 {
		t.Fatalf("%d keys are left", len(left))
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
	if f := counts.Of(7); f.Count != 1 || f.Left != 0 {
		t.Errorf("%d failures, %v left of a key in the queue", f.Count, f.Left)
	}
	if r := fail(counts, 7, failures.Failure{MaxRetries: 1}, always(0)); r != (failures.Retry{Attempt: 2, GivenUp: true}) {
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

// pure is a limiter that can say how long the n-th failure waits.
type pure struct{ always }

func (pure) Delay(_, n int) time.Duration { return time.Duration(n) }

// A limiter that need not count is not asked to.
func TestAsk(t *testing.T) {
	if d := failures.Ask(pure{9}, 1, 5); d != 5 {
		t.Error(d)
	}
	if d := failures.Ask(always(3), 1, 5); d != 3 {
		t.Error(d)
	}
}

// What is kept of a failure: since when the key fails, and the text of the latest error, also of the same
// failure, within its bound. RetryFor counts from the first failure.
func TestWhatIsKept(t *testing.T) {
	c := testkit.NewFakeClock()
	counts, since := failures.New(c, func(int) bool { return true }), c.Now()
	fail := func(f failures.Failure) failures.Retry { return fail(counts, 1, f, always(time.Second)) }
	fail(failures.Failure{Err: errors.New("first")})
	c.Step(time.Second / 2)
	fail(failures.Failure{Err: errors.New("the same")})
	want := failures.Failures{Count: 1, Left: time.Second / 2, Since: since, Err: "the same"}
	if got := counts.Of(1); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	c.Step(time.Second)
	fail(failures.Failure{Err: errors.New(strings.Repeat("ä", 300)), RetryFor: 1500 * time.Millisecond})
	got := counts.Of(1)
	if got.Count != 2 || !got.Since.Equal(since) || len(got.Err) > 512 || !strings.HasSuffix(got.Err, "ä…") {
		t.Errorf("%+v", got)
	}
	c.Step(1)
	if r := fail(failures.Failure{RetryFor: 1500 * time.Millisecond}); !r.GivenUp || counts.Of(1).Count != 0 {
		t.Errorf("%+v, then %+v", r, counts.Of(1))
	}
	if r := fail(failures.Failure{RetryFor: 1}); r.GivenUp {
		t.Error("the first failure of a new row gives the key up")
	}
}

func keysOf(counts *failures.Counts[int], limit int) []int {
	return failures.Show(counts, limit, func(key int) (int, bool) { return key, true })
}

// Show has the keys that have failed most often first, also if it has to drop many others. Len counts them
// all.
func TestShow(t *testing.T) {
	const n = 1000
	c := testkit.NewFakeClock()
	counts := failures.New(c, func(int) bool { return true })
	for key := range n {
		fail(counts, key, failures.Failure{}, always(0))
		c.Step(time.Second)
		if key%100 == 50 {
			fail(counts, key, failures.Failure{}, always(0))
		}
	}
	for limit, want := range map[int]int{-1: 0, 0: 0, 1: 1, 12: 12, n: n, math.MaxInt: n} {
		most := keysOf(counts, limit)
		if len(most) != want || counts.Len() != n {
			t.Fatalf("%d of %d keys with the limit %d", len(most), counts.Len(), limit)
		}
		if first := []int{50, 150, 250, 350, 450, 550, 650, 750, 850, 950, 0, 1}; !slices.Equal(
			most[:min(want, len(first))], first[:min(want, len(first))]) {
			t.Fatalf("with the limit %d the first keys are %v", limit, most[:min(want, len(first))])
		}
	}
	for key := range n {
		counts.Forget(key)
	}
	if most := keysOf(counts, n); len(most) > 0 || counts.Len() != 0 {
		t.Fatalf("forgotten: %v, %d", most, counts.Len())
	}
}
