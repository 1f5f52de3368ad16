package controllerruntime_test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
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

// What controller-runtime specifies for its queue, beside what random calls find. (Module peers runs
// controller-runtime's own tests with ours.)
func TestSpecs(t *testing.T) {
	for name, calls := range map[string]func(s *spec){
		"a key of higher priority that has come due": func(s *spec) {
			s.add("low", -100, 0)
			s.add("high", 0, time.Second)
			time.Sleep(time.Second)
			s.get()
			s.measure()
		},
		"after its delay and not before": func(s *spec) {
			look := s.startGet()
			s.add("a", 0, time.Second)
			s.add("b", 0, 200*time.Millisecond)
			time.Sleep(199 * time.Millisecond)
			look()
			time.Sleep(time.Millisecond)
			look()
			time.Sleep(time.Second)
			s.get()
		},
		"keys of one add have their own limits": func(s *spec) {
			for range 3 {
				s.AddWithOpts(crpriority.AddOpts{RateLimited: true}, "b")
				time.Sleep(time.Second)
				s.Done(s.get())
			}
			s.AddWithOpts(crpriority.AddOpts{RateLimited: true}, "a", "b")
			time.Sleep(5 * time.Millisecond)
			s.measure()
			s.get()
			time.Sleep(35 * time.Millisecond)
			s.get()
			s.note("%d and %d requeues", s.NumRequeues("a"), s.NumRequeues("b"))
		},
		"shutdown": func(s *spec) {
			s.add("held", 0, 0)
			s.get()
			look := s.startGet()
			s.ShutDown()
			look()
			s.add("late", 0, time.Second)
			s.get()
			s.Done("held")
		},
	} {
		t.Run(name, func(t *testing.T) { onBoth(t, calls) })
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
				s.measure()
			}
		})
	}
}
