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
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// onServer is a queue on a server. While that is silent, each call waits for a second and then returns what
// it has: nothing.
type onServer struct {
	silent atomic.Bool // The handler's goroutine also reads it.
	known  bool
}

func (s *onServer) wait() bool {
	if s.silent.Load() {
		time.Sleep(time.Second)
		return false
	}
	return true
}

func (s *onServer) inspector() operate.Inspector {
	return operate.Inspector{
		Stats: func() workqueue.Stats {
			return workqueue.Stats{Queued: 1, Shared: &leasing.Stats{Outage: s.silent.Load() && s.known}}
		},
		Snapshot: func(int) (got workqueue.Snapshot[any]) {
			if s.wait() {
				got.Queued = []workqueue.KeySnapshot[any]{{Key: "a", State: workqueue.KeyQueued}}
			}
			return got
		},
		SnapshotKey: func(key any) (workqueue.KeySnapshot[any], bool) {
			return workqueue.KeySnapshot[any]{Key: key, State: workqueue.KeyQueued}, s.wait() && key == "a"
		},
		SnapshotKeys: func() iter.Seq[workqueue.KeySnapshot[any]] {
			return func(yield func(workqueue.KeySnapshot[any]) bool) {
				if s.wait() {
					yield(workqueue.KeySnapshot[any]{Key: "a", State: workqueue.KeyQueued})
				}
			}
		},
		GivenUp: func(int) []operate.GivenUpKey[any] { s.wait(); return nil },
		Add:     func(any) {},
	}
}

// When the server of a queue is silent, no page takes longer than five seconds, and none says that there is
// no such key.
func TestOutageOfAServer(t *testing.T) {
	for name, known := range map[string]bool{"known to be": true, "not known to be": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newAudited(t)
				s := &onServer{known: known}
				inspect(h, "q", s.inspector())
				pool := worker.Snapshot[any]{Stats: worker.Stats{Name: "q"}}
				for i := range 30 {
					pool.GivenUp = append(pool.GivenUp, worker.FailedKey[any]{Key: i})
				}
				showPool(h, pool)
				id := find(t, h, "q", "a").Keys[0].ID
				s.silent.Store(true)
				for query, want := range map[string]string{
					"?queue=q":                       "Not known.",
					"?queue=q&key=a":                 "did not answer in time",
					"?queue=q&key=b":                 "that was looked at is called",
					"?queue=q&state=failing&error=x": "There may be more keys",
					"?queue=q&key=a&id=" + id:        "that was looked at is called",
				} {
					began := time.Now()
					body := get(h, query).Body.String()
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("%s takes %v", query, took)
					}
					if !strings.Contains(body, want) || strings.Contains(body, "may be done") ||
						strings.Contains(body, "No key waits") {
						t.Errorf("%s: no %q in %s", query, want, body)
					}
				}
				if known {
					wantBody(t, get(h, ""), "did not answer in time</span>")
				}
				for _, form := range [][]string{{"retry", "key", "a"}, {"retry", "of", "failing"}} {
					h.act(t, 503, "q", form...)
				}
				if c := get(h, "?queue=q&count=failing&format=json"); c.Code != 503 {
					t.Errorf("%d %s", c.Code, c.Body)
				}
				s.silent.Store(false)
				wantBody(t, get(h, "?queue=q"), `<code>a</code>`)
			})
		})
	}
}

// A page of a queue whose server answers slowly, but in time, takes five seconds as well.
func TestSlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := (&onServer{}).inspector()
		q.SnapshotKey = func(key any) (workqueue.KeySnapshot[any], bool) {
			time.Sleep(900 * time.Millisecond)
			return workqueue.KeySnapshot[any]{Key: key}, false
		}
		inspect(h, "q", q)
		pool := worker.Snapshot[any]{Stats: worker.Stats{Name: "q", GivenUpKeys: 30}}
		for i := range 30 {
			pool.GivenUp = append(pool.GivenUp, worker.FailedKey[any]{Key: i})
		}
		showPool(h, pool)
		began := time.Now()
		wantBody(t, get(h, "?queue=q"), "There was no time to look at all keys.", "25 of <a")
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// When the server falls silent in the middle of an action, nothing is known of the keys that it did not
// answer for: they are not gone.
func TestOutageInTheMiddleOfAnAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := (&onServer{}).inspector()
		answers := 0
		do := func(any) bool {
			if answers--; answers >= 0 {
				return true
			}
			time.Sleep(time.Second)
			return false
		}
		q.RetryGivenUp, q.ForgetGivenUp, q.Remove = do, do, do
		q.GivenUp = func(int) (keys []operate.GivenUpKey[any]) {
			for i := range 10 {
				keys = append(keys, operate.GivenUpKey[any]{Key: i})
			}
			return keys
		}
		inspect(h, "q", q)
		answers = 3
		if b := h.act(t, 503, "q", "retry", "of", "given_up", "count", "10"); b.Keys != 3 || b.Gone != 0 ||
			b.Left != 7 || !strings.Contains(b.Error, "Retried 3 keys, 7 left") {
			t.Errorf("%+v", b)
		}
		walk := q
		walk.Snapshot = func(limit int) workqueue.Snapshot[any] {
			return workqueue.Snapshot[any]{Failing: slices.Repeat([]workqueue.KeySnapshot[any]{{Key: "a"}}, limit)}
		}
		walk.SnapshotKeys = func() iter.Seq[workqueue.KeySnapshot[any]] {
			return func(func(workqueue.KeySnapshot[any]) bool) { time.Sleep(time.Second) }
		}
		inspect(h, "walk", walk)
		h.act(t, 503, "walk", "retry", "of", "failing")
		for _, action := range []string{"forget", "remove"} {
			answers = 0
			h.act(t, 503, "q", action, "key", "a")
			answers = 1
			h.act(t, 200, "q", action, "key", "a")
		}
		q.Remove = func(any) bool { return false } // an answer
		inspect(h, "quick", q)
		h.act(t, 404, "quick", "remove", "key", "a")
	})
}

// A queue that does not reach its server is paused later, and the answer says so.
func TestPauseInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		s := &onServer{known: true}
		q := s.inspector()
		q.Pause, q.Resume = func(time.Duration) {}, func() {}
		inspect(h, "q", q)
		for _, silent := range []bool{false, true} {
			s.silent.Store(silent)
			for action, want := range map[string]string{"pause": "paused", "resume": "resumed"} {
				if a := h.act(t, 200, "q", action); strings.HasSuffix(a.Text, "It is "+want+
					" as soon as it does.") != silent {
					t.Errorf("silent %t: %+v", silent, a)
				}
			}
		}
	})
}

// A queue whose server falls silent in the middle of a list ends it early. The page and a count say that
// there may be more.
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
		q.Snapshot = func(limit int) (s workqueue.Snapshot[any]) { // So there may be others.
			for i := range limit {
				s.Queued = append(s.Queued, workqueue.KeySnapshot[any]{Key: i, State: workqueue.KeyQueued, Requeues: 1})
			}
			s.Failing = s.Queued
			return s
		}
		inspect(h, "q", q)
		if body := get(h, "?queue=q&state=queued").Body.String(); !strings.Contains(body, "There may be more") {
			t.Error(body)
		}
		if c := getJSON[struct{ More bool }](t, h, "?queue=q&count=failing"); !c.More {
			t.Errorf("%+v", c)
		}
	})
}

// What is not known, or not looked for, is not "no failure".
func TestEmptyListOfFailingKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		s := new(onServer)
		inspect(h, "q", s.inspector())
		wantBody(t, get(h, "?queue=q"), "Failing</h2>", "No key is failing. (What AddRateLimited alone")
		wantBody(t, get(h, "?queue=q&state=failing&error=x"), "Failing</h2>", "No key has such an error.")
		s.silent.Store(true)
		wantBody(t, get(h, "?queue=q"), "Failing</h2>", "Not known.", "Head of the line</h2>")
		if body := get(h, "?queue=q").Body.String(); strings.Contains(body, "No key is failing") {
			t.Error("the failing keys of a queue that does not reach its server are said to be none")
		}
	})
}
