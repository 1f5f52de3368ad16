package priorityqueue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// The decision table of addLocked, each cell by its name: what an add makes of a key in each state, when it
// comes then, and how often the limiter is asked. The limiter's delay is 10 s. A waiting key waits for 5 s,
// or for the limiter. A resting one was handed out just now, and has an interval of 4 s.
func TestEachCellOfTheTable(t *testing.T) {
	const s = time.Second
	states := []struct {
		name  string
		setUp func(q *pq.Queue[string], take func())
	}{
		{"resting", func(q *pq.Queue[string], take func()) { q.Add("a"); key, _ := q.Get(); q.Done(key) }},
		{"absent", func(q *pq.Queue[string], take func()) {}},
		{"queued", func(q *pq.Queue[string], take func()) { q.Add("a") }},
		{"waiting", func(q *pq.Queue[string], take func()) { q.AddAfter("a", 5*s) }},
		{"waiting for the limiter", func(q *pq.Queue[string], take func()) { q.AddRateLimited("a") }},
		{"processing", func(q *pq.Queue[string], take func()) { take() }},
		{"rerun", func(q *pq.Queue[string], take func()) { take(); q.Add("a") }},
		{"rerunLater", func(q *pq.Queue[string], take func()) { take(); q.AddAfter("a", 5*s) }},
		{"rerunLater by a failure", func(q *pq.Queue[string], take func()) { take(); q.AddRateLimited("a") }},
	}
	adds := map[string]pq.AddOpts{
		"now": {}, "3 s": {After: 3 * s}, "20 s": {After: 20 * s}, "limited": {RateLimited: true},
		"limited, 3 s":           {RateLimited: true, After: 3 * s},
		"limited, at least 20 s": {RateLimited: true, AtLeast: 20 * s},
	}
	// Each cell is how the key stands with Earliest, Latest and Replace, one word if they agree; and +1 if the
	// limiter is asked.
	rows := map[string][]string{
		//                        resting   absent      queued    waiting            waiting limited processing   rerun     rerunLater         rerunLater failed
		"now": {"4s", "now", "now", "now 5s now", "now 10s now", "now", "now", "now 5s now",
			"now 10s now"},
		"3 s": {"4s", "3s", "now", "3s 5s 3s", "3s 10s 3s", "3s", "now", "3s 5s 3s",
			"3s 10s 3s"},
		"20 s": {"20s", "20s", "now", "5s 20s 20s", "10s 20s 20s", "20s", "now", "5s 20s 20s",
			"10s 20s 20s"},
		"limited": {"10s +1", "10s +1", "now", "5s 10s 10s +1", "10s", "10s +1", "now +1",
			"5s 10s 10s +1", "10s"},
		"limited, 3 s": {"4s +1", "3s +1", "now", "3s 5s 3s +1", "3s 10s 3s", "3s +1", "now +1",
			"3s 5s 3s +1", "3s 10s 3s"},
		"limited, at least 20 s": {"20s +1", "20s +1", "now", "5s 20s 20s +1", "10s 20s 20s", "20s +1", "now +1",
			"5s 20s 20s +1", "10s 20s 20s"},
	}
	for add, cells := range rows {
		for i, state := range states {
			for p, policy := range []pq.DelayPolicy{pq.Earliest, pq.Latest, pq.Replace} {
				t.Run(fmt.Sprint(add, " of ", state.name, "/", [...]string{"Earliest", "Latest", "Replace"}[p]),
					func(t *testing.T) {
						h := &hooked{fixed: fixed(10 * s)}
						config := pq.Config[string]{RateLimiter: h}
						if state.name == "resting" {
							config.MinInterval = 4 * s
						}
						script(t, config, func(t *testing.T, q *pq.Queue[string]) {
							held := false
							state.setUp(q, func() { q.Add("a"); hold(t, q, "a"); held = true })
							asked := h.asked.Load()
							o := adds[add]
							o.Delay = policy
							q.AddWithOpts(o, "a")
							words, more := strings.CutSuffix(cells[i], " +1")
							want := strings.Fields(words)
							wantDue := want[min(p, len(want)-1)]
							if got := h.asked.Load() - asked; got == 1 != more || got > 1 {
								t.Errorf("the limiter was asked %d times", got)
							}
							if n := q.Failures("a").Count; n == 1 != (held && (o.RateLimited ||
								state.name == "rerunLater by a failure")) || n > 1 {
								t.Errorf("%d failures are counted", n)
							}
							if held {
								q.Done("a")
							}
							if wantDue == "now" {
								wantAt(t, q, "a", "queued")
							} else {
								wantAt(t, q, "a", "waiting "+wantDue)
							}
						})
					})
			}
		}
	}
}
