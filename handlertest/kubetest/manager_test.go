package kubetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// webs creates the pods that a ReplicaSet wants.
type webs struct {
	client.Client
	right bool
}

func (r *webs) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var set appsv1.ReplicaSet
	if err := r.Get(ctx, request.NamespacedName, &set); err != nil || set.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.InNamespace(set.Namespace),
		client.MatchingLabels{"set": set.Name}); err != nil {
		return reconcile.Result{}, err
	}
	for n := len(pods.Items); n < int(*set.Spec.Replicas); n++ {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace,
			Labels: map[string]string{"set": set.Name}}}
		if pod.GenerateName = set.Name + "-"; r.right {
			pod.Name = fmt.Sprint(set.Name, "-", n)
		}
		if err := controllerutil.SetControllerReference(&set, pod, r.Scheme()); err != nil {
			return reconcile.Result{}, err
		}
		if err := r.Create(ctx, pod); client.IgnoreAlreadyExists(err) != nil {
			return reconcile.Result{}, err
		}
	}
	if set.Status.Replicas == *set.Spec.Replicas {
		return reconcile.Result{}, nil
	}
	set.Status.Replicas = *set.Spec.Replicas
	return reconcile.Result{}, r.Status().Update(ctx, &set)
}

func (r *webs) SetupWithManager(m manager.Manager) error {
	return builder.ControllerManagedBy(m).For(&appsv1.ReplicaSet{}).Owns(&corev1.Pod{}).Complete(r)
}

func replicaSet(replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web"},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
}

func wantReport(t *testing.T, report string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(report, word) {
			t.Errorf("the report does not say %q:\n%s", word, report)
		}
	}
}

func scenarioOfWebs(right bool) func(s *kubetest.Scenario) {
	return func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		cluster.Create(replicaSet(2))
		s.At(time.Second, func() {
			kubetest.Change(cluster, replicaSet(0), func(o *appsv1.ReplicaSet) { *o.Spec.Replicas = 3 })
		})
		cluster.Start(func(m *kubetest.Manager) error { return (&webs{m.GetClient(), right}).SetupWithManager(m) })
	}
}

func TestReconciler(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "200")
	kubetest.Converges(t, scenarioOfWebs(true))
	found := kubetest.Find(t, scenarioOfWebs(false))
	wantReport(t, found, "extra:   Pod d/web-* (4)", "web: creates Pod d/web-*",
		"undisturbed, from where the stories part")
	t.Log(found)
}

// waits copies a ConfigMap's data to those that name it, when there is any.
type waits struct{ client.Client }

func (r *waits) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var o, from corev1.ConfigMap
	if err := r.Get(ctx, request.NamespacedName, &o); err != nil || o.Annotations["from"] == "" {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.Get(ctx, client.ObjectKey{Namespace: "d", Name: o.Annotations["from"]}, &from); err != nil {
		return reconcile.Result{}, err
	}
	if from.Data["ready"] == "" {
		//lint:ignore SA1019 the controller obeys Requeue until it is removed
		return reconcile.Result{Requeue: from.Data["poll"] != ""}, nil
	}
	if o.Data["ready"] == from.Data["ready"] {
		return reconcile.Result{}, nil
	}
	o.Data = from.Data
	return reconcile.Result{}, r.Update(ctx, &o)
}

// A map function reads the cache, by an index, and predicates see the old object. Requeue is obeyed.
func TestWatchesAndRequeue(t *testing.T) {
	for _, poll := range []bool{false, true} {
		t.Setenv("HANDLERTEST_RUNS", "100")
		kubetest.Converges(t, func(s *kubetest.Scenario) {
			cluster := kubetest.NewCluster(s, scheme.Scheme)
			from := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "source"},
				Data: map[string]string{}}
			if poll {
				from.Data["poll"] = "true"
			}
			cluster.Create(from)
			cluster.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "a",
				Annotations: map[string]string{"from": "source"}}})
			s.At(3*time.Second, func() {
				kubetest.Change(cluster, from,
					func(o *corev1.ConfigMap) { o.Data = map[string]string{"ready": "yes"} })
			})
			s.Check(func() error {
				var o corev1.ConfigMap
				err := cluster.Others().Get(t.Context(), client.ObjectKey{Namespace: "d", Name: "a"}, &o)
				if err == nil && o.Data["ready"] == "" {
					err = fmt.Errorf("the data are %v", o.Data)
				}
				return err
			})
			cluster.Start(func(m *kubetest.Manager) error {
				r := &waits{m.GetClient()}
				err := m.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "from",
					func(o client.Object) []string {
						_ = r.Get(t.Context(), client.ObjectKeyFromObject(o), &corev1.ConfigMap{}) // It may read.
						return []string{o.GetAnnotations()["from"]}
					})
				if err != nil {
					return err
				}
				b := builder.ControllerManagedBy(m).For(&corev1.ConfigMap{},
					builder.WithPredicates(predicate.AnnotationChangedPredicate{}))
				if poll {
					return b.Complete(r)
				}
				naming := func(ctx context.Context, o client.Object) (requests []reconcile.Request) {
					var list corev1.ConfigMapList
					if err := r.List(ctx, &list, client.MatchingFields{"from": o.GetName()}); err != nil {
						panic(err)
					}
					for _, o := range list.Items {
						requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&o)})
					}
					return requests
				}
				return b.Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(naming),
					builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).Complete(r)
			})
		})
	}
}

// A request comes back when its result says so, and not after a terminal error.
func TestResults(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "1")
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		calls := 0
		s.Measure = func() any { return nil }
		s.Check(func() error {
			if calls < 2 {
				return fmt.Errorf("%d calls", calls)
			}
			return nil
		})
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		cluster.Create(replicaSet(1))
		cluster.Start(func(m *kubetest.Manager) error {
			r := func(context.Context, reconcile.Request) (reconcile.Result, error) {
				if calls++; calls == 1 {
					return reconcile.Result{RequeueAfter: time.Minute}, nil
				}
				return reconcile.Result{}, reconcile.TerminalError(errors.New("no"))
			}
			return builder.ControllerManagedBy(m).For(replicaSet(1)).Complete(reconcile.Func(r))
		})
	})
}

// An owner without a namespace owns objects in namespaces.
func TestOwnerWithoutNamespace(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "1")
	var seen []string
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		owner := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}
		cluster.Create(owner)
		s.At(time.Second, func() {
			owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "a"}}
			if err := cluster.Others().Get(t.Context(), client.ObjectKeyFromObject(owner), owner); err != nil {
				t.Error(err)
			}
			if err := controllerutil.SetControllerReference(owner, owned, scheme.Scheme); err != nil {
				t.Error(err)
			}
			cluster.Create(owned)
		})
		cluster.Start(func(m *kubetest.Manager) error {
			r := func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
				seen = append(seen, request.String())
				return reconcile.Result{}, nil
			}
			return builder.ControllerManagedBy(m).For(&corev1.Namespace{}).Owns(&corev1.ConfigMap{}).
				Complete(reconcile.Func(r))
		})
	})
	if len(seen) < 2 || seen[0] != "/owner" || seen[1] != "/owner" {
		t.Errorf("requests are %v", seen)
	}
}

// A handler of events may read from anywhere, which takes no time, and see objects of the type that it asks for.
func TestHandlersThatRead(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "50")
	reconciled := false
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		cluster.Create(replicaSet(1))
		s.At(time.Second, func() { cluster.Create(&corev1.ConfigMap{ObjectMeta: meta("a")}) })
		s.Check(func() error {
			if !reconciled {
				return fmt.Errorf("it was never called")
			}
			return nil
		})
		cluster.Start(func(m *kubetest.Manager) error {
			reads := func(ctx context.Context, o client.Object) (requests []reconcile.Request) {
				if _, ok := o.(*metav1.PartialObjectMetadata); !ok || o.GetName() != "a" {
					t.Errorf("the handler gets %T %s", o, o.GetName())
				}
				sets := &unstructured.UnstructuredList{}
				sets.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSetList"))
				var live, cached appsv1.ReplicaSetList
				err := errors.Join(m.GetClient().List(ctx, sets), m.GetAPIReader().List(ctx, &live),
					m.GetCache().List(ctx, &cached))
				if err != nil || len(sets.Items)+len(live.Items)+len(cached.Items) != 3 {
					t.Errorf("%v: %d, %d and %d sets", err, len(sets.Items), len(live.Items), len(cached.Items))
				}
				return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(&live.Items[0])}}
			}
			r := func(context.Context, reconcile.Request) (reconcile.Result, error) {
				reconciled = true
				return reconcile.Result{}, nil
			}
			return builder.ControllerManagedBy(m).Named("reads").WatchesMetadata(&corev1.ConfigMap{},
				handler.EnqueueRequestsFromMapFunc(reads)).Complete(reconcile.Func(r))
		})
	})
}

// The manager's client reads unstructured objects from the cluster, and its cache reads them from the cache. The
// program's options may say otherwise, and that a kind is not cached.
func TestWhatIsCached(t *testing.T) {
	t.Setenv("HANDLERTEST", "slow:none#1=3ms")
	for i, options := range []client.CacheOptions{{}, {Unstructured: true}, {DisableFor: []client.Object{&corev1.Pod{}}}} {
		var seen []int
		kubetest.Converges(t, func(s *kubetest.Scenario) {
			cluster := kubetest.NewCluster(s, scheme.Scheme)
			cluster.Cache = options
			cluster.Create(replicaSet(1))
			cluster.Start(func(m *kubetest.Manager) error {
				r := func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
					err := m.GetClient().Create(ctx, &corev1.Pod{ObjectMeta: meta("new")})
					if err != nil {
						return reconcile.Result{}, client.IgnoreAlreadyExists(err)
					}
					var typed corev1.PodList
					byCache, byClient := &unstructured.UnstructuredList{}, &unstructured.UnstructuredList{}
					byCache.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
					byClient.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
					err = errors.Join(m.GetCache().List(ctx, byCache), m.GetClient().List(ctx, &typed),
						m.GetClient().List(ctx, byClient))
					seen = []int{len(byCache.Items), len(typed.Items), len(byClient.Items)}
					return reconcile.Result{}, err
				}
				return builder.ControllerManagedBy(m).For(replicaSet(1)).Complete(reconcile.Func(r))
			})
		})
		if want := [][]int{{0, 0, 1}, {0, 0, 0}, {0, 1, 1}}[i]; !slices.Equal(seen, want) {
			t.Errorf("%+v: the cache, the client, and the client with unstructured objects see %v pods, want %v", options,
				seen, want)
		}
	}
}

// Handlers see objects as a watch shows them: without a kind, and the last one with the version of its end.
func TestObjectsOfEvents(t *testing.T) {
	t.Setenv("HANDLERTEST", "slow:none#1=3ms")
	var seen []string
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		seen = nil
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		cluster.Create(replicaSet(1))
		s.At(time.Second, func() { kubetest.Change(cluster, replicaSet(0), func(o *appsv1.ReplicaSet) { *o.Spec.Replicas = 2 }) })
		s.At(2*time.Second, func() { cluster.Delete(replicaSet(0)) })
		cluster.Start(func(m *kubetest.Manager) error {
			see := func(what string, o client.Object) {
				seen = append(seen, fmt.Sprint(what, o.GetResourceVersion(), o.GetObjectKind().GroupVersionKind().Kind))
			}
			return builder.ControllerManagedBy(m).For(&appsv1.ReplicaSet{}, builder.WithPredicates(predicate.Funcs{
				CreateFunc: func(e event.CreateEvent) bool { see("new", e.Object); return true },
				UpdateFunc: func(e event.UpdateEvent) bool { see("changed", e.ObjectNew); return true },
				DeleteFunc: func(e event.DeleteEvent) bool { see("gone", e.Object); return true },
			})).Complete(reconcile.Func(nothing))
		})
	})
	if want := []string{"new1", "changed2", "gone3"}; !slices.Equal(seen, want) {
		t.Errorf("events: %v, want %v", seen, want)
	}
}

// Controllers of one manager have their own requests, also for objects with the same name.
func TestTwoControllers(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "100")
	sees := func(c client.Client, o client.Object, seen *int) reconcile.Func {
		return func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			*seen++
			o := o.DeepCopyObject().(client.Object)
			if err := c.Get(ctx, request.NamespacedName, o); err != nil || request.String() != "d/web" {
				t.Errorf("%T: request %v: %v", o, request, err)
			}
			o.SetLabels(map[string]string{"seen": "yes"})
			return reconcile.Result{}, c.Update(ctx, o)
		}
	}
	config := &corev1.ConfigMap{ObjectMeta: meta("web")}
	scenario := func(want int) func(s *kubetest.Scenario) {
		return func(s *kubetest.Scenario) {
			cluster := kubetest.NewCluster(s, scheme.Scheme)
			cluster.Create(replicaSet(0))
			cluster.Create(config)
			sets, configs := 0, 0
			s.Check(func() error {
				if sets < want || configs < want {
					return fmt.Errorf("%d calls for sets, %d for configs", sets, configs)
				}
				return nil
			})
			cluster.Start(func(m *kubetest.Manager) error {
				return errors.Join(
					builder.ControllerManagedBy(m).For(replicaSet(0)).Complete(sees(m.GetClient(), replicaSet(0), &sets)),
					builder.ControllerManagedBy(m).For(config).Complete(sees(m.GetClient(), config, &configs)))
			})
		}
	}
	kubetest.Converges(t, scenario(1))
	wantReport(t, kubetest.Find(t, scenario(100)), "  d/web: updates ReplicaSet d/web@",
		"  configmap:d/web: updates ConfigMap d/web@")
}
