package debug_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
)

// server is where queues are that may not answer.
type server struct {
	// silent has a channel that is closed when the server answers again.
	silent atomic.Pointer[chan struct{}]
	asked  atomic.Int32
	queued atomic.Int32
}

func (s *server) beSilent() {
	c := make(chan struct{})
	s.silent.Store(&c)
}

func (s *server) answer() { close(*s.silent.Swap(nil)) }

func (s *server) queue() workqueue.Inspector {
	answer := func() workqueue.Stats {
		s.asked.Add(1)
		if c := s.silent.Load(); c != nil {
			<-*c
		}
		return workqueue.Stats{Queued: int(s.queued.Load()), Adds: 7}
	}
	return workqueue.Inspector{
		Stats:    answer,
		Snapshot: func(int) workqueue.Snapshot[any] { return workqueue.Snapshot[any]{Stats: answer()} },
	}
}

type answers struct {
	Queues []struct {
		ID, Error  string
		Queued     int
		Unanswered *float64 `json:"unanswered_seconds"`
		Depth      []int
	}
}

// took returns what h answers to a query, and after how much time.
func took(t *testing.T, h *debug.Handler, query string) (answers, time.Duration) {
	began := time.Now()
	a := getJSON[answers](t, h, query)
	return a, time.Since(began)
}

// Queues that do not answer make no page wait for more than a second, are asked once, and are shown as they were. The
// others have their charts.
func TestQueuesThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{SampleEvery: 4 * time.Second})
		defer h.Close()
		var far server
		far.queued.Store(3)
		for n := range 100 {
			h.InspectQueue(fmt.Sprintf("far %03d", n), far.queue())
		}
		near := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "a near one", MetricsProvider: h})
		defer near.ShutDown()
		time.Sleep(41 * time.Second)
		far.beSilent()
		far.queued.Store(9)
		far.asked.Store(0)
		if _, d := took(t, h, ""); d != time.Second {
			t.Errorf("the first list took %v", d)
		}
		for n := range 10 {
			near.Add(n)
			time.Sleep(4 * time.Second)
		}
		l, d := took(t, h, "?sort=name")
		if d != 0 || len(l.Queues) != 50 {
			t.Errorf("the list of %d queues took %v", len(l.Queues), d)
		}
		if n := far.asked.Load(); n != 100 {
			t.Errorf("100 queues were asked %d times", n)
		}
		if q := l.Queues[0]; q.Queued != 10 || q.Error != "" || q.Unanswered != nil || fmt.Sprint(q.Depth[len(q.Depth)-5:]) != "[7 8 9 10 10]" {
			t.Errorf("the one that answers: %+v", q)
		}
		for _, q := range l.Queues[1:] {
			if q.Queued != 3 || q.Unanswered == nil || *q.Unanswered != 42 || !strings.Contains(q.Error, "does not answer") {
				t.Errorf("one that does not: %+v", q)
				break
			}
		}
		wantBody(t, get(h, ""), "far 000", "no answer for 42 s")
		wantBody(t, get(h, "?queue=far+007"), "no answer for 42 s", "These are its numbers of 42 s ago", "<dt>Queued</dt><dd>3")

		far.answer()
		time.Sleep(time.Second)
		for _, q := range getJSON[answers](t, h, "").Queues {
			if q.Error != "" || strings.HasPrefix(q.ID, "far") && q.Queued != 9 {
				t.Errorf("after the server has answered: %+v", q)
			}
		}
	})
}

// A queue that does not answer when it is made appears all the same. What it has counted before is no burst.
func TestQueueThatHasNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		defer h.Close()
		var far server
		far.beSilent()
		began := time.Now()
		h.InspectQueue("far", far.queue())
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("its program had to wait for %v", d)
		}
		wantBody(t, get(h, ""), "far", "no answer")
		wantBody(t, get(h, "?queue=far"), "does not answer, and never has")
		time.Sleep(62 * time.Second) // The answer comes between two samples.
		far.answer()
		time.Sleep(time.Minute)
		d := getJSON[historyOf](t, h, "?queue=far")
		if d.Queue.Minute.Adds != 0 || len(d.History.Adds) > 14 {
			t.Errorf("%+v", d)
		}
	})
}

// Close waits for a call that goes on, and a page is not made of a queue that was closed.
func TestCloseWaitsForQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.NewHandler(debug.Options{})
		var returned atomic.Bool
		h.InspectQueue("slow", workqueue.Inspector{Stats: func() workqueue.Stats {
			if returned.Load() {
				time.Sleep(10 * time.Second)
			}
			returned.Store(true)
			return workqueue.Stats{}
		}})
		time.Sleep(5 * time.Second)
		began := time.Now()
		synctest.Wait()
		h.Close()
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("Close took %v", d)
		}
		if _, d := took(t, h, ""); d != 0 {
			t.Errorf("a list after Close took %v", d)
		}
	})
}
