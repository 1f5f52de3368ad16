package prom_test

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/prom"
)

// queue is what the tests need of one.
type queue interface {
	workqueue.Extended[string]
	AddAfter(key string, d time.Duration)
}

// bench is a registry with a provider, and a clock for queues.
type bench struct {
	*prometheus.Registry
	provider *prom.Provider
	clock    *testingclock.FakeClock
}

func newBench(opts prom.Options) *bench {
	registry := prometheus.NewPedanticRegistry()
	return &bench{
		Registry: registry,
		provider: prom.NewProvider(registry, opts),
		clock:    testkit.NewFakeClock(),
	}
}

func (b *bench) queue(name string) queue {
	return workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[string]{
		Name: name, MetricsProvider: b.provider, Clock: b.clock,
	}).(queue)
}

// get returns the metric of that family and name, or nil.
func (b *bench) get(t testing.TB, family, name string) *dto.Metric {
	t.Helper()
	families, err := b.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return find(families, family, name)
}

func find(families []*dto.MetricFamily, family, name string) *dto.Metric {
	for _, f := range families {
		if f.GetName() != "workqueue_"+family {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "name" && l.GetValue() == name {
					return m
				}
			}
		}
	}
	return nil
}

// want fails unless the series of that name are these: for each family without its prefix a number, of a
// histogram the count and, as …_sum, the sum. Those that are not mentioned must not be there.
func (b *bench) want(t *testing.T, when, name string, want map[string]float64) {
	t.Helper()
	families, err := b.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		short := strings.TrimPrefix(f.GetName(), "workqueue_")
		switch m := find(families, short, name); {
		case m == nil:
		case m.Histogram != nil:
			got[short], got[short+"_sum"] = float64(m.Histogram.GetSampleCount()), m.Histogram.GetSampleSum()
		case m.Counter != nil:
			got[short] = m.Counter.GetValue()
		default:
			got[short] = m.Gauge.GetValue()
		}
	}
	for family, v := range want {
		if g, ok := got[family]; !ok || math.Abs(g-v) > 1e-9 {
			t.Errorf("%s: %s of %s = %v (there: %v), want %v", when, family, name, g, ok, v)
		}
		delete(got, family)
	}
	if len(got) > 0 {
		t.Errorf("%s: %s also has %v", when, name, got)
	}
}

// text returns what the registry has in Prometheus' text format.
func text(t testing.TB, g prometheus.Gatherer) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// process gets and finishes n keys.
func process(t *testing.T, q queue, n int) {
	t.Helper()
	for range n {
		if q.Len() == 0 {
			t.Fatal("nothing is queued")
		}
		key, _ := q.Get()
		q.Done(key)
	}
}

// wantLines fails unless text has each line once.
func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if strings.Count("\n"+text, "\n"+line+"\n") != 1 {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

// wantBuckets fails unless the classic buckets below that bound have one count, and those from there on
// another.
func wantBuckets(t *testing.T, h *dto.Histogram, bound float64, below, from uint64) {
	t.Helper()
	for _, bucket := range h.Bucket {
		want := below
		if bucket.GetUpperBound() >= bound {
			want = from
		}
		if n := bucket.GetCumulativeCount(); n != want {
			t.Errorf("bucket %v has %d, want %d", bucket.GetUpperBound(), n, want)
		}
	}
}

// lint fails if Prometheus' own check of the metrics finds anything.
func lint(t *testing.T, g prometheus.Gatherer) {
	t.Helper()
	if problems, err := testutil.GatherAndLint(g); err != nil || len(problems) > 0 {
		t.Errorf("GatherAndLint() = %v, %v", problems, err)
	}
}
