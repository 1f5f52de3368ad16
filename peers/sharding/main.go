// Command sharding measures how much faster several replicas are than one, if handlers wait as those of
// controllers do:
//
//	go run ./peers/sharding
//
// The replicas are members of one group in this process, with the records in memory, and each has its own
// queue and workers. So it measures how evenly keys are divided and what sharding costs, and not an API
// server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/sharding"
	"github.com/keyedqueue/workqueue/worker"
)

func main() {
	log.SetFlags(0)
	keys := flag.Int("keys", 4000, "how many keys are handled")
	workers := flag.Int("workers", 8, "how many workers each replica has")
	wait := flag.Duration("wait", 20*time.Millisecond, "how long a handler waits")
	rounds := flag.Int("rounds", 3, "how often each number of replicas is tried; the fastest counts")
	flag.Parse()
	fmt.Printf(
		"%d keys, %d workers a replica, handlers wait %v\n\nreplicas  keys/s  times one replica  keys of the replicas\n", *keys, *workers, *wait)
	one := 0.0
	for _, n := range []int{1, 2, 4, 8} {
		best, shares := 0.0, []int64(nil)
		for range *rounds {
			rate, s, err := run(n, *keys, *workers, *wait)
			if err != nil {
				log.Fatal(err)
			}
			if rate > best {
				best, shares = rate, s
			}
		}
		if n == 1 {
			one = best
		}
		fmt.Printf("%8d  %6.0f  %17.2f  %v\n", n, best, best/one, shares)
	}
}

// run returns how many keys a second n replicas handle, and how many each.
func run(n, keys, workers int, wait time.Duration) (rate float64, shares []int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	store := sharding.Memory()
	source := make([]string, keys)
	for i := range source {
		source[i] = fmt.Sprintf("namespace-%d/website-%d", i%50, i)
	}
	list := func(context.Context) (iter.Seq[string], error) { return slices.Values(source), nil }
	handled := make([]atomic.Int64, n)
	var total atomic.Int64
	done := make(chan struct{})
	members, queues := make([]*sharding.Member, n), make([]sharding.Queue[string], n)
	for i := range n {
		members[i], err = sharding.Join(ctx, store, sharding.Config{Group: "throughput",
			Name: fmt.Sprint("replica-", i)})
		if err != nil {
			return 0, nil, err
		}
		inner := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		queues[i], err = sharding.NewQueue(inner, members[i], sharding.QueueConfig[string]{Keys: list})
		if err != nil {
			return 0, nil, err
		}
	}
	for !even(members) {
		if ctx.Err() != nil {
			return 0, nil, errors.New("the slots are not divided")
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, key := range source {
		for _, queue := range queues { // As informers do, every replica adds all keys.
			queue.Add(key)
		}
	}
	began := time.Now()
	working, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	for i, queue := range queues {
		group.Go(func() {
			handle := func(context.Context, string) error {
				time.Sleep(wait)
				handled[i].Add(1)
				if total.Add(1) == int64(keys) {
					close(done)
				}
				return nil
			}
			_ = worker.Run(working, queue, handle, worker.Options[string]{Workers: workers})
		})
	}
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	rate = float64(keys) / time.Since(began).Seconds()
	stop()
	group.Wait()
	for i, m := range members {
		err = errors.Join(err, m.Leave(ctx))
		shares = append(shares, handled[i].Load())
	}
	return rate, shares, err
}

// even reports whether the members hold all slots in equal shares, and none is about to move.
func even(members []*sharding.Member) bool {
	total := 0
	for _, m := range members {
		s := m.Stats()
		if s.Stopping > 0 || s.Held > (256+len(members)-1)/len(members) {
			return false
		}
		total += s.Held
	}
	return total == 256
}
