package rounds_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/worker/internal/rounds"
)

func TestRounds(t *testing.T) {
	var r rounds.Rounds[string]
	at := time.Unix(1e9, 0)
	if r.UntilNext(at) != math.MaxInt64 || slices.Collect(r.Due(at)) != nil {
		t.Error("no key, and some key comes")
	}
	moments := map[string]time.Duration{"a": 40 * time.Second, "b": 10 * time.Second,
		"c": 61 * time.Second} // The moment before it is a second from now.
	r.Begin([]string{"a", "b", "c"}, time.Minute, at, func(key string) time.Duration { return moments[key] })
	for _, step := range []struct {
		after time.Duration // since the last step
		want  string
		next  time.Duration // until the next key
	}{
		{0, "", time.Second},
		{time.Second, "c", 9 * time.Second},
		{58 * time.Second, "b a", 2 * time.Second},  // after 59 s
		{10 * time.Second, "c", time.Second},        // after 69 s
		{10 * time.Minute, "b a c", time.Second},    // after 669 s: once for all rounds
		{time.Second, "b", 30 * time.Second},        // after 670 s
		{time.Minute - 1, "a c", 1},                 // the next b
		{1 + 20*time.Second, "b", 10 * time.Second}, // after 750 s
		{10*time.Second + time.Minute, "a c b", 0},  // after 820 s: the next call yields the next a
	} {
		at = at.Add(step.after)
		if got := strings.Join(slices.Collect(r.Due(at)), " "); got != step.want || r.UntilNext(at) != step.next {
			t.Errorf("%v later: %s, next after %v; want %s, %v", step.after, got, r.UntilNext(at), step.want, step.next)
		}
	}
}
