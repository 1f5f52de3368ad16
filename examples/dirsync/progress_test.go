package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
)

// On a terminal a line shows the progress until the first pass is done. After that, and in a pipe, there is none.
func TestProgress(t *testing.T) {
	for _, once := range []bool{true, false} {
		src, dst := newDirs(t)
		src.file("d/f", "x")
		var out locked.Buffer
		rep := newReport(&out)
		rep.progress = true
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- dirsync(ctx, options{
				source: src.path, dest: dst.path, once: once, workers: 1,
				settle: 10 * time.Millisecond, drainTimeout: time.Minute,
			}, rep)
		}()
		if !once {
			eventually(t, "the first pass is done", func() bool { return strings.Contains(out.String(), "first pass done") })
			time.Sleep(300 * time.Millisecond) // Three times as long as the line needs to come back.
			cancel()
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancel()
		progress, rest, _ := strings.Cut(out.String(), "first pass done")
		if !strings.Contains(progress, " seen, ") {
			t.Errorf("once %v: no progress in %q", once, progress)
		}
		if strings.Contains(rest, "seen") {
			t.Errorf("the line is still there after the first pass: %q", rest)
		}
	}
	src, dst := newDirs(t)
	src.file("d/f", "x")
	if r := once(t, src, dst); strings.Contains(r.stderr, "\r") {
		t.Errorf("progress in a pipe: %q", r.stderr)
	}
}
