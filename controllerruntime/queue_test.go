package controllerruntime_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/prom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type queue interface {
	crpriority.PriorityQueue[string]
	SnapshotKey(key string) (workqueue.KeySnapshot[string], bool)
}

// inBubble runs f with a queue that is built the way a controller builds it.
func inBubble(t *testing.T, f func(t *testing.T, q queue)) {
	synctest.Test(t, func(t *testing.T) {
		limiter := clientgo.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour)
		q := controllerruntime.NewTypedQueue("name", limiter).(queue)
		defer q.ShutDown()
		f(t, q)
	})
}

// What controller-runtime's options become. (Package priorityqueue has what its own options do.)
func TestAddWithOpts(t *testing.T) {
	for name, c := range map[string]struct {
		opts []crpriority.AddOpts
		want string
	}{
		"priority": {[]crpriority.AddOpts{{Priority: ptr(3)}, {Priority: ptr(5)}, {Priority: ptr(4)}, {}},
			"queued, priority 5, 0 failures"},
		"after": {[]crpriority.AddOpts{{After: time.Hour}, {After: time.Minute, Priority: ptr(2)}},
			"waiting 1m0s, priority 2, 0 failures"},
		"negative after": {[]crpriority.AddOpts{{After: -1, RateLimited: true}}, "queued, priority 0, 0 failures"},
		"limiter": {[]crpriority.AddOpts{{RateLimited: true, After: time.Minute}, {RateLimited: true}},
			"waiting 1s, priority 0, 1 failures"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q queue) {
				for _, o := range c.opts {
					q.AddWithOpts(o, "a", "b")
				}
				for _, key := range []string{"a", "b"} {
					k, _ := q.SnapshotKey(key)
					got := string(k.State)
					if !k.Due.IsZero() {
						got += " " + time.Until(k.Due).String()
					}
					if got += fmt.Sprintf(", priority %d, %d failures", k.Priority, k.Requeues); got != c.want {
						t.Errorf("%s is %s, want %s", key, got, c.want)
					}
				}
			})
		})
	}
}

// The plain adds have priority zero, also of a key that is being processed with another one: it may be an
// event that adds it.
func TestPlainAddsWhileProcessing(t *testing.T) {
	inBubble(t, func(t *testing.T, q queue) {
		for _, add := range []func(){
			func() { q.Add("a") }, func() { q.AddAfter("a", time.Second) }, func() { q.AddRateLimited("a") },
		} {
			q.AddWithOpts(crpriority.AddOpts{Priority: ptr(-100)}, "a")
			q.Get()
			add()
			q.Done("a")
			time.Sleep(time.Second)
			if _, priority, _ := q.GetWithPriority(); priority != 0 {
				t.Errorf("priority %d, want 0", priority)
			}
			q.Done("a")
		}
	})
}

// A key that is held keeps the place of its add, and Len counts it. A waiting key that is added has the place
// of that add.
func TestPlaceInLine(t *testing.T) {
	inBubble(t, func(t *testing.T, q queue) {
		q.AddAfter("waiting", time.Hour)
		q.Add("held")
		q.Get()
		q.Add("held")
		q.Add("new")
		q.Add("waiting")
		if n := q.Len(); n != 3 {
			t.Errorf("Len() = %d, want 3", n)
		}
		q.Done("held")
		for _, want := range []string{"held", "new", "waiting"} {
			if key, _ := q.Get(); key != want {
				t.Errorf("got %s, want %s", key, want)
			}
		}
	})
}

// A queue and its metrics have the controller's name, unless config has another. It is handed out before its
// controller gets it.
func TestNameAndMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	provider := prom.NewProvider(registry, prom.Options{Namespace: "keyed"})
	for want, config := range map[string]priorityqueue.Config[string]{
		"controller": {MetricsProvider: provider}, "mine": {MetricsProvider: provider, Name: "mine"},
	} {
		var handedOut clientgo.TypedRateLimitingInterface[string]
		q := controllerruntime.With(config, func(q *controllerruntime.Queue[string]) {
			handedOut = q
			q.Pause(operate.UntilResumed)
		})("controller", clientgo.DefaultTypedControllerRateLimiter[string]()).(*controllerruntime.Queue[string])
		defer q.ShutDown()
		q.Add("a")
		if st := q.Stats(); st.Name != want || !st.Paused ||
			handedOut != clientgo.TypedRateLimitingInterface[string](q) {
			t.Errorf("%v was handed out: %+v, want the name %q", handedOut, st, want)
		}
	}
	families, err := registry.Gather()
	for _, f := range families {
		if f.GetName() == "keyed_workqueue_depth" && len(f.GetMetric()) == 2 {
			return
		}
	}
	t.Errorf("no depth of two queues in %v, %v", families, err)
}

// After ShutDown nothing but the held keys is counted, every getter returns at once, even if it already waits
// because the only group is at its limit, and no drain waits for keys that no worker will get.
func TestShutDown(t *testing.T) {
	config := priorityqueue.Config[string]{Limit: func(string) int { return 1 },
		Group: func(string) string { return "all" }}
	synctest.Test(t, func(t *testing.T) {
		q := controllerruntime.With(config)("",
			clientgo.DefaultTypedControllerRateLimiter[string]()).(*controllerruntime.Queue[string])
		q.Add("held")
		q.Get()
		q.Add("held") // It would be queued again, but not after ShutDown.
		returned := make(chan bool, 3)
		for range 3 {
			go func() { _, _, shutdown := q.GetWithPriority(); returned <- shutdown }()
		}
		synctest.Wait()
		q.Pause(operate.UntilResumed)
		q.Add("queued")
		q.AddAfter("waiting", time.Hour)
		q.ShutDown()
		q.ShutDown()
		for range 3 {
			if !<-returned {
				t.Error("a getter that waited got a key")
			}
		}
		q.Add("late")
		if st := q.Stats(); st.Queued+st.Again+st.Waiting != 0 || st.Processing != 1 || q.Len() != 0 {
			t.Errorf("Stats() = %+v", st)
		}
		drained := make(chan struct{})
		go func() { q.ShutDownWithDrain(); close(drained) }()
		synctest.Wait()
		if isClosed(drained) {
			t.Error("a drain does not wait for the held key")
		}
		q.Done("held")
		<-drained // The bubble panics if this hangs.
		if key, priority, shutdown := q.GetWithPriority(); !shutdown || key != "" || priority != 0 {
			t.Errorf("GetWithPriority() = %s, %d, %v after ShutDown", key, priority, shutdown)
		}
	})
}

// NewRateLimiter is a controller's limiter that does not count events.
func TestNewRateLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := controller.Options{NewQueue: controllerruntime.NewQueue,
			RateLimiter: controllerruntime.NewRateLimiter()}
		q := options.NewQueue("name", options.RateLimiter)
		defer q.ShutDown()
		key := reconcile.Request{}
		q.Add(key)
		for began := time.Now(); time.Since(began) < 100*time.Millisecond; {
			q.Get()
			q.AddRateLimited(key)
			q.Done(key)
			time.Sleep(time.Millisecond)
			q.Add(key) // an event
		}
		if n := q.NumRequeues(key); n != 5 { // at 0, 5, 15, 35 and 75 ms
			t.Errorf("%d failures, want 5", n)
		}
	})
}
