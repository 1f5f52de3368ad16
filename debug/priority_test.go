package debug_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// The head of a priority queue is in the order in which its keys will be handed out, with priorities and groups, and
// a pause and what is blocked are shown.
func TestPriorityQueue(t *testing.T) {
	h := newHandler(t, debug.Options{Actions: true, Audit: new(audited).hook})
	q := priorityqueue.New(priorityqueue.Config[string]{
		Name: "q", MetricsProvider: h,
		Group: func(key string) string { return key[:1] },
		Limit: func(group string) int { return map[string]int{"z": 1}[group] },
	})
	defer q.ShutDown()
	q.AddWithOpts(priorityqueue.AddOpts{Priority: 9}, "z held")
	q.Get()
	for i, key := range []string{"a low", "b high", "a middle", "z blocked"} {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: []int{-5, 7, 3, 9}[i]}, key)
	}
	d := getJSON[struct {
		Queue struct {
			Blocked int
			Paused  bool
		}
		Queued []struct {
			Key, Group string
			Priority   int
			Blocked    bool
		}
	}](t, h, "?queue=q")
	var order []string
	for _, k := range d.Queued {
		order = append(order, k.Key)
	}
	if got := strings.Join(order, ", "); got != "b high, a middle, a low, z blocked" {
		t.Fatalf("the order is %s", got)
	}
	if k := d.Queued[0]; k.Priority != 7 || k.Group != "b" || k.Blocked || !d.Queued[3].Blocked || d.Queue.Blocked != 1 || d.Queue.Paused {
		t.Errorf("%+v", d)
	}
	s := find(t, h, "q", "a low")
	if k := s.Found.Keys[0]; k.Priority != -5 || k.Group != "a" || k.State != "queued" {
		t.Errorf("found %+v", k)
	}
	body := get(h, "?queue=q")
	wantBody(t, body, "<dt>Blocked by a limit</dt>", ">1<", "Priority</th>", "b high", ">7<", "z blocked", "blocked</span>")
	wantBody(t, body, `data-action="pause"`)
	q.Pause()
	wantBody(t, get(h, "?queue=q"), `<span class="badge warn">paused</span>`, `data-action="resume"`)
	wantBody(t, get(h, ""), `<span class="badge warn">paused</span>`)
	q.AddAfter("later", time.Hour)
	wantBody(t, get(h, "?queue=q"), "Waiting</h2>", "later")
}
