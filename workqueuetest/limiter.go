package workqueuetest

import (
	"slices"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
)

// scriptedLimiter returns the delays that a case sets, and records its calls.
type scriptedLimiter struct {
	mu     sync.Mutex
	delays []time.Duration
	asked  []string
	panics bool
}

func (l *scriptedLimiter) When(item string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.panics {
		panic("limiter")
	}
	l.asked = append(l.asked, "When "+item)
	d := l.delays[0]
	l.delays = l.delays[1:]
	return d
}

func (l *scriptedLimiter) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, what)
}

func (l *scriptedLimiter) Forget(item string) { l.note("Forget " + item) }

func (l *scriptedLimiter) NumRequeues(item string) int {
	l.note("NumRequeues " + item)
	return 42
}

func limiterCases() []testCase {
	return []testCase{
		bubbled("AddRateLimitedOfWaitingKey", "AddRateLimited of a waiting key asks the limiter again (unless declared otherwise), and the earliest time wins.", tryAddRateLimitedOfWaitingKey),
		bubbled("Forget", "Forget and NumRequeues call the limiter, and no other method but AddRateLimited does.", tryForget),
		bubbled("LimiterPanics", "A panic of the limiter reaches the caller, and the queue stays usable.", tryLimiterPanics),
	}
}

func (r *run) limiting(delays ...time.Duration) (limiting, *scriptedLimiter) {
	l := &scriptedLimiter{delays: delays}
	return capable[limiting](r, Config[string]{RateLimiter: l}), l
}

func (r *run) wantAsked(l *scriptedLimiter, want ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.asked, want) {
		r.Fatalf("the limiter was asked %q, want %q", l.asked, want)
	}
}

func tryAddRateLimitedOfWaitingKey(r *run) {
	q, l := r.limiting(5*time.Second, 2*time.Second, time.Minute)
	q.AddRateLimited("a")
	q.AddRateLimited("a")
	q.AddRateLimited("a")
	if r.suite.MergesRetries {
		r.pass(2*time.Second - 1)
		r.wantLen(q, "before all of the times", 0)
		r.pass(3*time.Second + 1)
		r.process(q, "at the first of the times, or earlier", "a")
	} else {
		r.wantAsked(l, "When a", "When a", "When a")
		r.pass(2*time.Second - 1)
		r.wantLen(q, "before the earliest of the times", 0)
		r.pass(1)
		r.process(q, "at the earliest of the times", "a")
	}
	r.pass(time.Hour)
	r.wantLen(q, "an hour later", 0)
}

func tryForget(r *run) {
	q, l := r.limiting()
	q.Forget("a")
	if n := q.NumRequeues("b"); n != 42 {
		r.Fatalf("NumRequeues() = %d, and the limiter says 42", n)
	}
	want := []string{"Forget a", "NumRequeues b"}
	r.wantAsked(l, want...)
	q.Add("c")
	q.AddAfter("d", time.Second)
	q.AddAfter("e", 0)
	r.process(q, "c and e added", "c", "e")
	r.pass(time.Second)
	r.process(q, "d due", "d")
	q.ShutDown()
	r.wantAsked(l, want...)
}

func tryLimiterPanics(r *run) {
	q, l := r.limiting(time.Second)
	l.panics = true
	if v := testkit.PanicOf(func() { q.AddRateLimited("a") }); v != "limiter" {
		r.Fatalf("AddRateLimited panics with %v, and the limiter with %q", v, "limiter")
	}
	l.panics = false
	q.AddRateLimited("a")
	r.pass(time.Second)
	r.process(q, "after a limiter that panicked", "a")
}
