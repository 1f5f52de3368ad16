package worker_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// hangs waits without looking at its context for a key that begins with hang, asks for a hold for a key that
// begins with hold, fails for a key that begins with fail, and takes a second for any other.
func hangs(ctx context.Context, key string) error {
	switch {
	case strings.HasPrefix(key, "hang"):
		time.Sleep(30 * time.Minute)
	case strings.HasPrefix(key, "hold"):
		worker.CallOf(ctx).Hold("it is ready", time.Hour)
	case strings.HasPrefix(key, "fail"):
		return errBroken
	default:
		time.Sleep(time.Second)
	}
	return nil
}

// A pool is wedged if a restart would help. In most states in which nothing happens it would not.
func TestWedged(t *testing.T) {
	type pool = *worker.Pool[string]
	type queue = *priorityqueue.Queue[string]
	hanging := []string{"hang 1", "hang 2"}
	for _, tt := range []struct {
		state   string
		keys    []string
		options options
		// then is called after a minute. The pool is asked ten minutes later.
		then func(pool, queue)
		want string // in the error
	}{
		{state: "nothing was ever added"},
		{state: "short calls, and a backlog", keys: manyKeys(3000)},
		{state: "all workers hang, and a key is queued", keys: append(hanging, "a"), want: "with key hang 1"},
		{state: "all workers hang, and a held key was added again", keys: hanging,
			then: func(_ pool, q queue) { q.Add("hang 2") }, want: "keys that wait for a worker: 1"},
		{state: "all workers hang, and nothing is queued", keys: hanging},
		{state: "all workers hang, and the queue is paused", keys: append(hanging, "a"),
			then: func(_ pool, q queue) { q.Pause(time.Hour) }},
		{state: "all workers hang, and what is queued is of a paused group", keys: append(hanging, "a"),
			then: func(_ pool, q queue) { q.PauseGroup("a", time.Hour) }},
		{state: "all workers hang, and what is queued is of a group at its limit", keys: append(hanging, "hang 3"),
			options: options{Workers: 2}},
		{state: "all workers hang, and what is left waits for its time", keys: hanging,
			then: func(_ pool, q queue) { q.AddAfter("a", time.Hour) }},
		{state: "one worker of two hangs", keys: []string{"hang 1", "a", "b"}},
		{state: "one worker of two hangs, with a backlog", keys: append([]string{"hang 1"}, manyKeys(3000)...)},
		{state: "all keys are on hold", keys: []string{"hold 1", "hold 2"},
			then: func(_ pool, q queue) { q.Add("hold 1") }},
		{state: "all keys fail", keys: []string{"fail 1", "fail 2"}},
		{state: "the start limit lets nothing begin", keys: []string{"a", "b"},
			options: options{StartLimit: rate.NewLimiter(0, 0)}},
		{state: "SetWorkers(0)", keys: append(hanging, "a"), then: func(p pool, _ queue) { _ = p.SetWorkers(0) }},
		{state: "the pool is to end", keys: append(hanging, "a"), options: options{DrainTimeout: time.Hour},
			then: func(p pool, _ queue) { p.Stop(worker.Running) }},
		{state: "Ready hangs", keys: []string{"a"}, options: options{Ready: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}, want: "Options.Ready has not returned for 11m0s"},
		{state: "Ready takes its time", keys: []string{"a"}, options: options{Ready: func(context.Context) error {
			time.Sleep(10 * time.Minute)
			return nil
		}}},
		{state: "the handlers return after all", keys: append(hanging, "a"), then: func(_ pool, _ queue) {
			time.Sleep(20 * time.Minute)
		}},
	} {
		t.Run(tt.state, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Each key is a group of its own, but those that hang: of these two may be handled at once.
				group := func(key string) string { group, _, _ := strings.Cut(key, " "); return group }
				limit := func(group string) int {
					if group == "hang" {
						return 2
					}
					return 0
				}
				q := newPriorityQueue(priorityqueue.Config[string]{Group: group, Limit: limit})
				for _, key := range tt.keys {
					if strings.HasPrefix(key, "hang") {
						q.Add(key)
					}
				}
				if tt.options.Workers = 2; tt.options.DrainTimeout == 0 {
					tt.options.DrainTimeout = time.Second
				}
				p := worker.New(q, hangs, tt.options)
				if err := p.Wedged(0); err != nil {
					t.Errorf("before Run: %v", err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				run := testkit.Start(func() error { return p.Run(ctx) })
				time.Sleep(30 * time.Second)
				for _, key := range tt.keys {
					if !strings.HasPrefix(key, "hang") {
						q.Add(key)
					}
				}
				time.Sleep(30 * time.Second)
				if tt.then != nil {
					tt.then(p, q)
				}
				if err := p.Wedged(time.Hour); err != nil {
					t.Errorf("before the limit: %v", err)
				}
				time.Sleep(10 * time.Minute)
				switch err := p.Wedged(10 * time.Minute); {
				case tt.want == "" && err != nil:
					t.Errorf("Wedged() = %v", err)
				case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
					t.Errorf("Wedged() = %v, want %q", err, tt.want)
				}
				cancel()
				time.Sleep(2 * time.Hour)
				_ = run.MustReturn(t, "Run")
				if err := p.Wedged(0); err != nil {
					t.Errorf("after Run: %v", err)
				}
			})
		})
	}
}

func manyKeys(n int) (keys []string) {
	for i := range n {
		keys = append(keys, "key "+strings.Repeat("x", i))
	}
	return keys
}

// A tracker takes the most calls that have run at once for the number of workers, and looks at how long a key
// has been queued.
func TestWedgedTracker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[string]{
			Name: "q", MetricsProvider: testkit.Times{}})
		defer q.ShutDown()
		tracker := worker.NewTracker(q, options{})
		begin := func(key string) func() {
			q.Add(key)
			q.Get()
			c := tracker.Begin(t.Context(), key)
			return func() { c.End(nil); c.Done(func() { q.Done(key) }) }
		}
		want := func(when string, wedged bool) {
			t.Helper()
			if err := tracker.Wedged(10 * time.Minute); (err != nil) != wedged {
				t.Errorf("%s: Wedged() = %v", when, err)
			}
		}
		want("before the first call", false)
		first, second := begin("a"), begin("b")
		second()
		time.Sleep(time.Hour)
		q.Add("c")
		time.Sleep(time.Hour)
		want("one of two calls runs", false) // It is the workers' fault that nobody takes c.
		q.Get()
		q.Done("c")
		second = begin("b")
		time.Sleep(time.Hour)
		want("nothing is queued", false)
		q.Add("c")
		want("a key has just been queued", false)
		time.Sleep(time.Hour)
		want("both calls hang", true)
		first()
		want("a call has ended", false)
		second()
	})
}
