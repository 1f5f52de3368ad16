package workqueue_test

import (
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
)

// inspecting is a StatsProvider that notes the queues whose keys it gets to see.
type inspecting struct {
	*reader
	names  []string
	queues []workqueue.Inspector
}

func (p *inspecting) InspectQueue(name string, q workqueue.Inspector) {
	p.names = append(p.names, name)
	p.queues = append(p.queues, q)
}

// A provider gets to see the outermost layer of each queue with a name, once, and that layer works.
func TestInspectorProvider(t *testing.T) {
	p := &inspecting{reader: &reader{}}
	fifo := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "fifo", MetricsProvider: p})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{
		Name: "delaying", MetricsProvider: p, Queue: fifo,
	})
	limiting := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "limiting", MetricsProvider: p})
	defer delaying.ShutDown()
	defer limiting.ShutDown()
	workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{MetricsProvider: p}) // without a name
	if len(p.queues) != 3 || p.queues[0].Queue != any(fifo) || p.queues[1].Queue != any(delaying) || p.queues[2].Queue != any(limiting) {
		t.Fatalf("the provider saw %q", p.names)
	}
	if p.queues[0].Below != nil || p.queues[1].Below != any(fifo) || p.queues[2].Below != nil {
		t.Error("a layer that the program has put below is wrong")
	}
	q := p.queues[2]
	if q.Remove != nil || q.Pause != nil || q.Resume != nil {
		t.Error("the queue can do more than it can")
	}
	q.Add("added")
	limiting.AddRateLimited("failed")
	s := q.Snapshot(10)
	if len(s.Queued) != 1 || s.Queued[0].Key != any("added") || len(s.Waiting) != 1 || len(s.Failing) != 1 ||
		s.Failing[0].Key != any("failed") || s.Failing[0].Requeues != 1 || s.Failing[0].Due.IsZero() || q.Stats().Queued != 1 {
		t.Errorf("%+v", s)
	}
	defer func() {
		if recover() == nil {
			t.Error("a key of another type was added")
		}
	}()
	q.Add(1)
}

// Of a queue that has only client-go's methods, an Inspector knows the length.
func TestInspectForeignQueue(t *testing.T) {
	q := struct{ workqueue.TypedInterface[int] }{workqueue.NewTyped[int]()}
	i := workqueue.Inspect(q)
	i.Add(1)
	if s := i.Stats(); s.Queued != 1 || i.Snapshot != nil {
		t.Errorf("%+v", s)
	}
}
