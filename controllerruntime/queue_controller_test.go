package controllerruntime_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientgo "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/controllerruntime"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

func ptr[T any](v T) *T { return &v }

// scene is a manager with one controller on our queue. The test is its source of events.
type scene struct {
	t       *testing.T
	client  client.Client
	queue   clientgo.TypedRateLimitingInterface[reconcile.Request]
	handler handler.EventHandler

	mu        sync.Mutex
	reconcile func(ctx context.Context, name string) (reconcile.Result, error)
	log       []string // what was reconciled, and when
	began     time.Time
}

func (s *scene) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	s.mu.Lock()
	s.log = append(s.log, fmt.Sprintf("%s@%v", r.Name, time.Since(s.began)))
	f := s.reconcile
	s.mu.Unlock()
	return f(ctx, r.Name)
}

// create has the handler see a ConfigMap of the fake client.
func (s *scene) create(initial bool, names ...string) {
	for _, name := range names {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		if err := s.client.Create(context.Background(), object); err != nil {
			s.t.Fatal(err)
		}
		s.handler.Create(context.Background(), event.CreateEvent{Object: object, IsInInitialList: initial}, s.queue)
	}
}

// want asserts what was reconciled since the last call.
func (s *scene) want(want ...string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.log, want) {
		s.t.Errorf("reconciled %v, want %v", s.log, want)
	}
	s.log = nil
}

type (
	requestQueue = clientgo.TypedRateLimitingInterface[reconcile.Request]
	newQueueFunc = func(string, clientgo.TypedRateLimiter[reconcile.Request]) requestQueue
)

// request returns the one of an object that scene.create makes.
func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}
}

var requestA = request("a")

// onManager runs f with a scene whose manager runs. When f is done the manager is stopped, and must end.
func onManager(t *testing.T, newQueue newQueueFunc, f func(s *scene)) {
	onManagerWith(t, newQueue, func(s *scene) reconcile.Reconciler { return s }, f)
}

// onManagerWith is onManager of the reconciler that wrap returns.
func onManagerWith(t *testing.T, newQueue newQueueFunc, wrap func(s *scene) reconcile.Reconciler,
	f func(s *scene)) {
	log.SetLogger(logr.Discard())
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientBuilder().Build()
		mgr, err := manager.New(&rest.Config{}, manager.Options{
			Scheme: scheme.Scheme,
			MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
				return meta.NewDefaultRESTMapper(nil), nil
			},
			NewCache: func(*rest.Config, cache.Options) (cache.Cache, error) {
				return &informertest.FakeInformers{Scheme: scheme.Scheme}, nil
			},
			NewClient: func(*rest.Config, client.Options) (client.Client, error) { return c, nil },
			Metrics:   metricsserver.Options{BindAddress: "0"},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &scene{t: t, client: mgr.GetClient(), handler: &handler.EnqueueRequestForObject{}, began: time.Now()}
		s.reconcile = func(context.Context, string) (reconcile.Result, error) { return reconcile.Result{}, nil }
		ctrl, err := controller.New("test", mgr, controller.Options{
			Reconciler: wrap(s), NewQueue: newQueue, SkipNameValidation: ptr(true),
			RateLimiter: clientgo.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := ctrl.Watch(source.Func(func(_ context.Context,
			q clientgo.TypedRateLimitingInterface[reconcile.Request]) error {
			s.queue = q
			return nil
		})); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		synctest.Wait()
		f(s)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !s.queue.ShuttingDown() {
			t.Error("the manager has ended, and the queue is not shut down")
		}
	})
}

// A handler that wants its key in an hour gets it then, even with a bounded debounce of events.
func TestRequeueAfter(t *testing.T) {
	for _, config := range []priorityqueue.Config[reconcile.Request]{{},
		{Delay: priorityqueue.Latest, MaxDelay: 5 * time.Second}} {
		onManager(t, controllerruntime.With(config), func(s *scene) {
			s.reconcile = func(context.Context, string) (reconcile.Result, error) {
				return reconcile.Result{RequeueAfter: time.Hour}, nil
			}
			s.create(false, "a")
			time.Sleep(2 * time.Hour)
			s.want("a@0s", "a@1h0m0s", "a@2h0m0s")
			info, _ := s.queue.(*controllerruntime.Queue[reconcile.Request]).SnapshotKey(requestA)
			if info.State != workqueue.KeyWaiting || info.Priority != 0 || time.Until(info.Due) != time.Hour {
				s.t.Errorf("SnapshotKey() = %+v, want to wait an hour", info)
			}
		})
	}
}

// The key that is being reconciled at shutdown is finished, and the manager waits for it; no other is begun.
func TestManagerStops(t *testing.T) {
	var finished bool
	onManager(t, controllerruntime.NewQueue, func(s *scene) {
		s.reconcile = func(ctx context.Context, _ string) (reconcile.Result, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			finished = true
			return reconcile.Result{}, nil
		}
		s.create(false, "held", "queued")
		synctest.Wait()
		s.want("held@0s")
		s.t.Cleanup(func() {
			if len(s.log) > 0 {
				s.t.Errorf("reconciled %v after the manager was stopped", s.log)
			}
		})
	})
	if !finished {
		t.Error("the manager did not wait for the reconciler")
	}
}
