package priorityqueue_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/operate"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

func wantPaused(t *testing.T, q *pq.Queue[string], want string) {
	t.Helper()
	if got := q.PausedGroups(); got == nil || strings.Join(got, " ") != want {
		t.Errorf("PausedGroups() = %q, want %q", got, want)
	}
}

// A getter waits while all queued keys are of a paused group. An add to another group wakes it, and so does
// ResumeGroup. (The model has which keys come.)
func TestPauseGroup(t *testing.T) {
	script(t, pq.Config[string]{Group: byPrefix}, func(t *testing.T, q *pq.Queue[string]) {
		wantPaused(t, q, "")
		q.Add("a/1")
		q.PauseGroup("a", operate.UntilResumed)
		get := startGet(q)
		get.MustBlock(t, "Get of a paused group's keys")
		q.Add("b/1")
		if got := get.MustReturn(t, "Get of another group"); got != "b/1 <nil>" {
			t.Error(got)
		}
		get = startGet(q)
		get.MustBlock(t, "Get of a paused group's keys")
		q.ResumeGroup("a")
		if got := get.MustReturn(t, "Get after ResumeGroup"); got != "a/1 <nil>" {
			t.Error(got)
		}
	})
}

func wantPause(t *testing.T, q *pq.Queue[string], group string, want time.Duration) {
	t.Helper()
	if g := q.SnapshotGroup(group); !g.Paused || time.Until(g.PausedUntil) != want {
		t.Errorf("SnapshotGroup(%s) = %+v, want a pause that ends in %v", group, g, want)
	}
}

// A pause for a time ends by itself, on the queue's clock, and at the latest of the ends that were asked for.
func TestPauseGroupForATime(t *testing.T) {
	const s = time.Second
	script(t, pq.Config[string]{Group: byPrefix}, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{}, "a/1", "a/2", "b/1")
		q.PauseGroup("a", 10*s)
		q.PauseGroup("a", 2*s)
		q.PauseGroup("later", 30*s)
		q.PauseGroup("not", 0)
		q.PauseGroup("not", -s)
		wantPaused(t, q, "a later")
		wantPause(t, q, "a", 10*s)
		hold(t, q, "b/1")
		get := startGet(q)
		time.Sleep(10*s - 1)
		get.MustBlock(t, "Get of a paused group's keys")
		time.Sleep(time.Nanosecond)
		if got := get.MustReturn(t, "Get after the pause"); got != "a/1 <nil>" {
			t.Error(got)
		}
		wantPaused(t, q, "later")
		hold(t, q, "a/2")

		// A pause without end stays one.
		q.PauseGroup("a", operate.UntilResumed)
		q.PauseGroup("a", s)
		time.Sleep(time.Hour)
		if g := q.SnapshotGroup("a"); !g.Paused || !g.PausedUntil.IsZero() {
			t.Errorf("SnapshotGroup() = %+v, want no end", g)
		}

		// A shutdown ends pauses, and none begins after it.
		q.PauseGroup("c", time.Hour)
		q.Add("c/1")
		q.ShutDown()
		wantPaused(t, q, "")
		q.PauseGroup("c", s)
		wantPaused(t, q, "")
		drain(t, q, "c/1")
	})
}

// The queue has a goroutine and a timer as long as a pause has an end, on a clock of the user's too, and none
// without.
func TestPauseGroupHasAGoroutineUntilItsEnd(t *testing.T) {
	c := testkit.NewFakeClock()
	script(t, pq.Config[string]{Group: byPrefix, Clock: c}, func(t *testing.T, q *pq.Queue[string]) {
		wantTimer := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := c.HasWaiters(); got != want {
				t.Errorf("%s: there is a timer: %v", when, got)
			}
		}
		q.Add("a/1")
		q.PauseGroup("a", operate.UntilResumed)
		wantTimer("paused without end", false)
		q.ResumeGroup("a")
		q.PauseGroup("a", time.Minute)
		wantTimer("paused for a minute", true)
		q.ResumeGroup("a")
		wantTimer("resumed", false)
		q.PauseGroup("a", time.Minute)
		get := startGet(q)
		for range 6 {
			get.MustBlock(t, "Get of a paused group's keys")
			c.Step(10 * time.Second)
			synctest.Wait()
		}
		get.MustReturn(t, "Get after the pause")
		wantTimer("the pause has ended", false)
	})
}

type operable interface {
	workqueue.Extended[any]
	operate.Operable[any]
}

func TestPauseGroupWithoutGroups(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		q.PauseGroup("a", operate.UntilResumed)
		if g := q.SnapshotGroup("a"); g.Paused {
			t.Errorf("SnapshotGroup() = %+v", g)
		}
		q.ResumeGroup("a")
		if q.PausedGroups() != nil {
			t.Error("PausedGroups is not nil")
		}
	})
	script(t, pq.Config[string]{Group: byPrefix}, func(t *testing.T, q *pq.Queue[string]) {
		i := operate.Untyped(q).(operable)
		i.PauseGroup("a", time.Minute)
		if g := i.SnapshotGroup("a"); !g.Paused || time.Until(g.PausedUntil) != time.Minute {
			t.Errorf("SnapshotGroup() = %+v", g)
		}
		i.PauseGroup("a", operate.UntilResumed)
		i.AddCause("a/1", *because("1"))
		if !slices.Equal(i.PausedGroups(), []string{"a"}) || q.Stats().Blocked != 1 || q.Causes("a/1").IsZero() {
			t.Errorf("PausedGroups() = %q, Stats() = %+v", i.PausedGroups(), q.Stats())
		}
		i.ResumeGroup("a")
		drain(t, q, "a/1")
	})
}

// A pause of the queue ends by itself, at the latest of the ends that were asked for.
func TestPauseForATime(t *testing.T) {
	const s = time.Second
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		wantUntil := func(paused bool, d time.Duration) {
			t.Helper()
			st := q.Stats()
			if st.Paused != paused || st.PausedUntil.IsZero() != (d == 0) || d > 0 && time.Until(st.PausedUntil) != d {
				t.Errorf("Stats() = %+v, want paused: %v, for %v", st, paused, d)
			}
		}
		q.Add("a")
		for _, d := range []time.Duration{0, -s, math.MinInt64} {
			q.Pause(d)
			wantUntil(false, 0)
		}
		q.Pause(10 * s)
		q.Pause(2 * s)
		wantUntil(true, 10*s)
		get := startGet(q)
		time.Sleep(10*s - 1)
		get.MustBlock(t, "Get of a paused queue")
		time.Sleep(time.Nanosecond)
		if got := get.MustReturn(t, "Get after the pause"); got != "a <nil>" {
			t.Error(got)
		}
		wantUntil(false, 0)
		q.Pause(s)
		q.Pause(operate.UntilResumed)
		q.Pause(s)
		time.Sleep(time.Hour)
		wantUntil(true, 0)
		q.Resume()
		wantUntil(false, 0)
		q.Pause(time.Hour)
		q.Done("a")
		q.Add("b")
		q.ShutDown()
		q.Pause(time.Hour)
		wantUntil(false, 0)
		drain(t, q, "b")
	})
}
