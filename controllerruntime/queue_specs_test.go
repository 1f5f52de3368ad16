package controllerruntime_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientgo "k8s.io/client-go/util/workqueue"
	crpriority "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keyedqueue/workqueue/controllerruntime"
)

// spec is a queue, ours or controller-runtime's, and what has happened to it.
type spec struct {
	t *testing.T
	crpriority.PriorityQueue[string]
	name string
	log  []string
}

func (s *spec) note(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }

// add waits until controller-runtime's queue has also seen the add.
func (s *spec) add(key string, priority int, after time.Duration) {
	s.AddWithOpts(crpriority.AddOpts{Priority: &priority, After: after}, key)
	synctest.Wait()
}

// startGet starts a Get. The function that it returns notes what Get has returned, or that it blocks.
func (s *spec) startGet() (look func() (key string, returned bool)) {
	type result struct {
		key      string
		priority int
		shutdown bool
	}
	results := make(chan result, 1)
	synctest.Wait() // controller-runtime's goroutines notice later that a key is due.
	go func() {
		key, priority, shutdown := s.GetWithPriority()
		results <- result{key, priority, shutdown}
	}()
	synctest.Wait()
	return func() (string, bool) {
		synctest.Wait()
		select {
		case r := <-results:
			s.note("got %+v", r)
			return r.key, true
		default:
			s.note("Get blocks")
			return "", false
		}
	}
}

// get notes and returns the key that Get returns at once.
func (s *spec) get() string {
	key, returned := s.startGet()()
	if !returned {
		s.t.Fatal("Get blocks")
	}
	return key
}

// measure notes Len and the metrics that count.
func (s *spec) measure() {
	synctest.Wait()
	s.note("Len %d", s.Len())
	families, err := metrics.Registry.Gather()
	if err != nil {
		s.t.Error(err)
	}
	for _, f := range families {
		if !slices.Contains([]string{"workqueue_depth", "workqueue_adds_total", "workqueue_retries_total"},
			f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["name"] == s.name {
				s.note("%s{%s} %v", f.GetName(), labels["priority"], m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
		}
	}
}

// specQueues numbers the queues, because those of one name share their metrics.
var specQueues int

// controllerRuntimeMinor returns the minor version of the controller-runtime that the tests run with: go.mod
// names the lowest version that works, and tools/test-newest.sh runs the tests with the newest.
var controllerRuntimeMinor = sync.OnceValues(func() (minor int, err error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "sigs.k8s.io/controller-runtime").Output()
	if err == nil {
		_, err = fmt.Sscanf(string(out), "v0.%d.", &minor)
	}
	return minor, err
})

// onBoth runs f with controller-runtime's queue and ours. The same must happen.
func onBoth(t *testing.T, f func(s *spec)) {
	t.Helper()
	if minor, err := controllerRuntimeMinor(); err != nil {
		t.Fatal(err)
	} else if minor < 25 {
		t.Skip("the queue of earlier versions loses the order of keys and hangs at shutdown")
	}
	var logs [2][]string
	for i := range logs {
		synctest.Test(t, func(t *testing.T) {
			specQueues++
			name := fmt.Sprint("spec ", specQueues)
			limiter := clientgo.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 1000*time.Second)
			s := &spec{t: t, name: name}
			if i == 0 {
				s.PriorityQueue = crpriority.New(name, func(o *crpriority.Opts[string]) { o.RateLimiter = limiter })
			} else {
				s.PriorityQueue = controllerruntime.NewTypedQueue(name, limiter).(crpriority.PriorityQueue[string])
			}
			f(s)
			if !s.ShuttingDown() {
				s.ShutDown()
			}
			synctest.Wait()
			logs[i] = s.log
		})
	}
	if !slices.Equal(logs[0], logs[1]) {
		t.Errorf("controller-runtime's queue:\n%s\nours:\n%s", strings.Join(logs[0], "\n"),
			strings.Join(logs[1], "\n"))
	}
}

// run makes the calls that steps lists, separated by semicolons.
func (s *spec) run(steps string) {
	look := func() (string, bool) { return "", false }
	duration := func(text string) time.Duration {
		d, err := time.ParseDuration(text)
		if err != nil {
			s.t.Fatal(err)
		}
		return d
	}
	for step := range strings.SplitSeq(steps, "; ") {
		call, args, _ := strings.Cut(step, " ")
		key, arg, _ := strings.Cut(args, " ")
		switch call {
		case "add": // a key, perhaps with a priority
			priority, err := strconv.Atoi(cmp.Or(arg, "0"))
			if err != nil {
				s.t.Fatal(err)
			}
			s.add(key, priority, 0)
		case "delay": // a key by a duration
			s.add(key, 0, duration(arg))
		case "retry": // any number of keys
			s.AddWithOpts(crpriority.AddOpts{RateLimited: true}, strings.Fields(args)...)
		case "get":
			s.get()
		case "start": // a Get that blocks
			look = s.startGet()
		case "look": // what has become of it
			look()
		case "done":
			s.Done(key)
		case "sleep":
			time.Sleep(duration(key))
		case "measure":
			s.measure()
		case "requeues":
			s.note("%d requeues of %s", s.NumRequeues(key), key)
		case "shutdown":
			s.ShutDown()
		default:
			s.t.Fatalf("no such step: %q", step)
		}
	}
}

// What controller-runtime specifies for its queue, with what its metrics count.
func TestSpecs(t *testing.T) {
	for name, steps := range map[string]string{
		"a key":                          "add a; measure; get; measure; done a; measure",
		"order":                          "add a; add b; get; get; measure",
		"a held key is not handed out":   "add a; get; add a; add b; get; measure",
		"a requeued key keeps its place": "add a; get; add a; add b; get; add c; done a; get; get; measure",
		"a key is queued once":           "add a; add a; measure",
		"Len counts a held key that is added again": "add a; measure; get; add a; measure; done a; get; measure",
		"the highest priority counts":               "add a 1; add a 2; measure; get; measure",
		"a lower priority does not":                 "add a 2; add a 1; measure; get; measure",
		"to the front by its priority":              "add a; add b; add c; add c 1; get; measure",
		"to the end of its priority":                "add a; add b 1; add a 1; get; get; measure",
		"the priority of a held key that is added":  "add a 1; get; add a 1; add a 3; measure; done a; get; measure",
		"the shortest delay counts":                 "add a; delay a 1h; get; measure",
		"Len does not count delayed keys": "delay a 1m; add b; delay c 1m; add d; measure; sleep 1m; measure; " +
			"get; get; get; get; measure",
		"a delayed key is added now":                         "delay a 1h; measure; add a; measure; get; measure",
		"a delayed key is added now, with a higher priority": "delay a 1h; add a 1; measure; get; measure",
		"a key that has come due is added":                   "delay a 1s; sleep 1s; measure; add a; measure; get; measure",
		"a key of higher priority that has come due":         "add low -100; delay high 1s; sleep 1s; get; measure",
		"after its delay and not before": "start; delay a 1s; delay b 200ms; sleep 199999999ns; look; sleep 1ns; look; " +
			"sleep 1s; get; measure",
		"keys of one add have their own limits": strings.Repeat("retry b; sleep 1s; get; done b; ", 3) +
			"retry a b; sleep 5ms; measure; get; sleep 35ms; get; requeues a; requeues b",
		"shutdown": "add held; get; start; shutdown; look; delay b 1s; get; get; done held",
	} {
		t.Run(name, func(t *testing.T) { onBoth(t, func(s *spec) { s.run(steps) }) })
	}
}

// Random calls do the same to both queues, as far as no documented difference is met.
func TestLikeControllerRuntime(t *testing.T) {
	for seed := range uint64(30) {
		onBoth(t, func(s *spec) {
			r := rand.New(rand.NewPCG(seed, 0))
			// What is known of each key: when it is due, and whether it is held or queued.
			due := map[string]time.Time{}
			held, queued := map[string]bool{}, map[string]bool{}
			for range 60 {
				for key, at := range due {
					if !at.After(time.Now()) {
						queued[key] = true
						delete(due, key)
					}
				}
				key := string('a' + rune(r.IntN(6)))
				switch r.IntN(5) {
				case 0, 1:
					// A waiting key that is added now has another place here.
					if _, waits := due[key]; !waits {
						s.add(key, r.IntN(3), 0)
						queued[key] = true
					}
				case 2:
					after := time.Duration(1 + r.Int64N(int64(time.Second)))
					s.add(key, r.IntN(3), after)
					if at, waits := due[key]; !queued[key] && (!waits || at.After(time.Now().Add(after))) {
						due[key] = time.Now().Add(after)
					}
				case 3:
					free := false
					for key := range queued {
						free = free || !held[key]
					}
					if !free {
						time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
						synctest.Wait()
						continue
					}
					key := s.get()
					held[key] = true
					delete(queued, key)
				case 4:
					if held[key] {
						s.Done(key)
						delete(held, key)
						synctest.Wait()
					}
				}
				s.note("Len %d", s.Len())
			}
			s.measure()
		})
	}
}
