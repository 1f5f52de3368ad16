package metrics

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	peer "k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // the provider of client-go's queues
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
)

// families are those that Kubernetes has.
var families = []string{
	"workqueue_adds_total", "workqueue_depth", "workqueue_longest_running_processor_seconds",
	"workqueue_queue_duration_seconds", "workqueue_retries_total", "workqueue_unfinished_work_seconds",
	"workqueue_work_duration_seconds",
}

// subject is a queue whose metrics are looked at.
type subject struct {
	kind     string
	queue    peer.TypedRateLimitingInterface[int]
	clock    *testingclock.FakeClock
	gatherer prometheus.Gatherer
	held     []int
}

func subjects(t *testing.T, name string) []*subject {
	newClock := func() *testingclock.FakeClock {
		return testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	ours := &subject{kind: "ours with prom", clock: newClock()}
	kubernetes := &subject{kind: "client-go's with Kubernetes' metrics", clock: newClock()}
	mixed := &subject{kind: "client-go's with prom", clock: newClock()}

	registry := prometheus.NewPedanticRegistry()
	ours.gatherer = registry
	ours.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemFastSlowRateLimiter[int](0, 0, 1),
		workqueue.TypedRateLimitingQueueConfig[int]{
			Name: name, Clock: ours.clock, MetricsProvider: prom.NewProvider(registry, prom.Options{}),
		})

	kubernetes.gatherer = legacyregistry.DefaultGatherer
	kubernetes.queue = peer.NewTypedRateLimitingQueueWithConfig(
		peer.NewTypedItemFastSlowRateLimiter[int](0, 0, 1),
		peer.TypedRateLimitingQueueConfig[int]{Name: name, Clock: kubernetes.clock})

	registry = prometheus.NewPedanticRegistry()
	mixed.gatherer = registry
	provider := prom.For[peer.GaugeMetric, peer.CounterMetric, peer.HistogramMetric, peer.SettableGaugeMetric](
		prom.NewProvider(registry, prom.Options{}))
	mixed.queue = peer.NewTypedRateLimitingQueueWithConfig(
		peer.NewTypedItemFastSlowRateLimiter[int](0, 0, 1),
		peer.TypedRateLimitingQueueConfig[int]{Name: name, Clock: mixed.clock, MetricsProvider: provider})
	return []*subject{kubernetes, ours, mixed}
}

// text returns what Prometheus would get of that queue.
func (s *subject) text(t *testing.T, name string) string {
	t.Helper()
	gathered, err := s.gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range gathered {
		for _, wanted := range families {
			if f.GetName() == wanted {
				if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	var kept strings.Builder
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "#") || strings.Contains(line, fmt.Sprintf("name=%q", name)) {
			// The stability is Kubernetes' own.
			kept.WriteString(strings.Replace(line, "[BETA] ", "", 1))
		}
	}
	return kept.String()
}

// rounds counts the runs of a test. Kubernetes' registry remembers the queues of earlier ones, also with
// -count 2.
var rounds int

// The same random calls make the same metrics, to the letter.
func TestSameText(t *testing.T) {
	rounds++
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				name := fmt.Sprintf("round-%d-seed-%d", rounds, seed)
				all := subjects(t, name)
				random := rand.New(rand.NewPCG(seed, 0))
				for step := range 100 {
					call := randomCall(random, step)
					for _, s := range all {
						call(s)
					}
					synctest.Wait()
					want := all[0].text(t, name)
					if n := strings.Count(want, "# TYPE"); n != len(families) {
						t.Fatalf("%d of %d families:\n%s", n, len(families), want)
					}
					for _, s := range all[1:] {
						if got := s.text(t, name); got != want {
							t.Fatalf("step %d, %s:\n%s\n%s:\n%s", step, s.kind, got, all[0].kind, want)
						}
					}
				}
				for _, s := range all {
					s.queue.ShutDown()
					s.clock.Step(time.Minute) // for the goroutines of client-go's queues
				}
			})
		})
	}
}

// period is the time between the ticks at which client-go sets gauges. At other times they would be old.
const period = 500 * time.Millisecond

func randomCall(random *rand.Rand, step int) func(s *subject) {
	key := random.IntN(8)
	switch random.IntN(12) {
	case 0, 1, 2:
		return func(s *subject) { s.queue.Add(key) }
	case 3, 4:
		return func(s *subject) {
			if s.queue.Len() > 0 {
				key, _ := s.queue.Get()
				s.held = append(s.held, key)
			}
			s.tick() // so that the gauges of client-go know of it
		}
	case 5, 6:
		n := random.IntN(8)
		return func(s *subject) {
			if n < len(s.held) {
				s.queue.Done(s.held[n])
				s.held = append(s.held[:n:n], s.held[n+1:]...)
			}
			s.tick()
		}
	case 7:
		return func(s *subject) { s.queue.AddRateLimited(key) }
	case 8, 9:
		// No two keys are due at once; client-go has them in no particular order.
		d := time.Duration(random.IntN(8))*period + time.Duration(step)
		return func(s *subject) { s.queue.AddAfter(key, d) }
	default:
		n := random.IntN(5)
		return func(s *subject) {
			for range n {
				s.tick()
			}
		}
	}
}

func (s *subject) tick() {
	synctest.Wait()
	s.clock.Step(period)
	synctest.Wait()
}

var joins int

// A program's registry can have the metrics of client-go's queues and ours, under the same names. They differ
// in the queue's name alone.
func TestJoinLegacyRegistry(t *testing.T) {
	joins++
	theirName, ourName := fmt.Sprint("their-join-", joins), fmt.Sprint("our-join-", joins)
	p, err := prom.Join(legacyregistry.Registerer(), prom.Options{})
	if err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ours := &subject{clock: clock, gatherer: legacyregistry.DefaultGatherer}
	ours.queue = workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[int]{
		Name: ourName, Clock: clock, MetricsProvider: p,
	})
	defer ours.queue.ShutDown()
	if got := ours.text(t, ourName); !strings.Contains(got, `workqueue_depth{name="`+ourName+`"} 0`) {
		t.Errorf("without another queue:\n%s", got)
	}
	theirs := &subject{clock: clock, gatherer: legacyregistry.DefaultGatherer}
	theirs.queue = peer.NewTypedRateLimitingQueueWithConfig(peer.DefaultTypedControllerRateLimiter[int](),
		peer.TypedRateLimitingQueueConfig[int]{Name: theirName, Clock: clock})
	defer theirs.queue.ShutDown()
	for _, s := range []*subject{ours, theirs} {
		s.queue.Add(1)
		s.queue.Add(2)
		s.queue.Get()
	}
	got, want := ours.text(t, ourName), theirs.text(t, theirName)
	if got := strings.ReplaceAll(got, ourName, theirName); got != want || strings.Count(want, "# TYPE") != 7 {
		t.Errorf("ours:\n%s\nclient-go's:\n%s", got, want)
	}
	if _, err := prom.Join(legacyregistry.Registerer(), prom.Options{ControllerRuntime: true}); err == nil {
		t.Error("no error from Join with other labels")
	}
}
