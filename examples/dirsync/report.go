package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/keyedqueue/workqueue"
)

// A report counts what is done and shows it to the user. Nothing unprintable is printed: a file's name
// may hold a line break, or what a terminal takes for a command.
type report struct {
	verbose  bool
	progress bool // a status line is shown on out
	watching bool // failures are reported as they happen, not only at the end
	start    time.Time

	seen    atomic.Int64 // paths found by listing directories of either side
	events  atomic.Int64 // reported by the file system
	merged  atomic.Int64 // asked for while in the queue already; known at the end
	copied  atomic.Int64 // files and links that DEST did not have
	updated atomic.Int64 // … that DEST had with another content, time or mode
	made    atomic.Int64 // directories
	removed atomic.Int64 // a directory and all below it count once
	retried atomic.Int64
	bytes   atomic.Int64

	mu      sync.Mutex
	out     io.Writer           // standard error
	failed  map[string]error    // given up, and not put right since
	skipped map[string]struct{} // never synced, on principle
}

func newReport(out io.Writer) *report {
	return &report{
		start:   time.Now(),
		out:     out,
		failed:  make(map[string]error),
		skipped: make(map[string]struct{}),
	}
}

// say writes one line to standard error.
func (r *report) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayLocked(format, args...)
}

func (r *report) sayLocked(format string, args ...any) {
	if r.progress {
		fmt.Fprint(r.out, "\r\x1b[K") // away with the status line
	}
	line := strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, fmt.Sprintf(format, args...))
	fmt.Fprintf(r.out, "dirsync: %s\n", line)
}

// action reports what was done to a path, with -v.
func (r *report) action(what, key string) {
	if r.verbose {
		r.say("%s %q", what, key)
	}
}

// wrote counts a file or link that was put in place.
func (r *report) wrote(key string, existed bool) {
	if existed {
		r.updated.Add(1)
		r.action("updated", key)
	} else {
		r.copied.Add(1)
		r.action("copied", key)
	}
}

// skip notes, once, that a path is left alone.
func (r *report) skip(key, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.skipped[key]; !known {
		r.skipped[key] = struct{}{}
		r.sayLocked("skipped %q: %s", key, why)
	}
}

func (r *report) retry(key string, err error) {
	r.retried.Add(1)
	if r.verbose {
		r.say("will retry %q: %v", key, err)
	}
}

// settled notes how the work on a path ended for now: well, or given up with err.
func (r *report) settled(key string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.failed, key)
		return
	}
	if _, known := r.failed[key]; !known && r.watching {
		r.sayLocked("gave up on %q for now: %v", key, err)
	}
	r.failed[key] = err
}

// forgetBelow drops the failures of paths that were removed together with key.
func (r *report) forgetBelow(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.failed {
		if within(key, k) {
			delete(r.failed, k)
		}
	}
}

// startProgress shows a status line until ctx ends or end is called, which returns when the line is gone.
func (r *report) startProgress(ctx context.Context, stats func() workqueue.Stats) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var line sync.WaitGroup
	line.Go(func() { r.showProgress(ctx, stats) })
	return func() {
		cancel()
		line.Wait()
	}
}

// showProgress keeps a status line up to date until ctx ends.
func (r *report) showProgress(ctx context.Context, stats func() workqueue.Stats) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		q := stats()
		line := fmt.Sprintf("%d seen, %d queued, %d waiting, %d copied, %d updated, %d removed, %s",
			r.seen.Load(), q.Queued, q.Waiting, r.copied.Load(), r.updated.Load(), r.removed.Load(), size(r.bytes.Load()))
		r.mu.Lock()
		fmt.Fprint(r.out, "\r\x1b[K"+line)
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			r.mu.Lock()
			fmt.Fprint(r.out, "\r\x1b[K")
			r.mu.Unlock()
			return
		case <-tick.C:
		}
	}
}

// sayLeft reports what the next run has to do: left are paths, and unlisted is how many directories among them
// were not listed, so that what they hold is not counted.
func (r *report) sayLeft(left []string, unlisted int) {
	switch {
	case len(left) == 0:
	case unlisted == 0:
		r.say("%d paths are left for the next run, %q among them", len(left), left[0])
	default:
		r.say("%d paths are left for the next run, %q among them, and what is in %d directories that were not listed",
			len(left), left[0], unlisted)
	}
}

// summary writes what was done to w, and what could not be done to standard error. It returns the
// number of paths that failed.
func (r *report) summary(w io.Writer) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	line := func(name string, n int64, more string) { fmt.Fprintf(&b, "%-18s %d%s\n", name, n, more) }
	line("paths seen", r.seen.Load(), "")
	line("events", r.events.Load(), "")
	line("merged", r.merged.Load(), "")
	line("copied", r.copied.Load(), "")
	line("updated", r.updated.Load(), "")
	line("directories made", r.made.Load(), "")
	line("removed", r.removed.Load(), "")
	line("skipped", int64(len(r.skipped)), "")
	line("retried", r.retried.Load(), "")
	line("failed", int64(len(r.failed)), "")
	line("bytes", r.bytes.Load(), " ("+size(r.bytes.Load())+")")
	fmt.Fprintf(&b, "%-18s %v\n", "elapsed", time.Since(r.start).Round(time.Millisecond))
	io.WriteString(w, b.String())

	keys := make([]string, 0, len(r.failed))
	for key := range r.failed {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		r.sayLocked("failed: %q: %v", key, r.failed[key])
	}
	return len(keys)
}

func size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	f, units := float64(n)/(1<<10), "KMGTPE"
	for f >= 1<<10 {
		f, units = f/(1<<10), units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", f, units[0])
}

// isTerminal is good enough to decide on a status line: of the other character devices there is
// only the null device, which minds nothing.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
