package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	peer "k8s.io/client-go/util/workqueue"
	kubemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/prom"
)

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

// The help may become that of another stability, and the metric may be registered after Join. If it differs
// then, ours is left out, and the others are served.
func TestJoinFindsTheHelp(t *testing.T) {
	for _, stability := range []kubemetrics.StabilityLevel{kubemetrics.ALPHA, kubemetrics.BETA,
		kubemetrics.STABLE} {
		for help, lines := range map[string]int{"Current depth of workqueue": 2, "Something else.": 1} {
			for _, joinFirst := range []bool{true, false} {
				t.Run(fmt.Sprintf("stability=%s/help=%s/joinFirst=%v", stability, help, joinFirst), func(t *testing.T) {
					registry := kubemetrics.NewKubeRegistry()
					depth := kubemetrics.NewGaugeVec(&kubemetrics.GaugeOpts{
						Name: "workqueue_depth", Help: help, StabilityLevel: stability,
					}, []string{"name"})
					register := func() {
						registry.MustRegister(depth)
						depth.WithLabelValues("theirs").Set(1)
					}
					if !joinFirst {
						register()
					}
					p, err := prom.Join(registry.Registerer(), prom.Options{})
					if (err != nil) != (!joinFirst && lines == 1) {
						t.Errorf("Join() = %v", err)
					}
					if err != nil {
						return
					}
					q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[int]{Name: "ours", MetricsProvider: p})
					defer q.ShutDown()
					count := func(metric string) int {
						n, err := testutil.GatherAndCount(registry.Gatherer(), metric)
						if err != nil {
							t.Fatal(err)
						}
						return n
					}
					count("workqueue_depth") // before the others have registered theirs, perhaps
					if joinFirst {
						register()
					}
					if depths, adds := count("workqueue_depth"), count("workqueue_adds_total"); depths != lines || adds != 1 {
						t.Errorf("%d values of workqueue_depth and %d of workqueue_adds_total, want %d and 1", depths, adds, lines)
					}
				})
			}
		}
	}
}
