package shardedmanager_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/controllerruntime/shardedmanager"
	"github.com/keyedqueue/workqueue/sharding"
)

// ledByAnother is the lock of a leader election that another process has won.
type ledByAnother struct{ resourcelock.Interface }

func (ledByAnother) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	now := metav1.Now()
	record := &resourcelock.LeaderElectionRecord{HolderIdentity: "another", LeaseDurationSeconds: 15,
		AcquireTime: now, RenewTime: now}
	return record, []byte(now.String()), nil
}

func (ledByAnother) Identity() string   { return "this" }
func (ledByAnother) Describe() string   { return "lock" }
func (ledByAnother) RecordEvent(string) {}

// seen notes which replica has reconciled each key last, and whether it had a fence.
type seen struct {
	mu sync.Mutex
	by map[string]int
}

func (s *seen) reconciler(t *testing.T, replica int) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, key ctrl.Request) (reconcile.Result, error) {
		if fence, ok := sharding.Fence(ctx); !ok || fence == 0 {
			t.Errorf("%v has no fence", key)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.by[key.Name] = replica
		return reconcile.Result{}, nil
	})
}

// take returns how many keys each of two replicas has reconciled since the last call.
func (s *seen) take() (counts [2]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, replica := range s.by {
		counts[replica]++
	}
	clear(s.by)
	return counts
}

// newManager returns a manager whose client is c, and which is never the leader.
func newManager(t *testing.T, c client.Client, elect bool) manager.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
			return mapper, nil
		},
		NewCache: func(*rest.Config, cache.Options) (cache.Cache, error) {
			return &informertest.FakeInformers{Scheme: scheme.Scheme}, nil
		},
		NewClient: func(*rest.Config, client.Options) (client.Client, error) { return c, nil },
		Metrics:   metricsserver.Options{BindAddress: "0"},

		LeaderElection: elect, LeaderElectionResourceLockInterface: ledByAnother{},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

// start runs a manager with one sharded controller.
func start(ctx context.Context, mgr manager.Manager, store sharding.Store, registry prometheus.Registerer,
	r reconcile.Reconciler) error {
	group, err := shardedmanager.New(mgr, shardedmanager.Options{Store: store, Registerer: registry,
		Member: sharding.Config{Group: "test", Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		return err
	}
	err = group.Add(ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}), shardedmanager.Controller{
		List: &corev1.ConfigMapList{}, Reconciler: r, Options: controller.Options{MaxConcurrentReconciles: 4}})
	if err != nil {
		return err
	}
	return group.Start(ctx)
}

// Two managers divide the ConfigMaps. When one ends, the other one reconciles what it had. That is so beside
// a leader election as well. Here both are followers.
func TestTwoManagers(t *testing.T) {
	for _, elect := range []bool{false, true} {
		t.Run(fmt.Sprintf("LeaderElection=%t", elect), func(t *testing.T) { twoManagers(t, elect) })
	}
}

func twoManagers(t *testing.T, elect bool) {
	const n = 50
	ctrl.SetLogger(logr.Discard())
	synctest.Test(t, func(t *testing.T) {
		objects := fake.NewClientBuilder()
		for i := range n {
			objects.WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
				Name: fmt.Sprint("map-", i)}})
		}
		c := objects.Build()
		store := sharding.Memory()
		s := &seen{by: make(map[string]int)}
		var stop [2]context.CancelFunc
		var ended [2]chan error
		begin := func(replica int) {
			mgr := newManager(t, c, elect)
			var ctx context.Context
			ctx, stop[replica] = context.WithCancel(context.Background())
			ended[replica] = make(chan error, 1)
			go func() {
				ended[replica] <- start(ctx, mgr, store, prometheus.NewRegistry(), s.reconciler(t, replica))
			}()
			time.Sleep(30 * time.Second)
		}
		end := func(replica int) {
			stop[replica]()
			if err := <-ended[replica]; err != nil {
				t.Error(err)
			}
			time.Sleep(30 * time.Second)
		}
		begin(0)
		if got := s.take(); got != [2]int{n, 0} {
			t.Errorf("the first manager alone: %v were reconciled, want all by it", got)
		}
		begin(1)
		moved := s.take()
		if moved[0] != 0 || moved[1] < n/4 || moved[1] > 3*n/4 {
			t.Errorf("after the second joined: %v were reconciled, want about half, by it", moved)
		}
		end(0)
		if got := s.take(); got != [2]int{0, n - moved[1]} {
			t.Errorf("after the first left: %v were reconciled, want the %d others", got, n-moved[1])
		}
		end(1)
	})
}

// A replica that finds its records set back ends with ErrRestored, so that its program starts anew.
func TestRestored(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "map"}}).Build()
		store, s := sharding.Memory(), &seen{by: make(map[string]int)}
		registry, ended := prometheus.NewRegistry(), make(chan error, 1)
		mgr := newManager(t, c, false)
		go func() { ended <- start(t.Context(), mgr, store, registry, s.reconciler(t, 0)) }()
		time.Sleep(10 * time.Second)
		table, err := store.Get(t.Context(), "test-table")
		if err != nil || s.take() != [2]int{1, 0} {
			t.Fatalf("the key was not reconciled: %v", err)
		}
		if metrics, err := registry.Gather(); err != nil || len(metrics) == 0 {
			t.Errorf("%d metrics, %v", len(metrics), err)
		}
		old := table
		table.Data = regexp.MustCompile(`"epoch":\d+`).ReplaceAllString(table.Data, `"epoch":5`)
		table.Data = regexp.MustCompile(`@\d+`).ReplaceAllString(table.Data, "@0")
		if _, err := store.Update(t.Context(), table); err != nil || table.Data == old.Data {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, sharding.ErrRestored) {
			t.Errorf("FAILURE: Start returns %v", err)
		}
	})
}

// A mistake is an error.
func TestMistakes(t *testing.T) {
	mgr := newManager(t, fake.NewClientBuilder().Build(), false)
	if _, err := shardedmanager.New(mgr, shardedmanager.Options{}); err == nil {
		t.Error("FAILURE: a group without a namespace")
	}
	if _, err := shardedmanager.New(mgr, shardedmanager.Options{Store: sharding.Memory(),
		Member: sharding.Config{Queues: []string{"other"}}}); err == nil {
		t.Error("FAILURE: a group with queues")
	}
	g, err := shardedmanager.New(mgr, shardedmanager.Options{Store: sharding.Memory()})
	if err != nil {
		t.Fatal(err)
	}
	r := reconcile.Func(func(context.Context, ctrl.Request) (reconcile.Result, error) {
		return reconcile.Result{}, nil
	})
	for _, wrong := range []shardedmanager.Controller{{}, {Reconciler: r}, {List: &corev1.ConfigMapList{}},
		{Reconciler: r, List: &corev1.ConfigMapList{}, Options: controller.Options{NeedLeaderElection: ptr.To(true)}},
	} {
		if g.Add(ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}), wrong) == nil {
			t.Errorf("FAILURE: %+v", wrong)
		}
	}
	for _, name := range []string{"", "configmap"} { // The first has the name of its kind.
		err = g.Add(ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}),
			shardedmanager.Controller{Name: name, List: &corev1.ConfigMapList{}, Reconciler: r})
	}
	if err == nil {
		t.Error("FAILURE: two controllers of one name")
	}
}
