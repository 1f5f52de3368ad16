package workqueue_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

// script is a limiter that returns given delays, and remembers its calls.
type script struct {
	delays []time.Duration
	asked  []string
	on     func()
}

func (s *script) When(item string) time.Duration {
	if s.on != nil {
		s.on()
	}
	s.asked = append(s.asked, "When "+item)
	d := s.delays[0]
	s.delays = s.delays[1:]
	return d
}

func (s *script) Forget(item string) { s.asked = append(s.asked, "Forget "+item) }

func (s *script) NumRequeues(item string) int {
	s.asked = append(s.asked, "NumRequeues "+item)
	return 42
}

func TestNewQueueOverAForeignQueue(t *testing.T) {
	foreign := struct {
		workqueue.TypedDelayingInterface[string]
	}{workqueue.NewTypedDelayingQueue[string]()}
	config := workqueue.TypedRateLimitingQueueConfig[string]{DelayingQueue: foreign}
	testkit.WantPanic(t, "NewQueue", func() { workqueue.NewQueue(nil, config) }, "package foreign")
}

// A StatsProvider sees how many keys fail: it watches the outermost layer.
func TestStatsProviderSeesFailingKeys(t *testing.T) {
	provider := &reader{}
	q := workqueue.NewQueue(nil, workqueue.TypedRateLimitingQueueConfig[string]{
		Name: "q", MetricsProvider: provider})
	defer q.ShutDown()
	q.Add("a")
	q.Get()
	q.Fail(t.Context(), "a", workqueue.Failure{})
	if st := provider.stats[0](); len(provider.stats) != 1 || st.Failing != 1 || st.Processing != 1 {
		t.Errorf("%d watched, %+v", len(provider.stats), st)
	}
}

// A limiter that hangs blocks only its caller: no lock is held while it is asked.
func TestLimiterHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		limiter := &script{delays: []time.Duration{time.Second}, on: func() { <-stuck }}
		q := endAfterFailure(t, options[string]{limiter: limiter}.rateLimiting())
		add := testkit.Start(func() bool { q.AddRateLimited("a"); return true })
		add.MustBlock(t, "AddRateLimited")
		q.Add("b")
		q.AddAfter("c", time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		process[string](t, q, "b", "c")
		close(stuck)
		add.MustReturn(t, "AddRateLimited")
		time.Sleep(time.Second)
		synctest.Wait()
		process[string](t, q, "a")
		q.ShutDown()
	})
}

// The whole life of a key that fails, with the limiter that a nil one stands for.
func TestNilLimiterIsTheDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := endAfterFailure(t, options[string]{}.rateLimiting())
		delay := 5 * time.Millisecond
		for failures := range 10 {
			if n := q.NumRequeues("a"); n != failures {
				t.Fatalf("NumRequeues() = %d, want %d", n, failures)
			}
			q.AddRateLimited("a")
			time.Sleep(delay - 1)
			synctest.Wait()
			wantLen[string](t, q, 0)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			process[string](t, q, "a")
			delay *= 2
		}
		if q.Forget("a"); q.NumRequeues("a") != 0 {
			t.Errorf("NumRequeues() = %d after Forget", q.NumRequeues("a"))
		}
		q.ShutDown()
	})
}

// A key waits for one token, however often it is added meanwhile (argoproj/argo-cd#17257).
func TestMergedAddsTakeOneToken(t *testing.T) {
	c := testkit.NewFakeClock()
	l := workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{
		Max: 1, Bucket: rate.NewLimiter(1, 1), Clock: c})
	l.When("burst")
	for range 60 {
		if d := l.When("noisy"); d != time.Second {
			t.Fatalf("noisy waits %v", d)
		}
	}
	if d := l.When("other"); d != 2*time.Second {
		t.Errorf("other waits %v", d)
	}
	c.Step(time.Second) // noisy comes.
	if d := l.When("noisy"); d != 2*time.Second {
		t.Errorf("noisy waits %v once more", d)
	}
	l.Forget("noisy")
	if d := l.When("noisy"); d != 3*time.Second {
		t.Errorf("noisy waits %v after Forget", d)
	}
}

// wallClock is a clock that somebody sets.
type wallClock struct {
	clock.RealClock
	set atomic.Int64
}

func (c *wallClock) Now() time.Time { return time.Now().Add(time.Duration(c.set.Load())) }

func (c *wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// A clock that is set back makes no delay of a failure longer than it was.
func TestFailAndTheClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &wallClock{}
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Second)
		config := workqueue.TypedRateLimitingQueueConfig[string]{Clock: c}
		q := workqueue.NewQueue(limiter, config)
		defer q.ShutDown()
		fail := func(attempt int, same bool) {
			t.Helper()
			q.Add("a")
			hold(t, q, "a")
			r, err := q.Fail(t.Context(), "a", workqueue.Failure{})
			if r.Attempt != attempt || r.Same != same || r.Delay > time.Second || err != nil {
				t.Errorf("Fail() = %+v, %v, want attempt %d, the same: %v", r, err, attempt, same)
			}
			q.Done("a")
		}
		fail(1, false)
		c.set.Store(-int64(time.Hour))
		fail(1, true)
		time.Sleep(5 * time.Millisecond)
		fail(2, false)
		c.set.Store(0) // Forward again: that ends one delay at most.
		fail(3, false)
		for range 20 {
			fail(3, true)
		}
		q.Forget("a")
		fail(1, false)
	})
}

// A clock can begin at the zero time, as a fake one often does.
func TestFailAtTheZeroTime(t *testing.T) {
	c := testingclock.NewFakeClock(time.Time{})
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)
	config := workqueue.TypedRateLimitingQueueConfig[string]{Clock: c}
	q := workqueue.NewQueue(limiter, config)
	defer q.ShutDown()
	q.Add("a")
	hold(t, q, "a")
	for attempt := 1; attempt <= 3; attempt++ {
		r, _ := q.Fail(t.Context(), "a", workqueue.Failure{})
		if r.Attempt != attempt || r.Same {
			t.Errorf("%+v at attempt %d", r, attempt)
		}
		c.Step(r.Delay)
	}
}

// The queue counts on although its limiter forgets by itself.
func TestFailOverLimiterThatForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{Base: time.Second,
			ForgetAfter: time.Second})
		q := workqueue.NewQueue(limiter, workqueue.TypedRateLimitingQueueConfig[string]{})
		defer q.ShutDown()
		q.Add("a")
		for attempt := 1; ; attempt++ {
			hold(t, q, "a")
			time.Sleep(time.Hour) // The call takes as long.
			r, _ := q.Fail(t.Context(), "a", workqueue.Failure{MaxRetries: 3})
			q.Done("a")
			if r.Attempt != attempt || r.GivenUp != (attempt == 4) {
				t.Errorf("%+v, want attempt %d", r, attempt)
			}
			if r.GivenUp {
				break
			}
			time.Sleep(r.Delay)
			synctest.Wait()
		}
	})
}

// After shutdown Fail takes back a retry that has come due while the key was held, and adds none.
func TestFailAfterShutDownTakesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewQueue[string](nil, workqueue.TypedRateLimitingQueueConfig[string]{})
		q.Add("a")
		hold(t, q, "a")
		q.Fail(t.Context(), "a", workqueue.Failure{AtLeast: time.Minute})
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := q.Stats(); st.Again != 1 {
			t.Errorf("Stats() = %+v, want the retry to be due", st)
		}
		q.ShutDown()
		q.Fail(t.Context(), "a", workqueue.Failure{AtLeast: time.Minute})
		q.Done("a")
		wantLen(t, q, 0)
	})
}
