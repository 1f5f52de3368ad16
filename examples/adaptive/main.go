// Command adaptive lets an adaptive limit of failsafe-go decide how many workers a pool has. What they call
// is a made-up server whose capacity changes.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	mostWorkers = 60
	phase       = 10 * time.Second
)

// capacities are how many calls the server handles at once, in one phase after another.
var capacities = []int{20, 4, 20}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	for _, adaptive := range []bool{false, true} {
		fmt.Fprintln(out, map[bool]string{false: "60 workers:", true: "an adaptive number of workers:"}[adaptive])
		if err := measure(ctx, out, adaptive); err != nil {
			return err
		}
	}
	return nil
}

// measure runs a pool over a backlog of keys while the server's capacity changes, and prints what the calls
// took.
func measure(ctx context.Context, out io.Writer, adaptive bool) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedControllerRateLimiter[int](nil))
	for key := range 100_000 {
		queue.Add(key)
	}
	var server server
	var took durations
	handle := func(context.Context, int) error {
		began := time.Now()
		server.call()
		took.add(time.Since(began))
		return nil
	}
	server.capacity.Store(int64(capacities[0]))
	var pool *worker.Pool[int]
	if adaptive {
		pool = adaptivePool(queue, handle)
	} else {
		pool = worker.New(queue, handle, options(mostWorkers))
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(running) }()
	for _, capacity := range capacities {
		server.capacity.Store(int64(capacity))
		took.take()
		time.Sleep(phase)
		all := took.take()
		fmt.Fprintf(out, "  the server handles %2d at once: %3.0f calls/s, p50 %4d ms, p99 %4d ms\n", capacity,
			float64(len(all))/phase.Seconds(), quantile(all, .5).Milliseconds(), quantile(all, .99).Milliseconds())
	}
	stop()
	return <-ended
}

// adaptivePool returns a pool with as many workers as the limiter allows. The limiter measures how long calls
// take: when that grows with their number, the server is full.
func adaptivePool(queue workqueue.TypedRateLimitingInterface[int],
	handle worker.Handler[int]) *worker.Pool[int] {
	var pool *worker.Pool[int]
	limiter := adaptivelimiter.NewBuilder[any]().
		WithLimits(1, mostWorkers, 4).
		WithRecentWindow(100*time.Millisecond, time.Second, 20).
		WithRecentQuantile(.5).
		WithBaselineWindow(100).
		OnLimitChanged(func(e adaptivelimiter.LimitChangedEvent) {
			_ = pool.SetWorkers(int(e.NewLimit)) // an error only if it is negative
		}).
		Build()
	pool = worker.New(queue, func(ctx context.Context, key int) error {
		// It waits if the limit has just become smaller: SetWorkers lets handlers return.
		permit, err := limiter.AcquirePermit(ctx)
		if err != nil {
			return err
		}
		defer permit.Record()
		return handle(ctx, key)
	}, options(limiter.Limit()))
	return pool
}

// options are for a pool that ends without the keys that are left.
func options(workers int) worker.Options[int] {
	return worker.Options[int]{Workers: workers, Drain: worker.Running, Logger: slog.New(slog.DiscardHandler)}
}

// durations are how long calls took.
type durations struct {
	mu  sync.Mutex
	all []time.Duration
}

func (d *durations) add(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, took)
}

// take returns all since it was called last, sorted.
func (d *durations) take() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.all
	d.all = nil
	slices.Sort(all)
	return all
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}
