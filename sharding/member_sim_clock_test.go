package sharding

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// simClock is the clock of a simulated process: it shows a wrong time and runs too fast or too slow, and
// while the process is stopped, no timer fires.
type simClock struct {
	start time.Time
	wrong time.Duration
	rate  float64
	stop  *stopper
	// asleep is how long the machine was suspended: the monotonic clock and timers stand still meanwhile, and
	// the wall clock runs on.
	asleep      atomic.Int64
	suspendedAt time.Time // zero while the machine runs; guarded by stop.mu
}

func (c *simClock) Now() time.Time {
	return c.start.Add(c.wrong + time.Duration(float64(time.Since(c.start))*c.rate))
}

func (c *simClock) Since(t time.Time) time.Duration {
	c.stop.mu.Lock()
	defer c.stop.mu.Unlock()
	since := c.Now().Sub(t) - time.Duration(c.asleep.Load())
	if !c.suspendedAt.IsZero() { // It stands still: what began then must not seem to begin after its end.
		since -= time.Duration(float64(time.Since(c.suspendedAt)) * c.rate)
	}
	return since
}

// suspend suspends the machine for d, or less if the process is resumed before.
func (c *simClock) suspend(d time.Duration) {
	began := time.Now()
	resumes := func() {
		c.asleep.Add(int64(float64(time.Since(began)) * c.rate))
		c.suspendedAt = time.Time{}
	}
	if c.stop.stop(resumes) {
		time.AfterFunc(d, c.stop.resume)
		c.stop.mu.Lock()
		c.stop.moment, c.suspendedAt = 500*time.Millisecond, began
		c.stop.mu.Unlock()
	}
}

// real returns how long d takes.
func (c *simClock) real(d time.Duration) time.Duration {
	return time.Duration(float64(d)/c.rate) + 1
}

func (c *simClock) After(d time.Duration) <-chan time.Time { return c.NewTimer(d).C() }
func (c *simClock) Sleep(d time.Duration)                  { <-c.After(d) }

func (c *simClock) Tick(time.Duration) <-chan time.Time         { panic("not needed") }
func (c *simClock) NewTicker(d time.Duration) clock.Ticker      { panic("not needed") }
func (c *simClock) AfterFunc(time.Duration, func()) clock.Timer { panic("not needed") }

func (c *simClock) NewTimer(d time.Duration) clock.Timer {
	t := &simTimer{clock: c, c: make(chan time.Time, 1)}
	t.Reset(d)
	return t
}

type simTimer struct {
	clock *simClock
	c     chan time.Time
	mu    sync.Mutex
	timer *time.Timer
}

func (t *simTimer) C() <-chan time.Time { return t.c }

func (t *simTimer) Reset(d time.Duration) bool {
	was := t.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	var timer *time.Timer
	due, asleep := time.Now().Add(t.clock.real(d)), t.clock.asleep.Load()
	timer = time.AfterFunc(t.clock.real(d), func() {
		t.clock.stop.wait() // A process that is stopped sees its timers afterwards.
		for left := t.left(due, asleep); left > 0; left = t.left(due, asleep) {
			time.Sleep(left)
			t.clock.stop.wait()
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.timer == timer {
			select {
			case t.c <- t.clock.Now():
			default:
			}
		}
	})
	t.timer = timer
	return was
}

// left is how much later a timer fires because the machine was suspended meanwhile.
func (t *simTimer) left(due time.Time, asleep int64) time.Duration {
	return time.Until(due) + time.Duration(float64(t.clock.asleep.Load()-asleep)/t.clock.rate)
}

func (t *simTimer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		return false
	}
	was := t.timer.Stop()
	t.timer = nil
	select {
	case <-t.c:
	default:
	}
	return was
}

// stopper stops a process, as SIGSTOP does.
type stopper struct {
	mu      sync.Mutex
	stopped chan struct{} // closed when the process resumes; nil while it runs
	resumed time.Time     // when it went on last, and for a moment more has not noticed it
	moment  time.Duration
	resumes func()
}

func (s *stopper) wait() {
	for {
		s.mu.Lock()
		c := s.stopped
		s.mu.Unlock()
		if c == nil {
			return
		}
		<-c
	}
}

// isStopped counts the moment in which the process resumes as well: its timers, which end its handlers'
// contexts, fire in it. After a suspension they do not, and it looks at the clock a sixtieth of its lease
// later.
func (s *stopper) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped != nil || !s.resumed.IsZero() && time.Since(s.resumed) <= s.moment
}

// stop stops the process until resume, which calls resumes. It returns false if the process is stopped
// already.
func (s *stopper) stop(resumes func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped != nil {
		return false
	}
	s.stopped, s.resumes, s.moment = make(chan struct{}), resumes, 0
	return true
}

func (s *stopper) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped != nil {
		s.resumes()
		close(s.stopped)
		s.stopped, s.resumed = nil, time.Now()
	}
}

// stoppable is a logger that can be stopped, as a pipe that nobody reads. No mutex is held meanwhile.
type stoppable struct {
	slog.Handler
	stop *stopper
}

func (h stoppable) Enabled(context.Context, slog.Level) bool { return true }

func (h stoppable) Handle(ctx context.Context, r slog.Record) error {
	h.stop.wait()
	return h.Handler.Handle(ctx, r)
}

func (h stoppable) WithAttrs(attrs []slog.Attr) slog.Handler {
	return stoppable{h.Handler.WithAttrs(attrs), h.stop}
}
