package worker

import "log/slog"

func (p *Pool[T]) prepareLogger() {
	if p.logger = p.options.Logger; p.logger != nil && p.options.Name != "" {
		p.logger = p.logger.With("queue", p.options.Name)
	}
}

func (p *Pool[T]) log(c *call[T]) {
	if p.logger == nil {
		return
	}
	p.logPanic(c)
	level, message := slog.LevelDebug, "Handled a key"
	switch c.Next {
	case NextRetry:
		level, message = slog.LevelWarn, "The handler failed, its key comes again"
	case NextDrop:
		level, message = slog.LevelError, "The handler failed, its key is dropped"
	case NextInterrupted:
		message = "The handler was interrupted, its key was added again"
	}
	if !p.logger.Enabled(p.handling, level) {
		return
	}
	attrs := []slog.Attr{slog.Any("key", c.Key), slog.String("next", c.Next.String()),
		slog.Int("attempt", c.Attempt), slog.Duration("duration", c.Duration), slog.Any("err", c.Err)}
	// Not the handler's context, which may have ended.
	p.logger.LogAttrs(p.handling, level, message, p.withCauses(attrs, c.Key)...)
}

// withCauses returns attrs and the causes of key, which a worker holds, if there are any.
func (p *Pool[T]) withCauses(attrs []slog.Attr, key T) []slog.Attr {
	if causes := p.causesOf(key); !causes.IsZero() {
		attrs = append(attrs, slog.String("causes", causes.String()))
	}
	return attrs
}

func (p *Pool[T]) logPanic(c *call[T]) {
	if p.logger != nil && c.panic != nil {
		p.logger.Error("The handler panicked", "key", c.Key, "panic", c.panic.Value, "stack", string(c.panic.Stack))
	}
}
