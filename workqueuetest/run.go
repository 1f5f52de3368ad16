package workqueuetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// seedVariable is the environment variable with the seed of the random cases.
const seedVariable = "WORKQUEUE_SEED"

// forever is the virtual time after which a case is considered blocked. No case takes as long.
const forever = 1000 * time.Hour

// run is one run of a case. It collects failures instead of reporting them to the test, because some cases
// are expected to fail. Its methods are safe for concurrent use.
//
// A case ends when it returns or calls Fatalf or skip. Then its queues are shut down, and all goroutines must
// end.
type run struct {
	suite *Suite
	t     *testing.T // for bubbles
	seed  uint64

	clock clock.WithTicker
	fake  *testingclock.FakeClock // nil on the real clock

	mu struct {
		sync.Mutex
		outcome
		ends []func() // shuts down the queues of the case
	}
}

type outcome struct {
	failures []string
	skipped  string // why, if it could not be tried
	lacks    string // what the queue lacks, if it could not be tried for that
}

func (o outcome) String() string { return strings.Join(o.failures, "\n") }

func newRun(s *Suite, t *testing.T, seed uint64, fake bool) *run {
	r := &run{suite: s, t: t, seed: seed, clock: clock.RealClock{}}
	if fake {
		r.fake = testkit.NewFakeClock()
		r.clock = r.fake
	}
	return r
}

// newSeed returns the seed of the environment, or a random one.
func newSeed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64); err == nil {
		return n
	}
	return rand.Uint64()
}

// rand returns a source of random numbers that depends on the seed and on n.
func (r *run) rand(n int) *rand.Rand { return rand.New(rand.NewPCG(r.seed, uint64(n))) }

// try runs a case on every clock.
func (s Suite) try(t *testing.T, c testCase, seed uint64) outcome {
	clocks := []bool{false, true}
	if c.unbubbled || s.IgnoresClock {
		clocks = clocks[:1]
	}
	var o outcome
	for _, fake := range clocks {
		r := newRun(&s, t, seed, fake)
		if c.unbubbled {
			r.unbubbled(func() { c.try(r) })
		} else {
			r.bubbled(func() { c.try(r) })
		}
		got := r.outcome()
		got.failures = append(o.failures, got.failures...)
		o = got
	}
	return o
}

func (r *run) outcome() outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.outcome
}

// bubbled runs f in a bubble, and then ends what f has started. If goroutines are left after that, the bubble
// panics.
func (r *run) bubbled(f func()) {
	r.within(testkit.Patience, func() {
		var bubble string
		stacks := func() []byte { return testkit.GoroutinesOf(bubble).Since(nil) }
		defer func() {
			if v := recover(); v != nil && !r.Failed() {
				r.Errorf("goroutines are left after shutdown (%v):\n%s", v, stacks())
			}
		}()
		synctest.Test(r.t, func(*testing.T) {
			bubble = testkit.Bubble()
			r.within(forever, f, stacks)
			r.within(forever, r.endQueues, stacks)
			// Some goroutines only notice the shutdown when they next read the clock.
			for range 3 {
				synctest.Wait()
				time.Sleep(20 * time.Second)
				if r.fake != nil {
					r.fake.Step(20 * time.Second)
				}
			}
		})
	}, testkit.Stacks)
}

// unbubbled runs f in real time. All its goroutines must have ended soon after.
func (r *run) unbubbled(f func()) {
	others := goleak.IgnoreCurrent()
	r.within(testkit.Patience+stressTotal(), f, testkit.Stacks)
	r.within(testkit.Patience, r.endQueues, testkit.Stacks)
	if r.Failed() {
		return
	}
	if err := goleak.Find(others); err != nil {
		r.Errorf("goroutines are left after shutdown: %v", err)
	}
}

// within runs f in a goroutine, and waits for it, but no longer than d: virtual time in a bubble, real time
// outside. Then f is abandoned, because nothing can end a goroutine that waits for a mutex.
func (r *run) within(d time.Duration, f func(), stacks func() []byte) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.catch(f)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		r.Errorf("does not end within %v:\n%s", d, stacks())
	}
}

// catch calls f. A panic of f is a failure.
func (r *run) catch(f func()) {
	defer func() {
		if v := recover(); v != nil {
			r.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	f()
}

// group starts goroutines of a case, and waits for them.
type group struct {
	r *run
	sync.WaitGroup
}

func (g *group) start(f func()) { g.Go(func() { g.r.catch(f) }) }

func (r *run) endQueues() {
	r.mu.Lock()
	ends := r.mu.ends
	r.mu.ends = nil
	r.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// Helper makes a run a testkit.TB.
func (r *run) Helper() {}

func (r *run) Errorf(format string, args ...any) {
	failure := fmt.Sprintf(format, args...)
	if r.fake != nil {
		failure = "on a fake clock: " + failure
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	const most = 10 // of an endless loop
	if len(r.mu.failures) < most {
		r.mu.failures = append(r.mu.failures, failure)
	}
}

// Fatalf notes a failure and ends the calling goroutine.
func (r *run) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *run) Failed() bool { return len(r.outcome().failures) > 0 }

// skip ends a case that cannot run here.
func (r *run) skip(why string) {
	r.mu.Lock()
	r.mu.skipped = why
	r.mu.Unlock()
	runtime.Goexit()
}

// lacks ends a case that needs what the queue lacks.
func (r *run) lacks(what string) {
	r.mu.Lock()
	r.mu.lacks = what
	r.mu.Unlock()
	runtime.Goexit()
}

type (
	fifo     = workqueue.TypedInterface[string]
	delaying = workqueue.TypedDelayingInterface[string]
	limiting = workqueue.TypedRateLimitingInterface[string]
	extended = workqueue.Extended[string]
	failing  = workqueue.ExtendedRateLimiting[string]
)

// queue builds a queue with that config and the clock of the case.
func (r *run) queue(c Config[string]) fifo {
	if c.Clock == nil {
		c.Clock = r.clock
	}
	q := r.suite.New(c)
	r.atEnd(q.ShutDown)
	return q
}

func (r *run) atEnd(end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.ends = append(r.mu.ends, end)
}

// need returns q as a Q, or ends the case if q lacks what.
func need[Q any](r *run, q fifo, what string) Q {
	capable, ok := q.(Q)
	if !ok {
		r.lacks(what)
	}
	return capable
}

func (r *run) check(q fifo) {
	if r.suite.Check == nil {
		return
	}
	if err := r.suite.Check(q); err != nil {
		r.Fatalf("the inside of the queue: %v", err)
	}
}

// pass lets time pass on the clock of a case in a bubble, and waits until all goroutines are blocked.
func (r *run) pass(d time.Duration) {
	synctest.Wait()
	if r.fake != nil {
		r.fake.Step(d)
	} else {
		time.Sleep(d)
	}
	synctest.Wait()
}

// needFakeClock skips the case on the real clock.
func (r *run) needFakeClock() *testingclock.FakeClock {
	if r.suite.IgnoresClock {
		r.skip("the queue only uses the real clock")
	}
	if r.fake == nil {
		r.skip("on the real clock")
	}
	return r.fake
}

// hold gets keys, which must be want, and does not finish them.
func (r *run) hold(q fifo, want ...string) {
	for _, w := range want {
		if g := r.startGet(q).mustReturn("when key " + w + " is to come"); g.key != w || g.err != nil {
			r.Fatalf("Get() = %q, %v, want key %q", g.key, g.err, w)
		}
	}
}

func (r *run) wantLen(q fifo, when string, want int) {
	if n := q.Len(); n != want {
		r.Fatalf("%s: Len() = %d, want %d", when, n, want)
	}
}
