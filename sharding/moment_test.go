package sharding

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A wall clock that was set back does not leave a later reading of it behind: validity would end too late after a suspension.
func TestLatestMoment(t *testing.T) {
	before, after := moment{mono: 1, wall: 100}, moment{mono: 2, wall: 40}
	if before.latest(after) != after || after.latest(before) != after || before.latest(before) != before {
		t.Error("the later moment is not the one of the monotonic clock")
	}
}

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
