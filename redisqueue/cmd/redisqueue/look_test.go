package main

import (
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/redisqueue"
)

// A pause without an end is amber on a terminal, and nowhere else. A pause that ends by itself is not.
func TestPauseIsAmber(t *testing.T) {
	since := time.Date(2026, 11, 20, 9, 14, 3, 0, time.UTC)
	ends := redisqueue.Counts{Paused: true, PausedBy: "operator", PausedSince: since,
		PausedUntil: since.Add(time.Hour)}
	open := ends
	open.PausedUntil = time.Time{}
	const by = ", by operator since 2026-11-20T09:14:03Z"
	for _, c := range []struct {
		counts     redisqueue.Counts
		onTerminal bool
		want       string
	}{
		{open, true, "\x1b[33myes, until somebody resumes it" + by + "\x1b[0m"},
		{open, false, "yes, until somebody resumes it" + by},
		{ends, true, "yes, until 2026-11-20T10:14:03Z" + by},
		{redisqueue.Counts{}, true, "no"},
	} {
		if got := (&command{onTerminal: c.onTerminal}).pauseOf(c.counts); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if isTerminal(new(strings.Builder)) {
		t.Error("a string is no terminal")
	}
}
