package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	knative "knative.dev/pkg/leaderelection"
	"knative.dev/pkg/logging"
	"knative.dev/pkg/reconciler"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/sharding"
)

// running is a replica: which keys it handles, and how it ends in order.
type running struct {
	holds func(key string) bool
	leave func()
}

// approach starts replicas that share keys in one way.
type approach struct {
	name  string
	start func(t *testing.T, name string, s *server, c *connection) running
}

var approaches = []approach{
	{"leader election, as it is by default", leaderElection(false)},
	{"leader election, ReleaseOnCancel", leaderElection(true)},
	{"Knative, 10 buckets, its defaults", buckets(60*time.Second, 40*time.Second, 10*time.Second)},
	{"Knative, 10 buckets, times of client-go", buckets(15*time.Second, 10*time.Second, 2*time.Second)},
	{"sharding", shards},
}

// leaderElection has the defaults of Kubernetes' own components and of controller-runtime.
func leaderElection(release bool) func(*testing.T, string, *server, *connection) running {
	return func(t *testing.T, name string, s *server, c *connection) running {
		var leads atomic.Bool
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: "ns", Name: "controller"}, Client: s.client(c).CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: release,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leads.Store(true) },
				OnStoppedLeading: func() { leads.Store(false) },
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return running{func(string) bool { return leads.Load() }, inBackground(t, elector.Run)}
	}
}

func buckets(lease, deadline, retry time.Duration) func(*testing.T, string, *server, *connection) running {
	return func(t *testing.T, name string, s *server, c *connection) running {
		ctx := logging.WithLogger(t.Context(), zap.NewNop().Sugar())
		ctx = knative.WithStandardLeaderElectorBuilder(ctx, s.client(c), knative.ComponentConfig{
			Component: "controller", Buckets: 10, LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry,
			Identity: name,
		})
		held := new(reconciler.LeaderAwareFuncs)
		elector, err := knative.BuildElector(ctx, held, "queue", func(reconciler.Bucket, types.NamespacedName) {})
		if err != nil {
			t.Fatal(err)
		}
		return running{
			func(key string) bool { return held.IsLeaderFor(types.NamespacedName{Namespace: "default", Name: key}) },
			inBackground(t, func(end context.Context) { elector.Run(logging.WithLogger(end, zap.NewNop().Sugar())) }),
		}
	}
}

func inBackground(t *testing.T, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	return func() { cancel(); <-ended }
}

func shards(t *testing.T, name string, s *server, c *connection) running {
	m, err := sharding.Join(t.Context(), s.store(c), sharding.Config{Group: "controller", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	inner := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	q, err := sharding.NewQueue(inner, m, sharding.QueueConfig[string]{
		Keys: func(context.Context) (iter.Seq[string], error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return running{q.Holds, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := m.Leave(ctx); err != nil && !c.isCut.Load() {
			t.Error(err)
		}
		q.ShutDown()
	}}
}

// fleet are the replicas of a controller.
type fleet struct {
	t        *testing.T
	approach approach
	server   *server
	keys     []string
	replicas []*replica
	started  int
}

type replica struct {
	running
	connection
}

func (f *fleet) start() {
	f.started++
	r := &replica{}
	r.running = f.approach.start(f.t, fmt.Sprint("replica-", f.started), f.server, &r.connection)
	f.replicas = append(f.replicas, r)
}

// shares returns how many keys each replica has, the busiest one first.
func (f *fleet) shares() []int {
	shares := make([]int, len(f.replicas))
	for i, r := range f.replicas {
		for _, key := range f.keys {
			if r.holds(key) {
				shares[i]++
			}
		}
	}
	slices.Sort(shares)
	slices.Reverse(shares)
	return shares
}

// busiest returns the replica with the most keys, and takes it out.
func (f *fleet) busiest() *replica {
	most, index := -1, 0
	for i, r := range f.replicas {
		n := 0
		for _, key := range f.keys {
			if r.holds(key) {
				n++
			}
		}
		if n > most {
			most, index = n, i
		}
	}
	r := f.replicas[index]
	f.replicas = slices.Delete(f.replicas, index, index+1)
	return r
}

const sample = 50 * time.Millisecond

// observation is what happened to the keys in some time.
type observation struct {
	none    []time.Duration // for each key, how long no replica had it
	without []time.Duration // for each key that no replica has, for how long
	longest time.Duration   // that a key was without a replica at a stretch
	twice   map[int]bool    // keys that two replicas had at once
}

// observe looks at all keys until done, and at least for d. Those who have left are looked at as well.
func (f *fleet) observe(o *observation, also []*replica, d time.Duration) {
	if o.none == nil {
		o.none, o.without, o.twice = make([]time.Duration, len(f.keys)), make([]time.Duration, len(f.keys)),
			make(map[int]bool)
	}
	for began := time.Now(); time.Since(began) < d; time.Sleep(sample) {
		for i, key := range f.keys {
			n := 0
			for _, r := range slices.Concat(f.replicas, also) {
				if r.holds(key) {
					n++
				}
			}
			if n == 0 {
				o.without[i] += sample
				o.none[i] += sample
				o.longest = max(o.longest, o.without[i])
			} else {
				o.without[i] = 0
				if n > 1 {
					o.twice[i] = true
				}
			}
		}
	}
}

func (f *fleet) crash() time.Duration {
	r := f.busiest()
	r.isCut.Store(true)
	go r.leave() // Ends its goroutines. It cannot say anything any more.
	var o observation
	f.observe(&o, nil, 100*time.Second)
	f.start()
	time.Sleep(time.Minute)
	return o.longest
}

func (f *fleet) leave() time.Duration {
	r := f.busiest()
	go r.leave()
	var o observation
	f.observe(&o, []*replica{r}, 100*time.Second)
	f.start()
	time.Sleep(time.Minute)
	return o.longest
}

// rollout replaces all replicas, one by one, a new one before the old one.
func (f *fleet) rollout() (mean, longest time.Duration, twice int) {
	var o observation
	for _, old := range slices.Clone(f.replicas) {
		f.start()
		f.observe(&o, nil, 10*time.Second)
		i := slices.Index(f.replicas, old)
		f.replicas = slices.Delete(f.replicas, i, i+1)
		go old.leave()
		f.observe(&o, []*replica{old}, 10*time.Second)
	}
	f.observe(&o, nil, 100*time.Second)
	for _, none := range o.none {
		mean += none / time.Duration(len(o.none))
	}
	return mean, o.longest, len(o.twice)
}

// TestBeside compares the ways to run four replicas of one controller, in one run and in virtual time, so
// that the figures depend on no machine. Calls take no time. It prints the table of docs/sharding.md:
//
//	go test -run Beside -v ./peers/sharding
func TestBeside(t *testing.T) {
	t.Setenv("SYSTEM_NAMESPACE", "ns") // Knative wants it.
	klog.SetLogger(logr.Discard())
	table := []string{"| | keys of each replica | requests a second | after a crash: median, longest | after a leave: median, longest | rollout: a key's time without a replica, mean and longest at a stretch | keys with two replicas |", "|---|---|---:|---:|---:|---:|---:|"}
	for _, a := range approaches {
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{t: t, approach: a, server: newServer()}
			for i := range 100 {
				f.keys = append(f.keys, fmt.Sprint("website-", i))
			}
			for range 4 {
				f.start()
				time.Sleep(3 * time.Second)
			}
			time.Sleep(time.Minute)
			shares, before := f.shares(), f.server.requests.Load()
			time.Sleep(time.Minute)
			requests := float64(f.server.requests.Load()-before) / 60
			var crashes, leaves []time.Duration
			for i := range 7 {
				time.Sleep(time.Duration(i) * 700 * time.Millisecond) // not always the same moment of a renewal
				crashes = append(crashes, f.crash())
				leaves = append(leaves, f.leave())
			}
			mean, longest, twice := f.rollout()
			seconds := func(times []time.Duration) string {
				slices.Sort(times)
				return fmt.Sprintf("%.1f s, %.1f s", times[len(times)/2].Seconds(), times[len(times)-1].Seconds())
			}
			table = append(table, fmt.Sprintf("| %s | %s | %.1f | %s | %s | %.1f s, %.1f s | %d |", a.name,
				strings.Trim(fmt.Sprint(shares), "[]"), requests,
				seconds(crashes), seconds(leaves), mean.Seconds(), longest.Seconds(), twice))
			if a.name == "sharding" && (crashes[len(crashes)-1] > 16*time.Second ||
				leaves[len(leaves)-1] > time.Second || longest > time.Second || twice > 0) {
				t.Error("sharding does not do what it promises")
			}
			for _, r := range f.replicas {
				r.leave()
			}
		})
	}
	t.Log("\n" + strings.Join(table, "\n"))
}
