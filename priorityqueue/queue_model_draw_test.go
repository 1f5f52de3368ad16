package priorityqueue_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/keyedqueue/workqueue"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// What the random calls of the model test are made of.

// countingLimiter makes the n-th failure of a key in a row wait for n·n seconds, less one: the first for
// none.
type countingLimiter struct {
	failures map[int]int
	asked    int
}

func newCountingLimiter() *countingLimiter { return &countingLimiter{failures: map[int]int{}} }

func (l *countingLimiter) When(key int) time.Duration {
	l.failures[key]++
	l.asked++
	n := l.failures[key]
	return time.Duration(n*n-1) * time.Second
}
func (l *countingLimiter) Forget(key int)          { delete(l.failures, key) }
func (l *countingLimiter) NumRequeues(key int) int { return l.failures[key] }

func drawConfig(t *rapid.T) pq.Config[int] {
	c := pq.Config[int]{
		Aging: rapid.SampledFrom([]time.Duration{0, 0, time.Second, 3 * time.Second, 1 << 61}).Draw(t,
			"aging"),
		Delay:       rapid.SampledFrom([]pq.DelayPolicy{0, 0, pq.Latest, pq.Replace}).Draw(t, "policy"),
		MaxDelay:    rapid.SampledFrom([]time.Duration{0, 0, 6 * time.Second}).Draw(t, "max delay"),
		MinInterval: rapid.SampledFrom([]time.Duration{0, 0, 4 * time.Second}).Draw(t, "interval"),
	}
	if rapid.Bool().Draw(t, "metrics") {
		c.Name, c.MetricsProvider = "q", &reader{}
	}
	if rapid.Bool().Draw(t, "groups") {
		c.Group = func(key int) string { return fmt.Sprint("group ", key%3) }
		limits := rapid.SliceOfN(rapid.IntRange(-1, 2), 3, 3).Draw(t, "limit")
		c.Limit = func(group string) int { return limits[group[len(group)-1]-'0'] }
		if rapid.Bool().Draw(t, "weights") {
			weights := rapid.SliceOfN(rapid.IntRange(-1, 3), 3, 3).Draw(t, "weight")
			c.Weight = func(group string) int { return weights[group[len(group)-1]-'0'] }
		}
	}
	return c
}

func drawOpts(t *rapid.T) pq.AddOpts {
	seconds := func(name string, from, to int) time.Duration {
		return time.Duration(rapid.IntRange(from, to).Draw(t, name)) * time.Second
	}
	return pq.AddOpts{
		Priority:    rapid.IntRange(-1, 2).Draw(t, "priority"),
		After:       max(0, seconds("after", -8, 8)),
		RateLimited: rapid.IntRange(0, 3).Draw(t, "limited") == 0,
		AtLeast:     max(0, seconds("at least", -20, 8)),
		SetPriority: rapid.IntRange(0, 4).Draw(t, "set") == 0,
		Delay: rapid.SampledFrom([]pq.DelayPolicy{0, 0, pq.Earliest, pq.Latest, pq.Replace}).Draw(t,
			"policy"),
		MaxDelay: max(0, seconds("max delay", -10, 10)),
		Cause:    drawCause(t),
	}
}

func drawCause(t *rapid.T) *workqueue.Cause {
	if !rapid.Bool().Draw(t, "cause") {
		return nil
	}
	return &workqueue.Cause{Reason: rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "reason"),
		Quiet: rapid.Bool().Draw(t, "quiet")}
}
