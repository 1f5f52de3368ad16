package workqueuetest

import (
	"maps"
	"strings"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
)

func metricsCases() []testCase {
	return []testCase{
		bubbled("Metrics", "The metrics show how many keys are queued, how many were added, and how long each waited and was held.", tryMetrics),
		bubbled("MetricsOfDelays", "A call of AddAfter counts as a retry. The key's latency begins when it comes due.", tryMetricsOfDelays),
		bubbled("MetricsAfterShutDown", "When the last key is done after a shutdown, the gauges are zero.", tryMetricsAfterShutDown),
		bubbled("MetricsOfUnnamedQueue", "A queue without a name has no metrics.", tryMetricsOfUnnamedQueue),
	}
}

const queueName = "conformance"

// measured builds a queue with metrics, or skips the case if the queue has none.
func (r *run) measured() (fifo, *testkit.Recorder) {
	if r.suite.NoMetrics {
		r.lacks("metrics")
	}
	metrics := &testkit.Recorder{}
	q := r.queue(Config[string]{Name: queueName, MetricsProvider: metrics})
	// client-go's ticker starts in a goroutine of its own.
	synctest.Wait()
	return q, metrics
}

type values = testkit.Values

// wantMetrics compares all metrics. One that want does not mention must be zero, or without observations.
func (r *run) wantMetrics(m *testkit.Recorder, when string, want values) {
	all := values{"depth": 0, "adds": 0, "latency": 0, "work": 0, "unfinished": 0, "longest": 0, "retries": 0}
	maps.Copy(all, want)
	m.Want(r, when, all)
}

func tryMetrics(r *run) {
	q, m := r.measured()
	// The steps are multiples of 500 ms, which is how often the last two of the metrics are set.
	q.Add("a")
	r.pass(time.Second)
	q.Add("a") // changes nothing: the latency counts from the first Add
	q.Add("b")
	r.wantMetrics(m, "a and b queued", values{"depth": 2, "adds": 2})
	r.pass(time.Second)
	r.hold(q, "a")
	r.wantMetrics(m, "a held", values{"depth": 1, "adds": 2, "latency": testkit.Seconds(2)})
	r.pass(time.Second)
	q.Add("a")
	q.Add("a")
	r.wantMetrics(m, "a held and added", values{"depth": 2, "adds": 3, "latency": testkit.Seconds(2), "unfinished": 1, "longest": 1})
	r.hold(q, "b")
	r.pass(2 * time.Second)
	q.Done("a")
	r.wantMetrics(m, "a done and queued", values{
		"depth": 1, "adds": 3, "latency": testkit.Seconds(2, 2), "work": testkit.Seconds(3), "unfinished": 5, "longest": 3,
	})
	r.pass(time.Second)
	r.hold(q, "a") // its latency counts from the Add while it was held
	q.Done("b")
	q.Done("a")
	r.pass(time.Second)
	r.wantMetrics(m, "everything done", values{"adds": 3, "latency": testkit.Seconds(2, 2, 3), "work": testkit.Seconds(3, 3, 0)})
	for _, made := range m.Made() {
		if !strings.HasSuffix(made, " of "+queueName) {
			r.Fatalf("metric %q was made, want the name %q", made, queueName)
		}
	}
	r.check(q)
}

func tryMetricsOfDelays(r *run) {
	f, m := r.measured()
	q, ok := f.(delaying)
	if !ok {
		r.lacks("AddAfter")
	}
	q.AddAfter("a", time.Second)
	q.AddAfter("a", 2*time.Second)
	q.AddAfter("b", 0)
	q.AddAfter("c", -1)
	r.wantMetrics(m, "four calls of AddAfter", values{"retries": 4, "adds": 2, "depth": 2})
	r.pass(time.Second)
	r.pass(time.Second)
	r.process(q, "a second after a came due", "b", "c", "a")
	r.wantMetrics(m, "everything done", values{
		"retries": 4, "adds": 3, "latency": testkit.Seconds(2, 2, 1), "work": testkit.Seconds(0, 0, 0),
	})
	q.ShutDown()
	q.AddAfter("d", 0)
	q.AddAfter("d", time.Second)
	r.wantMetrics(m, "AddAfter after shutdown", values{
		"retries": 4, "adds": 3, "latency": testkit.Seconds(2, 2, 1), "work": testkit.Seconds(0, 0, 0),
	})
}

func tryMetricsAfterShutDown(r *run) {
	for i := range 2 {
		q, m := r.measured()
		q.Add("a")
		q.Add("b")
		r.hold(q, "a", "b")
		r.pass(2 * time.Second)
		e := enders(q)[i]
		c := e.start(r, q)
		synctest.Wait()
		q.Done("a")
		q.Done("b")
		c.mustReturn("with nothing left")
		r.wantMetrics(m, e.name+" with keys held, and then Done", values{"adds": 2, "latency": testkit.Seconds(0, 0), "work": testkit.Seconds(2, 2)})
	}
}

func tryMetricsOfUnnamedQueue(r *run) {
	if r.suite.NoMetrics {
		r.lacks("metrics")
	}
	m := &testkit.Recorder{}
	q := r.queue(Config[string]{MetricsProvider: m})
	q.Add("a")
	r.process(q, "a added", "a")
	if made := m.Made(); len(made) > 0 {
		r.Fatalf("metrics were made: %q", made)
	}
}
