package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// A workload is what a run creates, all in one namespace.
type workload struct {
	namespace               string
	deployments, pods, jobs int // pods is the number per Deployment.
}

// writers is how many requests the program has under way at the same time.
const writers = 16

// inParallel calls f for each number below n, until one call fails, and returns its error.
func inParallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workqueue.ParallelizeUntil(ctx, writers, n, func(i int) {
		if err := f(ctx, i); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}

func podTemplate(app string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			RestartPolicy: restart,
			Containers:    []corev1.Container{{Name: "app", Image: "none"}},
		},
	}
}

// create creates the workload's namespace and what is in it, Deployments and Jobs in turn.
func (w workload) create(ctx context.Context, c *cluster) error {
	if err := c.createNamespace(ctx, w.namespace); err != nil {
		return err
	}
	return inParallel(ctx, max(w.deployments, w.jobs), func(ctx context.Context, i int) error {
		if i < w.deployments {
			app := fmt.Sprintf("deployment-%04d", i)
			d := &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: app},
				Spec: appsv1.DeploymentSpec{
					Replicas: new(int32(w.pods)),
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
					Template: podTemplate(app, corev1.RestartPolicyAlways),
				},
			}
			if _, err := c.client.AppsV1().Deployments(w.namespace).Create(ctx, d,
				metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		if i < w.jobs {
			app := fmt.Sprintf("job-%04d", i)
			j := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: app},
				Spec:       batchv1.JobSpec{Template: podTemplate(app, corev1.RestartPolicyNever)},
			}
			if _, err := c.client.BatchV1().Jobs(w.namespace).Create(ctx, j, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// createNamespace creates a namespace and waits until Pods may be created in it.
func (c *cluster) createNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	return c.manager.await(ctx, time.Minute, func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// A kubelet stands for all nodes of a cluster: it finishes the Pods of Jobs, and makes all others ready.
// (Pods stay without a node, as there is no scheduler.)
type kubelet struct {
	cluster   *cluster
	factory   informers.SharedInformerFactory
	converged func() (state string, done bool) // Whether all Deployments are available and all Jobs complete.
	writes    atomic.Int64                     // How often it has set a Pod's status.
}

// newKubelet returns a kubelet for the workload's namespace. It does nothing before run.
func newKubelet(c *cluster, w workload) *kubelet {
	k := &kubelet{cluster: c, factory: informers.NewSharedInformerFactoryWithOptions(c.client, 0,
		informers.WithNamespace(w.namespace))}
	deployments, jobs := k.factory.Apps().V1().Deployments().Lister(), k.factory.Batch().V1().Jobs().Lister()
	k.converged = func() (string, bool) {
		available, completed := 0, 0
		ds, _ := deployments.List(labels.Everything()) // Reading a cache does not fail.
		for _, d := range ds {
			if d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas {
				available++
			}
		}
		js, _ := jobs.List(labels.Everything())
		for _, j := range js {
			if complete(j) {
				completed++
			}
		}
		return fmt.Sprintf("%d of %d Deployments are available, %d of %d Jobs complete", available, w.deployments,
				completed, w.jobs),
			available == w.deployments && completed == w.jobs
	}
	return k
}

// run is the kubelet's work until ctx ends.
func (k *kubelet) run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	pods := k.factory.Core().V1().Pods()
	enqueue := func(object any) {
		if key, err := cache.ObjectToName(object); err == nil {
			queue.Add(key)
		}
	}
	if _, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) },
	}); err != nil {
		return err
	}
	lister := pods.Lister()
	handle := func(ctx context.Context, key cache.ObjectName) error {
		pod, err := lister.Pods(key.Namespace).Get(key.Name)
		if apierrors.IsNotFound(err) || err == nil && (pod.Status.Phase != corev1.PodPending ||
			pod.DeletionTimestamp != nil) {
			return nil
		}
		if err != nil {
			return err
		}
		patch := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" {
			patch = `{"status":{"phase":"Succeeded"}}`
		}
		k.writes.Add(1)
		_, err = k.cluster.client.CoreV1().Pods(pod.Namespace).
			Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	k.factory.StartWithContext(ctx)
	defer k.factory.Shutdown()
	// What fails is retried. What is left undone when ctx ends does not matter: the cluster also ends.
	return worker.New(queue, handle, worker.Options[cache.ObjectName]{
		Workers: writers, Logger: slog.New(slog.DiscardHandler), DrainTimeout: time.Second,
	}).Run(ctx)
}
