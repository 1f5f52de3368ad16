package sharding

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// memberLog calls a program's logger until it is ended. The logger may block, for example on a pipe that
// nobody reads, so it is never called under Member.mu.
type memberLog struct {
	to *slog.Logger

	mu    sync.Mutex // guards ended: no call begins after it
	ended bool
	calls sync.WaitGroup
}

func (l *memberLog) log(level slog.Level, message string, args ...any) {
	if l.begin() {
		defer l.calls.Done()
		l.to.Log(context.Background(), level, message, args...)
	}
}

func (l *memberLog) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.calls.Add(1)
	}
	return !l.ended
}

// end returns when the logger is not called any more: then the program may close what it writes to.
func (l *memberLog) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.calls.Wait()
}

// failureCount counts how often something has failed, as long as no two leases pass without a failure.
type failureCount struct {
	failures int
	last     time.Duration
}

// logFailure logs the first failure of something, and each doubling of their number, unless the member has
// ended. A success does not reset the count: what fails is often tried only now and then.
func (m *Member) logFailure(c *failureCount, message string, err error) {
	if err == nil || m.ctx.Err() != nil {
		return
	}
	now := m.now()
	if now-c.last >= 2*m.config.Lease {
		c.failures = 0
	}
	c.failures, c.last = c.failures+1, now
	if c.failures&(c.failures-1) == 0 {
		m.logger.log(slog.LevelWarn, message, "member", m.ID(), "failures", c.failures, "err", err)
	}
}
