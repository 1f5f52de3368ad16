// Package simulation is tests alone: they simulate what becomes of failing keys, and write the tables of
// docs/backoff.md.
package simulation

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// A key's handler fails for a while, during which events add the key: somebody writes its status, or its own
// writes come back. Then it is repaired, without an event. TestBackoffWithEvents writes what becomes of the
// key into docs/backoff.md.

// retrier starts a queue, and one worker that calls handle for each key that it gets. It returns what adds
// the key and what ends both.
type retrier func(handle func() error) (add, stop func())

// retriers are what a user may choose. Those with jitter get a seed, so that the table is the same on every
// machine.
var retriers = []struct {
	name string
	// row is the name in the table of docs/backoff.md, if it is there.
	row string
	// bound is how often the time for which the key was broken may pass until it succeeds, or zero if that is
	// unbounded. Those with bound 1 have no jitter: they make the same calls, and are one row.
	bound float64
	start func(seed uint64) retrier
}{
	{"default", "`DefaultTypedControllerRateLimiter`, as in client-go", 0, func(uint64) retrier {
		return retries(workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()))
	}},
	{"controller", "`NewTypedControllerRateLimiter`; `priorityqueue`; any limiter with `worker`, except over `foreign`", 1,
		func(uint64) retrier {
			return retries(workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedControllerRateLimiter[string](nil)))
		}},
	{"worker", "", 1, func(uint64) retrier {
		return runs(workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()))
	}},
	{"priorityqueue", "", 1, func(uint64) retrier {
		return retries(priorityqueue.New(priorityqueue.Config[string]{}))
	}},
	{"backoff", "", 1, jittered(workqueue.NoJitter)},
	{"FullJitter", "`NewTypedItemBackoffRateLimiter` with `FullJitter`, the slowest of three seeds", 4,
		jittered(workqueue.FullJitter)},
	{"EqualJitter", "", 2, jittered(workqueue.EqualJitter)},
}

func jittered(jitter workqueue.Jitter) func(seed uint64) retrier {
	return func(seed uint64) retrier {
		l := workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{Jitter: jitter})
		setRandom(l, rand.New(rand.NewPCG(seed, 0)).Uint64N)
		return retries(workqueue.NewTypedRateLimitingQueue(l))
	}
}

// retries is the loop that users of client-go's queue write.
func retries(queue workqueue.TypedRateLimitingInterface[string]) retrier {
	return func(handle func() error) (add, stop func()) {
		go func() {
			for {
				key, shutdown := queue.Get()
				if shutdown {
					return
				}
				if handle() != nil {
					queue.AddRateLimited(key)
				} else {
					queue.Forget(key)
				}
				queue.Done(key)
			}
		}()
		return func() { queue.Add("key") }, queue.ShutDown
	}
}

// runs is the loop of package worker.
func runs(queue workqueue.TypedRateLimitingInterface[string]) retrier {
	return func(handle func() error) (add, stop func()) {
		ctx, stop := context.WithCancel(context.Background())
		go worker.Run(ctx, queue, func(context.Context, string) error { return handle() },
			worker.Options[string]{MaxRetries: 50, Logger: slog.New(slog.DiscardHandler)})
		return func() { queue.Add("key") }, stop
	}
}

// whileBroken returns how often a key was called that is broken for the time down, while events add it, and
// how long after its repair it succeeded.
func whileBroken(t *testing.T, start func(seed uint64) retrier, seed uint64, events,
	down time.Duration) (calls int, late time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		repair := time.Now().Add(down)
		ctx, succeeded := context.WithCancel(t.Context())
		add, stop := start(seed)(func() error {
			if time.Now().Before(repair) {
				calls++
				return errors.New("broken")
			}
			late = time.Since(repair)
			succeeded()
			return nil
		})
		defer stop()
		add()
		for time.Until(repair) > events {
			time.Sleep(events + time.Microsecond) // so that no event comes at the moment of a retry
			add()
		}
		<-ctx.Done()
	})
	return calls, late
}

const never = 1000 * time.Hour

// TestBackoffWithEvents writes the table of docs/backoff.md if called with -update, and otherwise asserts
// that it is what it would write. With any events, a limiter that counts each failure once has the key
// succeed when it would without any, and the calls are those that it would have without, and the events.
func TestBackoffWithEvents(t *testing.T) {
	if !testkit.Long {
		t.Skip("simulates a million calls: set WORKQUEUE_LONG")
	}
	table := "\n| | no event | one every 5 ms | every 50 ms | every 5 s |\n|---|--:|--:|--:|--:|\n"
	for _, down := range []time.Duration{time.Second, 10 * time.Second, 10 * time.Minute} {
		unjittered := "" // what all retriers with bound 1 have
		for _, r := range retriers {
			// The longest of three, if delays are random.
			seed, calls, late := uint64(0), 0, time.Duration(-1)
			for s := range uint64(3) {
				if c, l := whileBroken(t, r.start, s, never, down); l > late {
					seed, calls, late = s, c, l
				}
			}
			cells := fmt.Sprintf(" %d calls, %s |", calls, spoken(late))
			for _, every := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 5 * time.Second} {
				c, l := whileBroken(t, r.start, seed, every, down)
				cells += fmt.Sprintf(" %d calls, %s |", c, spoken(l))
				if r.bound == 0 {
					continue
				}
				if l != late || l.Seconds() > r.bound*down.Seconds() {
					t.Errorf("%s, broken for %v, an event every %v: succeeds after %v, %v without events", r.name, down,
						every, l, late)
				}
				if c < calls || c > calls+int(down/every) {
					t.Errorf("%s, broken for %v, an event every %v: %d calls, %d without events", r.name, down,
						every, c, calls)
				}
			}
			if r.bound == 1 {
				unjittered = cmp.Or(unjittered, cells)
				if cells != unjittered {
					t.Errorf("%s, broken for %v:%s others:%s", r.name, down, cells, unjittered)
				}
			}
			if r.row != "" && down == 10*time.Second {
				table += "| " + r.row + " |" + cells + "\n"
			}
		}
	}
	golden(t, table+"\n")
}

// spoken returns d as people say it: three digits of milliseconds or seconds, or minutes and seconds.
func spoken(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d%time.Minute < time.Second:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
}

// A fleet of replicas, each with one key, finds the service that they all need failed at the same
// moment. Each replica has a limiter of its own and attempts after that limiter's delays. The service is back
// after a while, but answers only a limited number of requests a second.
const (
	fleetSize     = 1000
	fleetBase     = 100 * time.Millisecond
	fleetMax      = 30 * time.Second
	fleetDown     = 120 // seconds
	fleetCapacity = 100 // requests a second
	fleetSeconds  = 480 // are simulated
)

// fleetRun is what the service has seen.
type fleetRun struct {
	jitter           workqueue.Jitter
	refused, granted [fleetSeconds]int // in each second
}

type attempt struct {
	at      time.Duration
	replica int
}

type attempts []attempt

func (r attempts) Len() int { return len(r) }
func (r attempts) Less(i, j int) bool {
	return r[i].at < r[j].at || r[i].at == r[j].at && r[i].replica < r[j].replica
}
func (r attempts) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *attempts) Push(x any)   { *r = append(*r, x.(attempt)) }
func (r *attempts) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

func simulateFleet(jitter workqueue.Jitter) *fleetRun {
	run := &fleetRun{jitter: jitter}
	clock := testkit.NewFakeClock()
	random := rand.New(rand.NewPCG(2015, uint64(jitter))).Uint64N
	limiters := make([]workqueue.TypedRateLimiter[string], fleetSize)
	due := &attempts{}
	for i := range limiters {
		limiters[i] = workqueue.NewTypedItemBackoffRateLimiter(workqueue.BackoffConfig[string]{
			Base: fleetBase, Max: fleetMax, Jitter: jitter, Clock: clock,
		})
		setRandom(limiters[i], random)
		heap.Push(due, attempt{0, i})
	}
	for due.Len() > 0 {
		next := heap.Pop(due).(attempt)
		second := int(next.at / time.Second)
		if second >= fleetSeconds {
			break
		}
		if second >= fleetDown && run.granted[second] < fleetCapacity {
			run.granted[second]++
			continue
		}
		run.refused[second]++
		clock.SetTime(testkit.Epoch.Add(next.at))
		next.at += limiters[next.replica].When("service")
		heap.Push(due, next)
	}
	return run
}

func (r *fleetRun) requests(second int) int { return r.refused[second] + r.granted[second] }

func total(seconds []int) (n int) {
	for _, s := range seconds {
		n += s
	}
	return n
}

// busiest returns the most requests in a second while the service is down, from that second on.
func (r *fleetRun) busiest(from int) (n int) {
	for s := from; s < fleetDown; s++ {
		n = max(n, r.requests(s))
	}
	return n
}

// back returns how many seconds after the service so many replicas are back.
func (r *fleetRun) back(replicas int) int {
	for s := range fleetSeconds {
		if replicas -= r.granted[s]; replicas <= 0 {
			return s + 1 - fleetDown
		}
	}
	return math.MaxInt
}

var jitterNames = [...]string{"NoJitter", "FullJitter", "EqualJitter"}

// TestBackoffSimulation simulates the fleet with each jitter and without. It writes the table in docs/backoff.md
// if called with -update, and otherwise asserts that it is what it would write.
func TestBackoffSimulation(t *testing.T) {
	var runs []*fleetRun
	for _, jitter := range []workqueue.Jitter{
		workqueue.NoJitter, workqueue.FullJitter, workqueue.EqualJitter,
	} {
		r := simulateFleet(jitter)
		runs = append(runs, r)
		if n := total(r.granted[:]); n != fleetSize {
			t.Errorf("%v: %d replicas got their answer", jitter, n)
		}
		if jitter == workqueue.NoJitter {
			if r.busiest(60) != fleetSize {
				t.Errorf("%v: %d requests in the busiest second, want all at once", jitter, r.busiest(60))
			}
			continue
		}
		if r.busiest(60) > fleetSize/5 {
			t.Errorf("%v: %d requests in the busiest second", jitter, r.busiest(60))
		}
		if back := r.back(fleetSize); back > int(fleetMax/time.Second)+1 {
			t.Errorf("%v: all replicas are back after %d s", jitter, back)
		}
	}
	golden(t, fleetTable(runs))
}

func fleetTable(runs []*fleetRun) string {
	var b strings.Builder
	b.WriteString(
		"| | requests while it is down | busiest second after 10 s | after 60 s | half are back after | all are back after | refused meanwhile |\n")
	b.WriteString("|---|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range runs {
		fmt.Fprintf(&b, "| `%v` | %d | %d | %d | %d s | %d s | %d |\n", jitterNames[r.jitter], total(r.refused[:fleetDown]),
			r.busiest(10), r.busiest(60), r.back(fleetSize/2), r.back(fleetSize), total(r.refused[fleetDown:]))
	}
	return b.String()
}

var update = flag.Bool("update", false, "write the tables of docs/backoff.md anew")

// setRandom makes the random delays of a limiter of NewTypedItemBackoffRateLimiter come from random, so that
// a simulation has the same result on every machine. The limiter keeps its source to itself.
func setRandom(limiter any, random func(n uint64) uint64) {
	field := reflect.ValueOf(limiter).Elem().FieldByName("random")
	*(*func(uint64) uint64)(field.Addr().UnsafePointer()) = random
}

// golden asserts that the part of docs/backoff.md that belongs to the test t is text, or makes it so if the flag
// says so.
func golden(t *testing.T, text string) {
	t.Helper()
	const name = "../../docs/backoff.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), "<!-- "+t.Name()+" writes from here -->\n")
	is, after, closed := strings.Cut(rest, "<!-- to here -->\n")
	switch {
	case !found || !closed:
		t.Fatalf("%s has no place for what %s writes", name, t.Name())
	case is == text:
		return
	case !*update:
		t.Fatalf("%s is not what the simulation says: go test -run '^%s$' ./internal/simulation -update",
			name, t.Name())
	}
	page = []byte(before + "<!-- " + t.Name() + " writes from here -->\n" + text + "<!-- to here -->\n" + after)
	if err := os.WriteFile(name, page, 0o644); err != nil {
		t.Fatal(err)
	}
}
