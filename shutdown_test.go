package workqueue_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
)

// lockedLog is what was logged by slog.Default.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func captureLog(t *testing.T) *lockedLog {
	log := &lockedLog{}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return log
}

func (l *lockedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(line)
}

// take returns what was logged since the last call.
func (l *lockedLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	return l.buf.String()
}

// Workers whose loops end with a context leave keys behind. ShutDownWithDrain must not wait for them forever,
// as client-go's does not: 10 s after the last sign of a worker it logs, drops the keys, and returns.
func TestDrainWithoutWorkersEnds(t *testing.T) {
	log := captureLog(t)
	everyLayer(t, func(t *testing.T, build builder[int]) {
		q := build(options[int]{})
		for key := range 1000 {
			q.Add(key)
		}
		began := time.Now()
		drain := testkit.Start(func() time.Duration { q.ShutDownWithDrain(); return time.Since(began) })
		for range 3 { // Slow workers are workers.
			time.Sleep(9 * time.Second)
			key, _ := q.Get()
			time.Sleep(time.Minute)
			drain.MustBlock(t, "a drain while a worker holds a key, or was there lately")
			q.Done(key)
		}
		time.Sleep(10*time.Second - 1)
		drain.MustBlock(t, "a drain before 10 s")
		if st := q.Stats(); st.Queued != 997 || st.Dropped != 0 {
			t.Errorf("Stats() = %+v", st)
		}
		time.Sleep(time.Nanosecond)
		drain.MustReturn(t, "a drain that nobody helps")
		if st := q.Stats(); st.Queued != 0 || st.Dropped != 997 {
			t.Errorf("Stats() = %+v, want 997 dropped", st)
		}
		q.ShutDownWithDrain()
		if lines := log.take(); strings.Count(lines, "keys=997\n") != 1 || strings.Count(lines, "\n") != 1 {
			t.Errorf("log: %q", lines)
		}
	})
}

// ShutDownContext waits as long as its context says, drops nothing, and logs once that nobody comes.
func TestDrainWithContextWithoutWorkers(t *testing.T) {
	log := captureLog(t)
	everyLayer(t, func(t *testing.T, build builder[int]) {
		q := build(options[int]{})
		q.Add(1)
		q.Add(2)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			began := time.Now()
			if err := q.ShutDownContext(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Hour {
				t.Errorf("ShutDownContext() = %v after %v", err, time.Since(began))
			}
			cancel()
		}
		if st := q.Stats(); st.Queued != 2 || st.Dropped != 0 {
			t.Errorf("Stats() = %+v", st)
		}
		if lines := log.take(); strings.Count(lines, "keys=2\n") != 1 {
			t.Errorf("log: %q", lines)
		}
		process(t, q, 1, 2)
		if err := q.ShutDownContext(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The 10 s are those of the queue's clock, and the log is that of the delaying queue's configuration.
func TestDrainWithoutWorkersOnFakeClock(t *testing.T) {
	everyLayer(t, func(t *testing.T, build builder[int]) {
		clock := testkit.NewFakeClock()
		q := build(options[int]{clock: clock})
		q.Add(1)
		drain := testkit.Start(func() bool { q.ShutDownWithDrain(); return true })
		drain.MustBlock(t, "a drain at once")
		time.Sleep(time.Hour)
		clock.Step(9 * time.Second)
		drain.MustBlock(t, "a drain after 9 s of the clock")
		clock.Step(time.Second)
		drain.MustReturn(t, "a drain after 10 s of the clock")
		if _, shutdown := q.Get(); !shutdown {
			t.Error("Get() hands out a key that was dropped")
		}
	})
}
