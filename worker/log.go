package worker

import (
	"cmp"
	"log/slog"
	"strings"
)

// setLogger sets the logger. A pool does that in Run, so that a slog.SetDefault between New and Run counts.
func (t *Tracker[T]) setLogger() {
	t.logger = cmp.Or(t.options.Logger, slog.Default())
	if t.options.Name != "" {
		t.logger = t.logger.With("queue", t.options.Name)
	}
}

// logCall logs a key that is given up at level Error. At level Warn it logs failures number 1, 2, 4, 8 and so
// on in a row, slow-downs after 8, 16, 32 and so on calls in a row, and a lost lease. Other calls it logs at
// level Debug.
func (c *Tracked[T]) logCall() {
	t, r := c.tracker, &c.result
	level, message := slog.LevelDebug, "Handled a key"
	switch r.Next {
	case NextRetry:
		message = "The handler failed, its key is retried"
		if isPowerOfTwo(r.Attempt) && !c.retry.Same {
			level = slog.LevelWarn
		}
	case NextGiveUp:
		level, message = slog.LevelError, "The handler failed, its key is given up"
	case NextInterrupted:
		message = "The handler was interrupted, its key comes at once"
		if c.asked.handBack {
			message = "The end of the pool interrupted the handler, its key is handed back"
		}
	case NextLost:
		level, message = slog.LevelWarn, "The key's lease ended before the handler returned, its answer is ignored"
	}
	if isSlowedDown := c.slowDown > 0 || r.AtOnce > 0 && r.After > 0; isSlowedDown && isPowerOfTwo(r.AtOnce) {
		level, message = slog.LevelWarn, "A key comes at once again and again, it is slowed down"
	}
	// Not the handler's context, which may have ended.
	if !t.logger.Enabled(c.base, level) {
		return
	}
	args := []any{"key", r.Key, "next", r.Next.String(), "attempt", r.Attempt, "duration", r.Duration,
		"err", r.Err}
	if r.AtOnce > 0 {
		args = append(args, "atOnce", r.AtOnce)
	}
	if p, ok := r.Err.(*PanicError); ok {
		args = append(args, "stack", string(p.Stack))
	}
	t.logger.Log(c.base, level, message, t.withCauses(args, r.Key)...)
}

func isPowerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }

// withCauses appends to args the causes of a key that a worker has, if there are any.
func (t *Tracker[T]) withCauses(args []any, key T) []any {
	if causes := t.queue.Causes(key); !causes.IsZero() {
		args = append(args, "causes", causes.String())
	}
	return args
}

// cut returns s, or the beginning of it if it is longer than size. It does not keep the rest in memory.
func cut(s string, size int) string {
	if len(s) <= size {
		return s
	}
	return strings.Clone(strings.ToValidUTF8(s[:size], ""))
}
