package worker

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
)

// setLogger sets the logger. A pool does that in Run, so that a slog.SetDefault between New and Run counts.
func (t *Tracker[T]) setLogger() {
	t.logger = t.options.Logger
	if t.logger == nil {
		t.logger = slog.Default()
	}
	t.logger = slog.New(logHandler{t.logger.Handler(), t.madeAt})
	if t.options.Name != "" { // The logger's handler is foreign code.
		t.catchPanic(func() { t.logger = t.logger.With("queue", t.options.Name) })
	}
}

// log logs the call: at level Warn or above if it is a key's first failure, if the attempts have doubled, or
// if the key is given up.
func (c *Tracked[T]) log() {
	r := &c.result
	level, message := slog.LevelDebug, "Handled a key"
	switch r.Next {
	case NextHold:
		message = "The handler has put its key on hold"
	case NextRetry:
		message = "The handler failed, its key comes again"
		if r.Attempt&(r.Attempt-1) == 0 && !c.sameFailure { // The attempt is a power of two.
			level = slog.LevelWarn
		}
	case NextGiveUp:
		level, message = slog.LevelError, "The handler failed, its key is given up"
	case NextInterrupted:
		message = "The handler was interrupted, its key was added again"
	}
	// Not the handler's context, which may have ended.
	if !c.tracker.logger.Enabled(c.base, level) {
		return
	}
	attrs := []slog.Attr{slog.Any("key", r.Key), slog.String("next", r.Next.String()),
		slog.Int("attempt", r.Attempt), slog.Duration("duration", r.Duration), slog.Any("err", r.Err)}
	if p, ok := r.Err.(*PanicError); ok {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	c.tracker.logger.LogAttrs(c.base, level, message, c.tracker.withCauses(attrs, r.Key)...)
}

// withCauses appends to attrs the causes of a key that a worker has, if there are any.
func (t *Tracker[T]) withCauses(attrs []slog.Attr, key T) []slog.Attr {
	if causes := t.queue.Causes(key); !causes.IsZero() {
		attrs = append(attrs, slog.String("causes", causes.String()))
	}
	return attrs
}

// logHandler is the log handler of a tracker. A line that this package writes has as its source the place
// where the program made the pool: a line number of this package helps no reader. Lines of handlers, by
// [Call.Logger], keep theirs.
type logHandler struct {
	slog.Handler
	madeAt uintptr
}

// Handle writes r, with the source that a reader wants.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next(); isOurs(frame.Function) {
		r.PC = h.madeAt
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns h with attributes.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs), h.madeAt}
}

// WithGroup returns h with a group.
func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name), h.madeAt}
}

// callerOutside returns the program counter of the function that has called into this package, or zero.
func callerOutside() uintptr {
	var pcs [16]uintptr
	for _, pc := range pcs[:runtime.Callers(2, pcs[:])] {
		if frame, _ := runtime.CallersFrames([]uintptr{pc}).Next(); !isOurs(frame.Function) {
			return pc
		}
	}
	return 0
}

// isOurs reports whether a function is of this package, or of the module that wraps controller-runtime's
// reconcilers.
func isOurs(function string) bool {
	rest, found := strings.CutPrefix(function, "github.com/keyedqueue/workqueue/")
	return found && (strings.HasPrefix(rest, "worker.") || strings.HasPrefix(rest, "controllerruntime."))
}
