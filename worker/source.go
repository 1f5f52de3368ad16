package worker

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
)

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
