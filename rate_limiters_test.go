package workqueue_test

import (
	"fmt"
	"math"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"golang.org/x/time/rate"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

const (
	longest = time.Duration(math.MaxInt64)
	lowest  = time.Duration(math.MinInt64)
)

// wantDelays asserts what limiter says to as many failures of key in a row.
func wantDelays[T comparable](t *testing.T, limiter workqueue.TypedRateLimiter[T], key T,
	want ...time.Duration) {
	t.Helper()
	for i, w := range want {
		if d := limiter.When(key); d != w {
			t.Errorf("failure %d of %v: When() = %v, want %v", i+1, key, d, w)
		}
	}
}

func TestLimitersThatCount(t *testing.T) {
	type limiter = workqueue.TypedRateLimiter[any]
	const ms, s, m = time.Millisecond, time.Second, time.Minute
	exponential, fastSlow := workqueue.NewItemExponentialFailureRateLimiter, workqueue.NewItemFastSlowRateLimiter
	for name, tt := range map[string]struct {
		limiter limiter
		want    []time.Duration
	}{
		"doubles": {exponential(ms, s), []time.Duration{1 * ms, 2 * ms, 4 * ms, 8 * ms, 16 * ms, 32 * ms,
			64 * ms, 128 * ms, 256 * ms, 512 * ms, s, s}},
		"max is no power": {exponential(3, 10), []time.Duration{3, 6, 10, 10}},
		"base is max":     {exponential(s, s), []time.Duration{s, s}},
		"base above max":  {exponential(s, ms), []time.Duration{ms, ms}},
		"no base":         {exponential(0, s), []time.Duration{0, 0, 0}},
		"no max":          {exponential(s, 0), []time.Duration{0, 0}},
		"negative base":   {exponential(-s, s), []time.Duration{0, 0}},
		"negative max":    {exponential(s, -s), []time.Duration{0, 0}},
		"both negative":   {exponential(lowest, lowest), []time.Duration{0, 0}},
		"largest":         {exponential(longest, longest), []time.Duration{longest, longest, longest}},
		"overflow":        {exponential(longest/2+1, longest), []time.Duration{longest/2 + 1, longest, longest}},
		"just no overflow": {exponential(longest/2, longest), []time.Duration{longest / 2, longest - 1,
			longest, longest}},
		"fast, then slow":   {fastSlow(s, m, 3), []time.Duration{s, s, s, m, m}},
		"never fast":        {fastSlow(s, m, 0), []time.Duration{m, m}},
		"negative attempts": {fastSlow(s, m, math.MinInt), []time.Duration{m, m}},
		"always fast":       {fastSlow(s, m, math.MaxInt), []time.Duration{s, s}},
		"negative delays":   {fastSlow(-s, -m, 1), []time.Duration{0, 0}},
		"largest and least": {fastSlow(longest, lowest, 1), []time.Duration{longest, 0}},
		"several": {workqueue.NewMaxOfRateLimiter(exponential(1, 4), fastSlow(3, 2, 1)),
			[]time.Duration{3, 2, 4, 4}},
		"cut": {workqueue.NewWithMaxWaitRateLimiter(exponential(1, 4), 3),
			[]time.Duration{1, 2, 3, 3}},
		"zero exponential": {&workqueue.ItemExponentialFailureRateLimiter{}, make([]time.Duration, 100)},
		"zero fast, slow":  {&workqueue.ItemFastSlowRateLimiter{}, make([]time.Duration, 100)},
	} {
		t.Run(name, func(t *testing.T) {
			wantRequeues := func(key string, want int) {
				t.Helper()
				if n := tt.limiter.NumRequeues(key); n != want {
					t.Errorf("NumRequeues(%s) = %d, want %d", key, n, want)
				}
			}
			wantDelays[any](t, tt.limiter, "b", tt.want[0])
			for range 2 {
				wantRequeues("a", 0)
				wantDelays[any](t, tt.limiter, "a", tt.want...) // keys do not know of each other
				wantRequeues("a", len(tt.want))
				tt.limiter.Forget("a")
				tt.limiter.Forget("never seen")
			}
			wantRequeues("b", 1)
		})
	}
}

// checkExponential asserts that the n delays after the first failures are those of the formula.
func checkExponential(t rapid.TB, base, limit int64, first uint32, n int) {
	t.Helper()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Duration(base),
		time.Duration(limit))
	workqueue.CountFailures(limiter, 1, first)
	top := big.NewInt(max(limit, 0))
	for failures := int(first); failures < int(first)+n; failures++ {
		want := top
		if base <= 0 || failures < 64 { // A shift by more is above every limit.
			want = new(big.Int).Lsh(big.NewInt(max(base, 0)), uint(min(failures, 64)))
		}
		if want.Cmp(top) > 0 {
			want = top
		}
		if d := limiter.When(1); d < 0 || int64(d) != want.Int64() {
			t.Fatalf("base %d, limit %d, failure %d: When() = %d, want %v", base, limit, failures+1, d, want)
		}
	}
}

// FuzzLimiters tries client-go's limiters by key with any arguments: the exponential one is exact; a longest
// delay cuts, the longest of several counts, and none is ever negative or becomes shorter with a failure.
func FuzzLimiters(f *testing.F) {
	f.Fuzz(func(t *testing.T, base, limit int64, failures uint32, fast, slow int64, attempts int,
		longest int64) {
		failures %= math.MaxInt32 // where the count stops
		checkExponential(t, base, limit, failures, 3)
		exponential := func() workqueue.TypedRateLimiter[int] {
			return workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Duration(base), time.Duration(limit))
		}
		steps := func() workqueue.TypedRateLimiter[int] {
			return workqueue.NewTypedItemFastSlowRateLimiter[int](time.Duration(fast), time.Duration(slow), attempts)
		}
		one, other := exponential(), steps()
		both := workqueue.NewTypedWithMaxWaitRateLimiter(
			workqueue.NewTypedMaxOfRateLimiter(exponential(), steps()), time.Duration(longest))
		var last time.Duration
		for n := 1; n <= 70; n++ {
			d, e := one.When(1), other.When(1)
			want := slow
			if n <= attempts {
				want = fast
			}
			if int64(e) != max(want, 0) {
				t.Fatalf("failure %d: the second limiter says %d, want %d", n, e, want)
			}
			if d < last || d > max(time.Duration(limit), 0) {
				t.Fatalf("failure %d: %d after %d, of at most %d", n, d, last, limit)
			}
			last = d
			if got, want := both.When(1), max(0, min(max(d, e), time.Duration(longest))); got != want {
				t.Fatalf("failure %d: %d and %d, of at most %d, make %d, want %d", n, d, e, longest, got, want)
			}
			if r := both.NumRequeues(1); r != n {
				t.Fatalf("NumRequeues() = %d, want %d", r, n)
			}
		}
		if both.Forget(1); both.NumRequeues(1) != 0 {
			t.Fatal("Forget does not forget")
		}
	})
}

// No number of failures is too large, and the count stops before it would start anew.
func TestRateLimitersAfterManyFailures(t *testing.T) {
	for _, n := range []uint32{61, 62, 63, 64, 65, 1 << 16, 1<<31 - 3} {
		for _, limiter := range []workqueue.TypedRateLimiter[string]{
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](1, longest),
			workqueue.NewTypedItemFastSlowRateLimiter[string](1, longest, 3),
		} {
			workqueue.CountFailures(limiter, "a", n)
			for i := range 5 {
				want := longest
				if _, ok := limiter.(*workqueue.TypedItemExponentialFailureRateLimiter[string]); ok && n+uint32(i) < 63 {
					want = 1 << (n + uint32(i))
				}
				wantDelays(t, limiter, "a", want)
			}
			if got, want := limiter.NumRequeues("a"), int(min(n+5, math.MaxInt32)); got != want {
				t.Errorf("%T: NumRequeues() = %d, want %d", limiter, got, want)
			}
			limiter.Forget("a")
			wantDelays(t, limiter, "a", 1)
		}
	}
}

func TestMaxOfRateLimiter(t *testing.T) {
	counting := workqueue.NewTypedItemExponentialFailureRateLimiter[string](1, 100)
	limiter := workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemFastSlowRateLimiter[string](5, 3, 3), counting,
		&workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(rate.Inf, 0)},
	)
	wantDelays(t, limiter, "a", 5, 5, 5, 8, 16, 32, 64, 100, 100)
	counting.When("a")
	if n := limiter.NumRequeues("a"); n != 10 {
		t.Errorf("NumRequeues() = %d, want 10, the largest", n)
	}
	limiter.Forget("a")
	if limiter.NumRequeues("a") != 0 || counting.NumRequeues("a") != 0 {
		t.Error("Forget does not reach all limiters")
	}
	empty := &workqueue.TypedMaxOfRateLimiter[string]{}
	wantDelays(t, empty, "a", 0, 0)
	empty.Forget("a")
	// A delay below zero is zero.
	negative := workqueue.NewTypedMaxOfRateLimiter[string](&script{delays: []time.Duration{-5, lowest}})
	wantDelays(t, negative, "a", 0, 0)
}

func TestWithMaxWaitRateLimiter(t *testing.T) {
	for _, tt := range []struct {
		max  time.Duration
		want []time.Duration
	}{
		{10, []time.Duration{1, 10, 0, 0, 10}}, {0, make([]time.Duration, 5)}, {-1, make([]time.Duration, 5)},
		{lowest, make([]time.Duration, 5)}, {longest, []time.Duration{1, 11, 0, 0, longest}},
	} {
		inner := &script{delays: []time.Duration{1, 11, -1, lowest, longest}}
		limiter := workqueue.NewTypedWithMaxWaitRateLimiter(inner, tt.max)
		wantDelays(t, limiter, "a", tt.want...)
		if n := limiter.NumRequeues("a"); n != 42 {
			t.Errorf("NumRequeues() = %d", n)
		}
		limiter.Forget("a")
		if last := inner.asked[len(inner.asked)-1]; last != "Forget a" {
			t.Errorf("the last call is %s, want Forget", last)
		}
	}
}

func TestBucketRateLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := &workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(10, 3)}
		const step = 100 * time.Millisecond
		wantDelays(t, limiter, "a", 0, 0)
		wantDelays(t, limiter, "b", 0, step, 2*step) // one bucket for all keys
		limiter.Forget("b")
		wantDelays(t, limiter, "b", 3*step)
		if n := limiter.NumRequeues("b"); n != 0 {
			t.Errorf("NumRequeues() = %d of a bucket", n)
		}
		time.Sleep(time.Second)
		wantDelays(t, limiter, "a", 0, 0, 0, step)

		closed := &workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(1, 0)}
		wantDelays(t, closed, "a", longest)
		open := &workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(rate.Inf, 0)}
		wantDelays(t, open, "a", 0, 0)
	})
}

func TestDefaultRateLimiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, limiter := range map[string]workqueue.TypedRateLimiter[any]{
			"untyped": workqueue.DefaultControllerRateLimiter(),
			"typed":   workqueue.DefaultTypedControllerRateLimiter[any](),
		} {
			delay := 5 * time.Millisecond
			for failure := range 25 {
				if d := limiter.When("a"); d != min(delay, 1000*time.Second) {
					t.Errorf("%s: failure %d: When() = %v, want %v", name, failure+1, d, delay)
				}
				delay *= 2
			}
			// The bucket's burst is 100. 25 tokens are used, and 10 come a second.
			for i := range 200 {
				want := max(5*time.Millisecond, time.Duration(i-74)*100*time.Millisecond)
				if d := limiter.When(i).Round(time.Microsecond); d != want { // the bucket counts in floats
					t.Fatalf("%s: When() of another key, number %d = %v, want %v", name, i, d, want)
				}
			}
		}
		for name, limiter := range map[string]workqueue.TypedRateLimiter[any]{
			"untyped": workqueue.DefaultItemBasedRateLimiter(),
			"typed":   workqueue.DefaultTypedItemBasedRateLimiter[any](),
		} {
			delay := time.Millisecond
			for failure := range 100 {
				if d := limiter.When("a"); d != delay {
					t.Errorf("item based, %s: failure %d: When() = %v, want %v", name, failure+1, d, delay)
				}
				delay = min(2*delay, 1000*time.Second)
			}
		}
	})
}

// Failures are counted exactly, however many goroutines count them. (Buckets
// count none.)
func TestRateLimitersAreConcurrent(t *testing.T) {
	for _, limiter := range []workqueue.TypedRateLimiter[int]{
		workqueue.NewTypedItemExponentialFailureRateLimiter[int](1, 1000),
		workqueue.NewTypedItemFastSlowRateLimiter[int](1, 2, 5),
		workqueue.DefaultTypedControllerRateLimiter[int](),
		workqueue.NewTypedWithMaxWaitRateLimiter(workqueue.DefaultTypedItemBasedRateLimiter[int](), time.Second),
		workqueue.NewTypedItemBackoffRateLimiter(hurried(workqueue.FullJitter)),
	} {
		const workers, keys, failures = 8, 10, 200
		var all sync.WaitGroup
		for worker := range workers {
			all.Go(func() {
				for i := range failures {
					for key := range keys {
						limiter.When(key)
						limiter.NumRequeues(key)
						limiter.When(1000 + worker)
						if i%3 == 0 {
							limiter.Forget(1000 + worker)
						}
					}
				}
			})
		}
		all.Wait()
		if limiter.NumRequeues(0) == 0 { // A bucket does not count.
			continue
		}
		for key := range keys {
			if n := limiter.NumRequeues(key); n != workers*failures {
				t.Errorf("%T: NumRequeues(%d) = %d, want %d", limiter, key, n, workers*failures)
			}
		}
	}
}

// hurriedClock advances by a second with each reading.
type hurriedClock struct{ readings atomic.Int64 }

func (c *hurriedClock) Now() time.Time {
	return testkit.Epoch.Add(time.Duration(c.readings.Add(1)) * time.Second)
}

func (c *hurriedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// hurried configures a limiter for which each delay has passed when it is called again.
func hurried(jitter workqueue.Jitter) workqueue.BackoffConfig[int] {
	return workqueue.BackoffConfig[int]{Max: time.Second, Jitter: jitter, ForgetAfter: math.MaxInt64,
		Clock: &hurriedClock{}}
}

// A key that cannot be kept makes every method of a limiter that counts by key panic.
func TestLimitersRefuseBadKeys(t *testing.T) {
	build := map[string]func() workqueue.TypedRateLimiter[any]{
		"exponential": func() workqueue.TypedRateLimiter[any] {
			return workqueue.NewTypedItemExponentialFailureRateLimiter[any](1, 2)
		},
		"fast slow": func() workqueue.TypedRateLimiter[any] {
			return workqueue.NewTypedItemFastSlowRateLimiter[any](1, 2, 3)
		},
		"backoff": func() workqueue.TypedRateLimiter[any] {
			return workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[any]{})
		},
	}
	for name, build := range build {
		for _, others := range [][]any{nil, {1}, {1, "a", 2.5}} {
			for _, bad := range []any{math.NaN(), []int{1}} {
				l := build()
				for _, key := range others {
					l.When(key)
				}
				word := fmt.Sprintf("%T", bad)
				what := fmt.Sprintf("%s with %d keys: ", name, len(others))
				testkit.WantPanic(t, what+"When", func() { l.When(bad) }, word)
				testkit.WantPanic(t, what+"NumRequeues", func() { l.NumRequeues(bad) }, word)
				testkit.WantPanic(t, what+"Forget", func() { l.Forget(bad) }, word)
				for _, key := range others {
					l.Forget(key)
				}
			}
		}
	}
}

// failure is a call of a limiter at a time, and what becomes of it.
type failure struct {
	at, delay time.Duration
	requeues  int
}

func wantFailures(t *testing.T, l workqueue.TypedRateLimiter[string], c *testingclock.FakeClock,
	failures ...failure) {
	t.Helper()
	for _, f := range failures {
		c.SetTime(testkit.Epoch.Add(f.at))
		if d := l.When("key"); d != f.delay {
			t.Errorf("at %v: When() = %v, want %v", f.at, d, f.delay)
		}
		if n := l.NumRequeues("key"); n != f.requeues {
			t.Errorf("at %v: NumRequeues() = %d, want %d", f.at, n, f.requeues)
		}
	}
}

const second = time.Second

func bySecond(c *testingclock.FakeClock) workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{Base: second,
		Max: 10 * second, Clock: c})
}

// A call that fails before the delay of the failure before it has passed is the same failure.
func TestSameFailure(t *testing.T) {
	c := testkit.NewFakeClock()
	l := bySecond(c)
	wantFailures(t, l, c,
		failure{0, second, 1}, failure{0, second, 1}, failure{second - 1, 1, 1},
		failure{second, 2 * second, 2}, failure{2 * second, second, 2}, failure{3*second - 1, 1, 2},
		failure{4 * second, 4 * second, 3}, failure{5 * second, 3 * second, 3}, failure{5 * second, 3 * second, 3},
	)
	l.When("another")
	l.Forget("key")
	wantFailures(t, l, c, failure{5 * second, second, 1})
	if n := l.NumRequeues("another"); n != 1 {
		t.Errorf("NumRequeues of the other key = %d", n)
	}
	// A clock that is set back does not make the delay longer than it was.
	c.SetTime(testkit.Epoch)
	if d := l.When("key"); d != second {
		t.Errorf("after the clock was set back: %v", d)
	}
}

// A key that is kept forever has its delays as well, and so has a key that is never to come.
func TestSameFailureOfKeysThatAreKept(t *testing.T) {
	c := testkit.NewFakeClock()
	l := workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{Base: second,
		ForgetAfter: math.MaxInt64, Clock: c})
	wantFailures(t, l, c, failure{0, second, 1}, failure{second / 4, 3 * second / 4, 1},
		failure{second, 2 * second, 2},
		failure{century / 4, 4 * second, 3}, failure{century/4 + second, 3 * second, 3})
	l = workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{Base: second,
		ForgetAfter: math.MaxInt64, Clock: c, Bucket: rate.NewLimiter(1, 0)})
	wantFailures(t, l, c, failure{century / 4, math.MaxInt64, 1})
	c.Step(century / 4)
	if d := l.When("key"); d < century || l.NumRequeues("key") != 1 {
		t.Errorf("When() = %v of a key that is never to come", d)
	}
}

// The same failure takes no token, also if it is the bucket that makes the key wait.
func TestSameFailureTakesNoToken(t *testing.T) {
	c := testkit.NewFakeClock()
	tokens := rate.NewLimiter(rate.Every(32*second), 2)
	l := workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{Base: second,
		Max: 10 * second, Clock: c, Bucket: tokens})
	wantFailures(t, l, c, failure{0, second, 1}, failure{0, second, 1}, failure{second / 2, second / 2, 1},
		failure{second, 2 * second, 2},      // the second token
		failure{3 * second, 29 * second, 3}, // the token of 32 s; the key's own delay is 4 s
		failure{31 * second, second, 3},
		failure{32 * second, 32 * second, 4})
	if left := tokens.TokensAt(c.Now()); left < -1.01 || left > -.99 {
		t.Errorf("%v tokens are left, want -1", left)
	}
}

// NewTypedControllerRateLimiter has the numbers of client-go's default.
func TestControllerRateLimiter(t *testing.T) {
	c := testkit.NewFakeClock()
	l, theirs := workqueue.NewTypedControllerRateLimiter[int](c),
		workqueue.DefaultTypedControllerRateLimiter[int]()
	for range 25 {
		d := l.When(1)
		if want := theirs.When(1); d != want {
			t.Errorf("When() = %v, client-go's default says %v", d, want)
		}
		c.Step(d)
	}
	synctest.Test(t, func(t *testing.T) { // their bucket has the real clock
		l, theirs := workqueue.NewTypedControllerRateLimiter[int](nil),
			workqueue.DefaultTypedControllerRateLimiter[int]()
		for key := range 200 {
			if d, want := l.When(key), theirs.When(key); d != want {
				t.Errorf("When(%d) = %v, client-go's default says %v", key, d, want)
			}
		}
	})
}

// Base and Max of a key come from a function. What it leaves out is that of all.
func TestBackoffForKey(t *testing.T) {
	c := testkit.NewFakeClock()
	calls := 0
	for _, jitter := range []workqueue.Jitter{workqueue.NoJitter, workqueue.EqualJitter} {
		var l workqueue.TypedRateLimiter[string]
		l = workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{
			Base: second, Max: 4 * second, Jitter: jitter, Clock: c,
			ForKey: func(key string) (base, longest time.Duration) {
				calls++
				l.NumRequeues(key) // No lock is held.
				switch key {
				case "quick":
					return second / 10, second / 5
				case "slow":
					return time.Minute, time.Hour
				case "later":
					return 2 * second, 0
				case "short":
					return 0, second / 2
				case "odd":
					return -5, -5
				}
				return 0, 0
			},
		})
		for key, want := range map[string][]time.Duration{
			"quick": {second / 10, second / 5, second / 5},
			"slow": {60 * second, 120 * second, 240 * second, 480 * second, 960 * second, 1920 * second,
				3600 * second, 3600 * second},
			"later": {2 * second, 4 * second, 4 * second},
			"short": {second / 2, second / 2},
			"odd":   {second, 2 * second, 4 * second, 4 * second},
			"none":  {second, 2 * second, 4 * second, 4 * second},
		} {
			for i, w := range want {
				d := l.When(key)
				low, high := w, w
				if jitter == workqueue.EqualJitter {
					low = w / 2
				}
				if d < low || d > high {
					t.Errorf("%v, %s: delay %d = %v, want %v to %v", jitter, key, i, d, low, high)
				}
				c.Step(d - 1)
				if left := l.When(key); left != 1 {
					t.Errorf("%v, %s: %v is left of delay %d", jitter, key, left, i)
				}
				c.Step(1)
			}
		}
	}
	if calls != 2*2*24 {
		t.Errorf("%d calls", calls)
	}
}
