package priorityqueue_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func wantPaused(t *testing.T, q *pq.Queue[string], want string) {
	t.Helper()
	if got := q.PausedGroups(); got == nil || strings.Join(got, " ") != want {
		t.Errorf("PausedGroups() = %q, want %q", got, want)
	}
}

// Keys of a paused group stay queued, those that are held are finished, and other groups go on.
func TestPauseGroup(t *testing.T) {
	for name, c := range map[string]pq.Config[string]{"no limit": {Group: byPrefix, Limit: limit(0)}, "limit": {Group: byPrefix, Limit: limit(2)}} {
		t.Run(name, func(t *testing.T) {
			script(t, c, func(t *testing.T, q *pq.Queue[string]) {
				wantPaused(t, q, "")
				q.AddWithOpts(pq.AddOpts{}, "a/1", "a/2", "b/1")
				q.AddWithOpts(pq.AddOpts{Priority: 1}, "a/3")
				hold(t, q, "a/3")
				q.PauseGroup("a")
				q.PauseGroup("a")
				wantPaused(t, q, "a")
				q.AddAfter("a/4", time.Second)
				q.Add("a/3")
				q.Done("a/3")
				time.Sleep(time.Second)
				hold(t, q, "b/1")
				if st := q.Stats(); st.Queued != 4 || st.Blocked != 4 || st.Paused {
					t.Errorf("Stats() = %+v, want 4 blocked keys", st)
				}
				if info, _ := q.Inspect("a/1"); !info.Blocked || info.Paused || info.State != pq.Queued {
					t.Errorf("Inspect() = %+v", info)
				}
				for _, k := range q.Snapshot(9).Queued {
					if one, _ := q.SnapshotKey(k.Key); !k.Blocked || !one.Blocked {
						t.Errorf("Snapshot() = %+v, SnapshotKey() = %+v, want it blocked", k, one)
					}
				}
				get := startGet(q)
				get.MustBlock(t, "Get of a paused group's keys")
				q.Add("b/2")
				if got := get.MustReturn(t, "Get of another group"); got != "b/2 <nil>" {
					t.Error(got)
				}
				get = startGet(q)
				get.MustBlock(t, "Get of a paused group's keys")
				q.ResumeGroup("a")
				if got := get.MustReturn(t, "Get after ResumeGroup"); got != "a/1 <nil>" {
					t.Error(got)
				}
				wantPaused(t, q, "")
				q.ResumeGroup("a") // There is nothing to resume.
				for _, key := range []string{"a/1", "b/1", "b/2"} {
					q.Done(key)
				}
				drain(t, q, "a/2 a/3 a/4")
			})
		})
	}
}

// A pool of workers over a paused group ends as over any other queue: its keys are left, or handled if the pool drains
// the queue.
func TestPoolEndsOverAPausedGroup(t *testing.T) {
	for drain, want := range map[worker.Drain]string{worker.Nothing: "a/1 a/2", worker.Running: "a/1 a/2", worker.All: ""} {
		script(t, pq.Config[string]{Group: byPrefix}, func(t *testing.T, q *pq.Queue[string]) {
			q.PauseGroup("a")
			q.AddWithOpts(pq.AddOpts{}, "a/1", "a/2", "b/1")
			var handled []string
			pool := worker.New(q, func(_ context.Context, key string) error {
				handled = append(handled, key)
				return nil
			}, worker.Options[string]{Drain: drain})
			ctx, cancel := context.WithCancel(context.Background())
			run := testkit.Start(func() error { return pool.Run(ctx) })
			run.MustBlock(t, "Run")
			if strings.Join(handled, " ") != "b/1" {
				t.Errorf("%v: the pool handles %q", drain, handled)
			}
			cancel()
			run.MustReturn(t, "Run")
			if got := strings.Join(pool.Left().NotStarted, " "); got != want || len(handled) == 1 != (drain != worker.All) {
				t.Errorf("%v: left are %q, want %q, and handled %q", drain, got, want, handled)
			}
		})
	}
}

func TestPauseGroupWithoutGroups(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		testkit.WantPanic(t, "PauseGroup", func() { q.PauseGroup("a") }, "Config.Group")
		q.ResumeGroup("a")
		if q.PausedGroups() != nil {
			t.Error("PausedGroups is not nil")
		}
		if i := workqueue.Inspect(q); i.PauseGroup != nil || i.ResumeGroup != nil || i.PausedGroups != nil || i.AddCause == nil {
			t.Errorf("Inspect() = %+v, want no groups", i)
		}
	})
	script(t, pq.Config[string]{Group: byPrefix}, func(t *testing.T, q *pq.Queue[string]) {
		i := workqueue.Inspect(q)
		i.PauseGroup("a")
		i.AddCause("a/1", *because("1"))
		if !slices.Equal(i.PausedGroups(), []string{"a"}) || q.Stats().Blocked != 1 || q.Causes("a/1").IsZero() {
			t.Errorf("PausedGroups() = %q, Stats() = %+v", i.PausedGroups(), q.Stats())
		}
		i.ResumeGroup("a")
		drain(t, q, "a/1")
	})
}
