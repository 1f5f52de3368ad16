package kubetest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	appsv1apply "k8s.io/client-go/applyconfigurations/apps/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// mistake is a mistake of public reconcilers. Its scenario has a reconciler with it and, if right is set, one
// without.
type mistake struct {
	name     string
	scenario func(s *kubetest.Scenario, c *kubetest.Cluster, right bool)
	words    []string // that must be in the report
}

func (m mistake) with(right bool) func(s *kubetest.Scenario) {
	return func(s *kubetest.Scenario) { m.scenario(s, kubetest.NewCluster(s, scheme.Scheme), right) }
}

func TestMistakes(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "") // The default finds them.
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			found := kubetest.Find(t, m.with(false))
			wantReport(t, found, m.words...)
			t.Log(found)
		})
	}
}

// None of the right twins is accused. HANDLERTEST_RUNS=20000 runs each of them more often.
func TestRightTwins(t *testing.T) {
	if os.Getenv("HANDLERTEST_RUNS") == "" {
		t.Setenv("HANDLERTEST_RUNS", "100")
	}
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) { kubetest.Converges(t, m.with(true)) })
	}
}

// reconciles starts a controller of the objects of o's type, which are read from the cache.
func reconciles[T client.Object](c *kubetest.Cluster, o T,
	reconciler func(context.Context, *kubetest.Manager, T) error) {
	reconcilesSome(c, o, predicate.ResourceVersionChangedPredicate{}, nil, reconciler)
}

// reconcilesSome does so for the changes that p lets pass, and for those of an owned object.
func reconcilesSome[T client.Object](c *kubetest.Cluster, o T, p predicate.Predicate, owned client.Object,
	reconciler func(context.Context, *kubetest.Manager, T) error) {
	c.Start(func(m *kubetest.Manager) error {
		b := builder.ControllerManagedBy(m).For(o, builder.WithPredicates(p))
		if owned != nil {
			b = b.Owns(owned)
		}
		return b.Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			o := reflect.New(reflect.TypeOf(o).Elem()).Interface().(T)
			err := m.GetClient().Get(ctx, r.NamespacedName, o)
			if err == nil {
				err = reconciler(ctx, m, o)
			}
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}))
	})
}

const finalizer = "example.com/bucket"

// config is the object of most mistakes.
func config() *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: meta("a")} }

// read reads the object with o's name from the truth.
func read(c *kubetest.Cluster, o client.Object) error {
	return c.Others().Get(context.Background(), client.ObjectKeyFromObject(o), o)
}

func podsOf(c *kubetest.Cluster) int {
	var pods corev1.PodList
	if err := c.Others().List(context.Background(), &pods); err != nil {
		panic(err)
	}
	return len(pods.Items)
}

var mistakes = []mistake{
	{"removes its finalizer before it has cleaned up", removesTooEarly,
		[]string{"undisturbed: false", "crashes after that write", "its cache lists nothing"}},
	{"writes its list of finalizers over another's", overwritesFinalizers,
		[]string{"extra:   [example.com/bucket] <nil>", "another controller adds its finalizer"}},
	{"makes a child that nobody owns", leavesChild, []string{"fails undisturbed: Check: 1 pods are left"}},
	{"takes a field from the autoscaler by force", takesField,
		[]string{"fails undisturbed: it never comes to rest", "the autoscaler: updates Deployment d/a@2",
			"its cache shows Deployment d/a@3 (.spec.replicas)"}},
	{"waits for a generation that its kind does not have", waitsForGeneration,
		[]string{`fails undisturbed: Check: "1" was copied`}},
	{"says that it has observed a generation before its work is done", observesTooEarly,
		[]string{`Always "what was observed is done": there are 0 pods of 1`}},
	{"deletes outside what its cache does not show", deletesUnseen,
		[]string{"Check: second was deleted", "d/first in process 1: an add reaches the queue late"}},
	{"writes the time at each call", writesTime, []string{"it never comes to rest"}},
}

func removesTooEarly(s *kubetest.Scenario, c *kubetest.Cluster, right bool) {
	o, outside := config(), true
	o.Finalizers = []string{finalizer}
	c.Create(o)
	s.At(time.Second, func() { c.Delete(o) })
	s.Measure = func() any { return outside }
	reconciles(c, o, func(ctx context.Context, m *kubetest.Manager, o *corev1.ConfigMap) error {
		if o.DeletionTimestamp == nil {
			return nil
		}
		clean := func() error {
			return m.Process.Write(ctx, "cleans up", func() error { outside = false; return nil })
		}
		remove := func() error {
			controllerutil.RemoveFinalizer(o, finalizer)
			return m.GetClient().Update(ctx, o)
		}
		steps := []func() error{remove, clean}
		if right {
			steps = []func() error{clean, remove}
		}
		if err := steps[0](); err != nil {
			return err
		}
		return steps[1]()
	})
}

func overwritesFinalizers(s *kubetest.Scenario, c *kubetest.Cluster, right bool) {
	c.Create(config())
	s.Sometime("another controller adds its finalizer", func() {
		kubetest.Change(c, config(), func(o *corev1.ConfigMap) {
			controllerutil.AddFinalizer(o, "example.com/another")
		})
	})
	s.Measure = func() any {
		o := config()
		err := read(c, o)
		slices.Sort(o.Finalizers) // Who comes first differs.
		return fmt.Sprint(o.Finalizers, err)
	}
	reconciles(c, config(), func(ctx context.Context, m *kubetest.Manager, o *corev1.ConfigMap) error {
		patch := client.MergeFrom(o.DeepCopy())
		if right {
			patch = client.MergeFromWithOptions(o.DeepCopy(), client.MergeFromWithOptimisticLock{})
		}
		if !controllerutil.AddFinalizer(o, finalizer) {
			return nil
		}
		return m.GetClient().Patch(ctx, o, patch)
	})
}

func leavesChild(s *kubetest.Scenario, c *kubetest.Cluster, right bool) {
	c.Create(config())
	s.Sometime("deletes the config", func() { c.Delete(config()) })
	s.Check(func() error {
		if n := podsOf(c); n > 0 {
			return fmt.Errorf("%d pods are left", n)
		}
		return nil
	})
	reconciles(c, config(), func(ctx context.Context, m *kubetest.Manager, o *corev1.ConfigMap) error {
		pod := &corev1.Pod{ObjectMeta: meta("a")}
		if right {
			if err := controllerutil.SetControllerReference(o, pod, scheme.Scheme); err != nil {
				return err
			}
		}
		return client.IgnoreAlreadyExists(m.GetClient().Create(ctx, pod))
	})
}

func takesField(s *kubetest.Scenario, c *kubetest.Cluster, right bool) {
	c.Create(config())
	deployment, five := &appsv1.Deployment{ObjectMeta: meta("a")}, int32(5)
	s.Others("the autoscaler", func() {
		kubetest.Change(c, deployment, func(o *appsv1.Deployment) { o.Spec.Replicas = &five })
	})
	reconcilesSome(c, config(), predicate.ResourceVersionChangedPredicate{}, deployment,
		func(ctx context.Context, m *kubetest.Manager, o *corev1.ConfigMap) error {
			spec := appsv1apply.DeploymentSpec().WithPaused(true)
			if !right {
				spec.WithReplicas(1)
			}
			owner := metav1apply.OwnerReference().WithAPIVersion("v1").WithKind("ConfigMap").WithName(o.Name).
				WithUID(o.UID).WithController(true)
			d := appsv1apply.Deployment("a", "d").WithSpec(spec).WithOwnerReferences(owner)
			return m.GetClient().Apply(ctx, d, client.ForceOwnership, client.FieldOwner("app"))
		})
}

func waitsForGeneration(s *kubetest.Scenario, c *kubetest.Cluster, right bool) {
	o, copied := config(), ""
	o.Data = map[string]string{"x": "1"}
	c.Create(o)
	s.At(time.Second, func() { kubetest.Change(c, o, func(o *corev1.ConfigMap) { o.Data["x"] = "2" }) })
	s.Check(func() error {
		if copied != "2" {
			return fmt.Errorf("%q was copied", copied)
		}
		return nil
	})
	p := predicate.Predicate(predicate.GenerationChangedPredicate{})
	if right {
		p = predicate.ResourceVersionChangedPredicate{}
	}
	reconcilesSome(c, o, p, nil, func(ctx context.Context, m *kubetest.Manager, o *corev1.ConfigMap) error {
		return m.Process.Write(ctx, "copies", func() error { copied = o.Data["x"]; return nil })
	})
}

func observesTooEarly(s *kubetest.Scenario, c *kubetest.Cluster, right bool) {
	c.Create(replicaSet(1))
	s.At(time.Second, func() {
		kubetest.Change(c, replicaSet(0), func(o *appsv1.ReplicaSet) { *o.Spec.Replicas = 2 })
	})
	s.Always("what was observed is done", func() error {
		set := replicaSet(0)
		err := read(c, set)
		if n := podsOf(c); set.Status.ObservedGeneration == set.Generation && n < int(*set.Spec.Replicas) {
			err = errors.Join(err, fmt.Errorf("there are %d pods of %d", n, *set.Spec.Replicas))
		}
		return err
	})
	reconciles(c, replicaSet(0), func(ctx context.Context, m *kubetest.Manager, set *appsv1.ReplicaSet) error {
		observe := func() error {
			set.Status.ObservedGeneration = set.Generation
			return m.GetClient().Status().Update(ctx, set)
		}
		if !right {
			if err := observe(); err != nil {
				return err
			}
		}
		for i := range *set.Spec.Replicas {
			pod := &corev1.Pod{ObjectMeta: meta(fmt.Sprint("web-", i))}
			if err := m.GetClient().Create(ctx, pod); client.IgnoreAlreadyExists(err) != nil {
				return err
			}
		}
		return observe()
	})
}

// Two processes come back each minute.
func deletesUnseen(s *kubetest.Scenario, c *kubetest.Cluster, right bool) {
	s.Replicas = 2
	outside, deleted := make(map[string]bool), ""
	s.Check(func() error {
		if deleted != "" {
			return fmt.Errorf("%s was deleted", deleted)
		}
		return nil
	})
	c.Create(&corev1.ConfigMap{ObjectMeta: meta("first")})
	s.At(time.Minute, func() { c.Create(&corev1.ConfigMap{ObjectMeta: meta("second")}) })
	reconciles(c, config(), func(ctx context.Context, m *kubetest.Manager, o *corev1.ConfigMap) error {
		s.QueueOf(m.Process).AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}, time.Minute)
		var names []string
		err := m.Process.Write(ctx, "makes "+o.Name, func() error {
			if names = slices.Sorted(maps.Keys(outside)); outside[o.Name] {
				return handlertest.ErrUnchanged
			}
			outside[o.Name] = true
			return nil
		})
		reader := client.Reader(m.GetClient())
		if right {
			reader = m.GetAPIReader()
		}
		for _, name := range names {
			seen := reader.Get(ctx, client.ObjectKey{Namespace: "d", Name: name}, config())
			if apierrors.IsNotFound(seen) {
				err = m.Process.Write(ctx, "deletes "+name, func() error { deleted = name; return nil })
			}
		}
		return err
	})
}

func writesTime(s *kubetest.Scenario, c *kubetest.Cluster, right bool) {
	c.Create(config())
	s.Measure = func() any { return nil }
	reconciles(c, config(), func(ctx context.Context, m *kubetest.Manager, o *corev1.ConfigMap) error {
		if right && o.Annotations["seen"] != "" {
			return nil
		}
		o.Annotations = map[string]string{"seen": time.Now().String()}
		return m.GetClient().Update(ctx, o)
	})
}
