package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
	"github.com/keyedqueue/workqueue/examples/internal/readme"
)

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr locked.Buffer
		if err := run(t.Context(), &stdout, &stderr); err != nil {
			t.Fatal(err)
		}
		if got, want := stdout.Take(), readme.Output(t, "go run ./examples/rollout"); got != want {
			t.Errorf("printed:\n%s\nREADME.md shows:\n%s", got, want)
		}
		if got := stderr.Take(); got != "" {
			t.Errorf("logged:\n%s", got)
		}
	})
}

// Ctrl-C ends it at once, also while a handler waits.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var stdout, stderr locked.Buffer
		ended := make(chan error)
		go func() { ended <- run(ctx, &stdout, &stderr) }()
		time.Sleep(1600 * time.Millisecond) // Generation 2 never gets ready.
		start := time.Now()
		cancel()
		if err := <-ended; err != context.Canceled || time.Since(start) > 200*time.Millisecond {
			t.Errorf("%v after %v; stderr:\n%s", err, time.Since(start), stderr.Take())
		}
	})
}
