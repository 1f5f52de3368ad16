package kubetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

var toWeb = handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "d", Name: "web"}}}
})

// The commonest pair there is: a finalizer, and a predicate that lets nothing but new generations pass. An API
// server raises the generation when it marks an object as deleted.
func TestGenerationOfADeletion(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "300")
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		cluster.Create(replicaSet(1))
		s.Sometime("deletes the set", func() { cluster.Delete(replicaSet(1)) })
		s.Check(func() error {
			if err := cluster.Others().Get(t.Context(), client.ObjectKeyFromObject(replicaSet(1)),
				replicaSet(1)); client.IgnoreNotFound(err) != nil || err == nil {
				return fmt.Errorf("the set is there: %v", err)
			}
			return nil
		})
		cluster.Start(func(m *kubetest.Manager) error {
			c := m.GetClient()
			r := func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
				var set appsv1.ReplicaSet
				err := c.Get(ctx, request.NamespacedName, &set)
				switch {
				case err != nil:
				case set.DeletionTimestamp != nil && controllerutil.RemoveFinalizer(&set, finalizer),
					set.DeletionTimestamp == nil && controllerutil.AddFinalizer(&set, finalizer):
					err = c.Update(ctx, &set)
				}
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			return builder.ControllerManagedBy(m).For(&appsv1.ReplicaSet{},
				builder.WithPredicates(predicate.GenerationChangedPredicate{})).Complete(reconcile.Func(r))
		})
	})
}

// The simplest right reconciler creates children of an owner that is deleted while its cache lags: each child
// that the collector deletes is created anew until the cache shows the end of the owner.
func TestChildrenOfADeletedOwner(t *testing.T) {
	t.Setenv("HANDLERTEST_RUNS", "300")
	scenario := func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		cluster.Create(replicaSet(5))
		s.Sometime("deletes the set", func() { cluster.Delete(replicaSet(5)) })
		cluster.Start(func(m *kubetest.Manager) error { return (&webs{m.GetClient(), true}).SetupWithManager(m) })
	}
	kubetest.Converges(t, scenario)
	t.Setenv("HANDLERTEST", "lag:ReplicaSet#2=10s lag:ReplicaSet#1=10s sometime:deletes+the+set#1=30ms")
	kubetest.Converges(t, scenario)
}

// Deletions in the foreground wait for the dependents that block them, and orphans lose their owner first. A
// dependent that another object also owns stays. A collector that was refused tries again.
func TestPropagation(t *testing.T) {
	yes := true
	of := func(owners ...client.Object) (refs []metav1.OwnerReference) {
		for _, o := range owners {
			refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o.GetName(),
				UID: o.GetUID(), BlockOwnerDeletion: &yes})
		}
		return refs
	}
	others(t, func(ctx context.Context, cluster *kubetest.Cluster, c client.Client) {
		refused := make(map[string]bool)
		cluster.OnChange = func(old, now client.Object) error {
			if old == nil || refused[old.GetName()] || !strings.HasPrefix(old.GetName(), "of-") {
				return nil
			}
			refused[old.GetName()] = true
			return errors.New("not now")
		}
		other := &corev1.ConfigMap{ObjectMeta: meta("other")}
		err := c.Create(ctx, other)
		for name, policy := range map[string]metav1.DeletionPropagation{"b": metav1.DeletePropagationBackground,
			"f": metav1.DeletePropagationForeground, "o": metav1.DeletePropagationOrphan,
			"w": metav1.DeletePropagationForeground} {
			owner := &corev1.ConfigMap{ObjectMeta: meta(name)}
			err = errors.Join(err, c.Create(ctx, owner))
			pod, both := &corev1.Pod{ObjectMeta: meta("of-" + name)}, &corev1.Pod{ObjectMeta: meta("of-both-" + name)}
			pod.OwnerReferences, both.OwnerReferences = of(owner), of(owner, other)
			switch name {
			case "w": // Its owner waits for it.
				pod.Finalizers = []string{finalizer}
			case "f": // Nobody else owns it.
				pod.OwnerReferences = of(owner, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "gone"}})
			}
			err = errors.Join(err, c.Create(ctx, pod), c.Create(ctx, both),
				c.Delete(ctx, owner, client.PropagationPolicy(policy)))
			gone := c.Get(ctx, client.ObjectKeyFromObject(owner), owner)
			if waits := gone == nil && owner.DeletionTimestamp != nil && len(owner.Finalizers) == 1; waits !=
				(policy != metav1.DeletePropagationBackground) {
				t.Errorf("%s: %v, %+v", policy, gone, owner.ObjectMeta)
			}
		}
		if err != nil {
			t.Error(err)
		}
		// What depends on a dependent goes first as well, and an object in another namespace owns nothing.
		top := &corev1.ConfigMap{ObjectMeta: meta("top")}
		err = c.Create(ctx, top)
		middle, leaf := &corev1.ConfigMap{ObjectMeta: meta("middle")}, &corev1.Pod{ObjectMeta: meta("leaf")}
		middle.OwnerReferences, leaf.Finalizers = of(top), []string{finalizer}
		err = errors.Join(err, c.Create(ctx, middle))
		leaf.OwnerReferences = of(middle)
		astray := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "astray",
			OwnerReferences: of(other)}}
		if err = errors.Join(err, c.Create(ctx, leaf), c.Create(ctx, astray),
			c.Delete(ctx, top, client.PropagationPolicy(metav1.DeletePropagationForeground))); err != nil {
			t.Error(err)
		}
	}, func(c client.Client) {
		var pods corev1.PodList
		var owners corev1.ConfigMapList
		err := errors.Join(c.List(context.Background(), &owners), c.List(context.Background(), &pods))
		var left []string
		for _, pod := range pods.Items {
			left = append(left, fmt.Sprint(pod.Name, len(pod.OwnerReferences)))
		}
		if want := []string{"leaf1", "of-both-b1", "of-both-f1", "of-both-o1", "of-both-w1", "of-o0",
			"of-w1"}; err != nil || len(owners.Items) != 5 || !slices.Equal(left, want) {
			// One more owner keeps the controller busy.
			t.Errorf("%v and %d owners are left, %v, want %v", left, len(owners.Items), err, want)
		}
	})
}
