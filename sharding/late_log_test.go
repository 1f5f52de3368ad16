package sharding

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A logger with attributes or a group writes late too.
func TestLateLoggerWithAttributes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		ctx, end := context.WithCancel(t.Context())
		logger, written := newLateLogger(ctx, slog.New(slog.NewTextHandler(blockedLogger{until}, nil)))
		began := time.Now()
		time.AfterFunc(time.Second, func() { close(until) })
		logger.With("a", 1).Info("a line")
		logger.WithGroup("g").Info("a line")
		if time.Since(began) > 0 {
			t.Error("FAILURE: it waits for the handler")
		}
		end()
		<-written
	})
}
