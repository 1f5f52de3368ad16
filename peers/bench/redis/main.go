// Command redis measures redisqueue beside asynq on a redis-server of its own, which it starts on a port of
// the loopback interface (see tools/install-server.sh), and prints tables:
//
//	go run ./bench/redis -rounds 11
//
// In each round the implementations take turns. A figure is the median of the rounds. Latencies are measured
// in three rounds only: each has hundreds of them. asynq runs with unique tasks, without logs, and looks for
// new tasks every 10 ms instead of every second, but for the rows that say otherwise. Half load is half of
// what this process and the consumer manage, for each implementation by itself. The whole takes about a
// quarter of an hour.
//
// The rows "Add+Get+Done" favour redisqueue: its callers do not wait for the server, and one goroutine does
// all three. asynq's Enqueue waits, and its server has goroutines of its own. The rows "AddContext and
// worker.Run" are the fair set-up: callers that wait for the server, and as many workers beside them; there
// asynq is also measured without unique tasks, which is faster, and has the same task twice if it is added
// twice.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	rounds  = flag.Int("rounds", 11, "rounds; the median counts")
	perRun  = flag.Duration("time", 500*time.Millisecond, "how long about one measurement takes")
	drained = flag.Int("drain", 100_000, "queued keys to drain")
	workers = flag.String("goroutines", "1,8,64,512", "how many goroutines to measure with")
	only    = flag.Bool("cycles", false, "measure neither latency nor a long queue")
	modes   = flag.String("modes", "no,everysec,always", "settings of the append-only file to measure with")
)

func main() {
	log.SetFlags(log.Ltime)
	flag.Parse()
	if addr := os.Getenv(consumerVariable); addr != "" {
		consume(addr, os.Getenv(consumerVariable+"_IMPL"))
		return
	}
	for _, mode := range strings.Split(*modes, ",") {
		if err := measure(mode); err != nil {
			log.Fatal(err)
		}
	}
}

// figures are the results of all rounds, by row and column.
type figures map[string]map[string][]float64

func (f figures) add(row, column string, value float64) {
	if f[row] == nil {
		f[row] = make(map[string][]float64)
	}
	f[row][column] = append(f[row][column], value)
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

func measure(mode string) error {
	s, err := startServer(mode)
	if err != nil {
		return err
	}
	defer s.stop()
	results := make(figures)
	var rows []string
	row := func(format string, args ...any) string {
		name := fmt.Sprintf(format, args...)
		if !slices.Contains(rows, name) {
			rows = append(rows, name)
		}
		return name
	}
	size := make(map[string]int) // keys of one measurement, so that it takes about perRun
	for round := range *rounds {
		for _, text := range strings.Split(*workers, ",") {
			goroutines, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			for _, impl := range impls {
				key := fmt.Sprint(impl.name, goroutines)
				if size[key] == 0 {
					warm, err := cycle(s, impl, goroutines, 20*goroutines+100)
					if err != nil {
						return err
					}
					size[key] = max(100, int(warm.keysPerSecond*perRun.Seconds()))
				}
				c, err := cycle(s, impl, goroutines, size[key])
				if err != nil {
					return err
				}
				log.Printf("%s, %d goroutines: %.0f keys/s", impl.name, goroutines, c.keysPerSecond)
				results.add(row("Add+Get+Done, %d goroutines, keys/s", goroutines), impl.name, c.keysPerSecond)
				results.add(row("calls of the server per key, %d goroutines", goroutines), impl.name, c.callsPerKey)
				results.add(row("CPU of the server per key, %d goroutines, µs", goroutines), impl.name, c.serverCPU)
				results.add(row("CPU of the client per key, %d goroutines, µs", goroutines), impl.name, c.clientCPU)
				fair := row("AddContext and worker.Run, %d goroutines each, keys/s", goroutines)
				if impl.name == impls[1].name {
					results.add(fair, impl.name, c.keysPerSecond) // It always does so.
					if c, err = cycle(s, plainly, goroutines, size[key]); err != nil {
						return err
					}
					log.Printf("%s, %d goroutines: %.0f keys/s", plainly.name, goroutines, c.keysPerSecond)
					results.add(fair, plainly.name, c.keysPerSecond)
					continue
				}
				if c, err = cycle(s, fairly, goroutines, size[key]/3+1); err != nil {
					return err
				}
				log.Printf("%s, fairly, %d goroutines: %.0f keys/s, %.2f calls a key, CPU %.1f and %.1f µs", impl.name,
					goroutines,
					c.keysPerSecond, c.callsPerKey, c.serverCPU, c.clientCPU)
				results.add(fair, impl.name, c.keysPerSecond)
			}
		}
		if *only {
			continue
		}
		for _, impl := range impls {
			speed, bytes, err := drain(s, impl, *drained)
			if err != nil {
				return err
			}
			log.Printf("%s, drain: %.0f keys/s", impl.name, speed)
			results.add(row("draining %d queued keys, 64 workers, keys/s", *drained), impl.name, speed)
			results.add(row("bytes per queued key"), impl.name, bytes)
		}
		if round < 3 { // Each has hundreds of samples.
			for _, impl := range impls {
				for _, l := range []struct {
					name     string
					load     float64
					interval time.Duration
				}{
					{"idle", 0, 10 * time.Millisecond},
					{"half load", half, 10 * time.Millisecond},
					{"2,500 adds/s", 2500, 10 * time.Millisecond},
					{"idle, asynq with its usual interval", 0, time.Second},
				} {
					percentiles, load, err := latency(s, impl, l.load, l.interval)
					if err != nil {
						return err
					}
					log.Printf("%s, %s: %v", impl.name, l.name, percentiles)
					for i, name := range []string{"p50", "p99", "p99.9"} {
						results.add(row("Add to Get in another process, %s, %s, ms", l.name, name), impl.name, percentiles[i])
					}
					if l.load == half {
						results.add(row("half load, keys/s"), impl.name, load)
					}
				}
			}
		}
		log.Printf("append-only file %s: round %d of %d", mode, round+1, *rounds)
	}
	fmt.Printf(
		"\nAppend-only file: %s\n\n| | redisqueue | asynq | asynq, tasks not unique |\n|---|---|---|---|\n", mode)
	slices.SortStableFunc(rows, func(a, b string) int { return strings.Compare(order(a), order(b)) })
	for _, name := range rows {
		fmt.Printf("| %s", name)
		for _, im := range append(slices.Clone(impls), plainly) {
			figure := ""
			if all := results[name][im.name]; len(all) > 0 {
				figure = number(median(all))
			}
			fmt.Printf(" | %s", figure)
		}
		fmt.Println(" |")
	}
	return nil
}

// order is what rows are sorted by.
func order(row string) string {
	for i, prefix := range []string{"Add+", "AddContext", "draining", "Add to", "half load", "bytes", "calls",
		"CPU of the server", "CPU of the client"} {
		if strings.HasPrefix(row, prefix) {
			return fmt.Sprint(i)
		}
	}
	return "9"
}

func number(f float64) string {
	switch {
	case f >= 1000:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.3f", f)
}

var background = context.Background()
