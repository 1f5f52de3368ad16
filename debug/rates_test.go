package debug_test

import (
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/worker"
)

// The keys of a shared queue are those of all processes, and its adds those of this one. So nobody knows how many it has done.
func TestDonesOfSharedQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		var queued atomic.Int64
		h.InspectQueue("q", workqueue.Inspector{Stats: func() workqueue.Stats {
			return workqueue.Stats{Name: "q", Adds: 1_000_000, Queued: int(queued.Load()), Shared: &workqueue.SharedStats{}}
		}})
		time.Sleep(12 * time.Second)
		queued.Store(1) // by another process
		time.Sleep(12 * time.Second)
		if d := getJSON[detail](t, h, "?queue=q"); d.Queue.Minute.Dones != 0 {
			t.Errorf("%+v", d.Queue.Minute)
		}
	})
}

// When one of two pools ends, the failures of the other are no news. The one that has ended goes, whatever name it was shown under.
func TestErrorsOfPoolThatEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, h *debug.Handler) {
		var ended atomic.Bool
		h.InspectQueue("q", workqueue.Inspector{Stats: func() workqueue.Stats { return workqueue.Stats{Name: "q"} }})
		asked := 0
		for _, failed := range []uint64{40_000, 39_000} {
			h.InspectPool("q", inspectorOf(func(int) worker.Snapshot[any] {
				ends := failed == 40_000 && ended.Load()
				if ends {
					asked++
				}
				return worker.Snapshot[any]{Stats: worker.Stats{Name: "another name", Failed: failed, Ended: ends}}
			}))
		}
		time.Sleep(12 * time.Second)
		ended.Store(true)
		time.Sleep(time.Minute)
		d := getJSON[detail](t, h, "?queue=q")
		history := getJSON[struct {
			History struct {
				Errors []float64 `json:"errors_per_second"`
			}
		}](t, h, "?queue=q").History
		if slices.ContainsFunc(history.Errors[1:], func(rate float64) bool { return rate != 0 }) {
			t.Errorf("%v errors a second", history.Errors)
		}
		if asked > 2 || len(d.Queue.Pools) != 1 {
			t.Errorf("a pool that has ended was asked %d times, and there are %+v", asked, d.Queue.Pools)
		}
	})
}

// What does not answer is not asked to pause either: the action says why it does nothing.
func TestPauseOfQueueThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		answer := make(chan struct{})
		var silent atomic.Bool
		wait := func() {
			if silent.Load() {
				<-answer
			}
		}
		h.InspectQueue("q", workqueue.Inspector{
			Stats:        func() workqueue.Stats { wait(); return workqueue.Stats{Name: "q"} },
			PausedGroups: func() []string { return []string{"tenant"} },
			GroupLen:     func(string) int { wait(); return 0 },
			GroupPause:   func(string) (time.Time, bool) { wait(); return time.Time{}, true },
			PauseGroup:   func(string) { wait() },
			Pause:        func() { wait() },
			Resume:       func() { wait() },
		})
		time.Sleep(12 * time.Second)
		silent.Store(true)
		time.Sleep(12 * time.Second)
		began := time.Now()
		if code, _ := post(t, h, asPage, "action", "pause", "queue", "q"); code < 500 {
			t.Errorf("code %d", code)
		}
		get(h, "?queue=q")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
		close(answer)
	})
}

// A queue whose server falls silent in the middle of a list ends it early. The page and a count say that there may be more.
func TestOutageInTheMiddleOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := (&onServer{}).inspector()
		q.SnapshotKeys = func() iter.Seq[workqueue.KeySnapshot[any]] {
			return func(yield func(workqueue.KeySnapshot[any]) bool) {
				yield(workqueue.KeySnapshot[any]{Key: "a", State: workqueue.KeyQueued, Requeues: 1})
				time.Sleep(time.Second)
			}
		}
		h.InspectQueue("q", q)
		if body := get(h, "?queue=q&state=queued").Body.String(); !strings.Contains(body, "There may be more") {
			t.Error(body)
		}
		if c := getJSON[struct{ More bool }](t, h, "?queue=q&count=failing"); !c.More {
			t.Errorf("%+v", c)
		}
	})
}
