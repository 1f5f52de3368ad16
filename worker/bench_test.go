package worker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

type pair struct{ namespace, name string }

// BenchmarkKey measures what a key costs, from one call of the handler to the next: in a worker, by hand
// (the loop that the documentation of package workqueue shows), and by hand without Forget. On a shared
// machine only what is measured together can be compared, so each iteration runs one round of each, in
// turn, and the medians of all rounds are reported, with the ratios of the worker's to the others.
//
//	go test -run '^$' -bench Key -benchtime 500x ./worker
func BenchmarkKey(b *testing.B) {
	for name, limiter := range map[string]func() workqueue.TypedRateLimiter[pair]{
		"default": workqueue.DefaultTypedControllerRateLimiter[pair],
		"none":    func() workqueue.TypedRateLimiter[pair] { return workqueue.NewTypedMaxOfRateLimiter[pair]() },
	} {
		for _, n := range []int{1000, 100_000} {
			b.Run(fmt.Sprintf("limiter=%s/keys=%d", name, n), func(b *testing.B) {
				keys := make([]pair, n)
				for i := range keys {
					keys[i] = pair{"namespace", fmt.Sprint("name ", i)}
				}
				loops := []func(queue) time.Duration{
					func(q queue) time.Duration { return byHand(q, n, false) },
					func(q queue) time.Duration { return byHand(q, n, true) },
					func(q queue) time.Duration { return byWorker(b, q, n) },
				}
				times := make([][]float64, len(loops))
				for b.Loop() {
					for i, loop := range loops {
						q := workqueue.NewTypedRateLimitingQueue(limiter())
						for _, key := range keys {
							q.Add(key)
						}
						times[i] = append(times[i], float64(loop(q).Nanoseconds())/float64(n-1))
					}
				}
				medians := make([]float64, len(times))
				for i, t := range times {
					slices.Sort(t)
					medians[i] = t[len(t)/2]
				}
				b.ReportMetric(0, "ns/op") // says nothing
				b.ReportMetric(medians[0], "Get,Done-ns/key")
				b.ReportMetric(medians[1], "Get,Forget,Done-ns/key")
				b.ReportMetric(medians[2], "worker-ns/key")
				b.ReportMetric(medians[2]/medians[0], "worker/Get,Done")
				b.ReportMetric(medians[2]/medians[1], "worker/Get,Forget,Done")
			})
		}
	}
}

type queue = workqueue.TypedRateLimitingInterface[pair]

// stopwatch measures from its first tick to its nth.
type stopwatch struct {
	ticks, n int
	start    time.Time
	elapsed  time.Duration
}

// tick returns true at the nth.
func (s *stopwatch) tick() bool {
	s.ticks++
	switch s.ticks {
	case 1:
		s.start = time.Now()
	case s.n:
		s.elapsed = time.Since(s.start)
		return true
	}
	return false
}

// byHand has the handler called in the same way as byWorker: as a function value, with a context.
func byHand(q queue, n int, forget bool) time.Duration {
	watch := stopwatch{n: n}
	last := false
	handle := func(context.Context, pair) error {
		last = watch.tick()
		return nil
	}
	for ctx := context.Background(); !last; {
		key, shutdown := q.Get()
		if shutdown {
			break
		}
		if err := handle(ctx, key); err != nil {
			q.AddRateLimited(key)
		} else if forget {
			q.Forget(key)
		}
		q.Done(key)
	}
	q.ShutDown()
	return watch.elapsed
}

func byWorker(b *testing.B, q queue, n int) time.Duration {
	watch := stopwatch{n: n}
	ctx, cancel := context.WithCancel(b.Context())
	handle := func(context.Context, pair) error {
		if watch.tick() {
			cancel()
		}
		return nil
	}
	if err := worker.Run(ctx, q, handle, worker.Options[pair]{}); err != nil {
		b.Fatal(err)
	}
	return watch.elapsed
}
