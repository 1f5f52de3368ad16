package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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

// seen notes which replica has reconciled each key last, and whether it had an fence.
type seen struct {
	mu sync.Mutex
	by map[string]int
}

func (s *seen) reconciler(t *testing.T, replica int) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, key request) (reconcile.Result, error) {
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

// Two managers divide the ConfigMaps. When one ends, the other one reconciles what it had. That is so beside
// a leader election as well, here of which both are followers.
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
				Controller: config.Controller{SkipNameValidation: new(true)},
			})
			if err != nil {
				t.Fatal(err)
			}
			var ctx context.Context
			ctx, stop[replica] = context.WithCancel(context.Background())
			ended[replica] = make(chan error, 1)
			go func() {
				ended[replica] <- start(ctx, mgr, store, s.reconciler(t, replica), prometheus.NewRegistry(),
					slog.New(slog.DiscardHandler))
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
