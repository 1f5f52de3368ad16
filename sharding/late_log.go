package sharding

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// lateHandler passes log lines on in a goroutine of its own: handlers may block, for example on a pipe that
// nobody reads, and members log under their lock. Lines that find the buffer full are dropped and counted.
type lateHandler struct {
	slog.Handler
	lines   chan<- line
	dropped *atomic.Int64
}

type line struct {
	to     slog.Handler
	record slog.Record
}

// newLateLogger returns a logger, and a channel that is closed when ctx has ended and all lines are written.
func newLateLogger(ctx context.Context, logger *slog.Logger) (late *slog.Logger, written <-chan struct{}) {
	lines, done, dropped := make(chan line, 256), make(chan struct{}), new(atomic.Int64)
	write := func(l line) {
		if !l.to.Enabled(context.Background(), l.record.Level) {
			return
		}
		if n := dropped.Swap(0); n > 0 {
			l.record.AddAttrs(slog.Int64("lines_dropped_before", n))
		}
		_ = l.to.Handle(context.Background(), l.record)
	}
	go func() {
		defer close(done)
		for {
			select {
			case l := <-lines:
				write(l)
			case <-ctx.Done():
				for len(lines) > 0 {
					write(<-lines)
				}
				return
			}
		}
	}()
	return slog.New(&lateHandler{logger.Handler(), lines, dropped}), done
}

func (h *lateHandler) to(other slog.Handler) slog.Handler {
	return &lateHandler{other, h.lines, h.dropped}
}

func (h *lateHandler) WithAttrs(a []slog.Attr) slog.Handler { return h.to(h.Handler.WithAttrs(a)) }
func (h *lateHandler) WithGroup(name string) slog.Handler   { return h.to(h.Handler.WithGroup(name)) }

func (h *lateHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *lateHandler) Handle(_ context.Context, r slog.Record) error {
	select {
	case h.lines <- line{h.Handler, r}:
	default:
		h.dropped.Add(1)
	}
	return nil
}
