package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/wait"
	"github.com/keyedqueue/workqueue/worker"
)

// controller waits for the rollouts of Deployments, and prints how they end.
type controller struct {
	queue       workqueue.TypedRateLimitingInterface[cache.ObjectName]
	deployments appslisters.DeploymentLister
	secrets     corelisters.SecretLister
	out         io.Writer
	// finished has, for each Deployment, the version whose rollout was waited for last.
	finished sync.Map
}

// watch runs the controller until ctx ends.
func watch(ctx context.Context, client kubernetes.Interface, stdout, stderr io.Writer) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	deployments, secrets := factory.Apps().V1().Deployments(), factory.Core().V1().Secrets()
	c := &controller{
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "rollouts"},
		),
		deployments: deployments.Lister(), secrets: secrets.Lister(), out: stdout,
	}
	_, deploymentsErr := deployments.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { c.deploymentChanged(nil, object.(*appsv1.Deployment)) },
		UpdateFunc: func(old, object any) {
			c.deploymentChanged(old.(*appsv1.Deployment), object.(*appsv1.Deployment))
		},
		// There is nothing to wait for any more: the handler finds out by itself.
		DeleteFunc: func(object any) {
			if key, err := cache.DeletionHandlingObjectToName(object); err == nil {
				c.add(key, workqueue.Cause{Reason: fmt.Sprintf("Deployment %s was deleted", key)})
			}
		},
	})
	_, secretsErr := secrets.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, object any) { c.secretChanged(old.(*corev1.Secret), object.(*corev1.Secret)) },
	})
	if err := errors.Join(deploymentsErr, secretsErr); err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		ctx, cancel := context.WithCancel(ctx)
		defer factory.Shutdown() // Waits for the informers.
		defer cancel()
		factory.StartWithContext(ctx)
		<-ctx.Done()
		return nil
	})
	pool := worker.New(c.queue, c.handle, worker.Options[cache.ObjectName]{
		Workers: 4,
		Drain:   worker.Nothing, // Waiting can be cut short.
		Logger:  slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	group.Go(func() error { return pool.Run(ctx) })
	return group.Wait()
}

// add adds a key and says why.
func (c *controller) add(key cache.ObjectName, cause workqueue.Cause) {
	workqueue.AddCause(c.queue, key, cause)
}

// deploymentChanged is called with nil for a Deployment that is new.
func (c *controller) deploymentChanged(old, d *appsv1.Deployment) {
	key := cache.MetaObjectToName(d)
	switch {
	case old == nil:
		c.add(key, workqueue.Cause{Reason: fmt.Sprintf("Deployment %s was created", key)})
	case old.Generation != d.Generation:
		c.add(key, workqueue.Cause{Reason: fmt.Sprintf("Deployment %s has generation %d", key, d.Generation)})
	case old.ResourceVersion != d.ResourceVersion:
		// A new status is what the handler waits for. It must not end that wait.
		c.add(key, workqueue.Cause{Reason: fmt.Sprintf("Deployment %s has a new status", key), Quiet: true})
	}
}

// secretChanged adds the Deployments that use a Secret.
func (c *controller) secretChanged(old, s *corev1.Secret) {
	if old.ResourceVersion == s.ResourceVersion {
		return // The informer has listed it once more.
	}
	deployments, err := c.deployments.Deployments(s.Namespace).List(labels.Everything())
	if err != nil {
		return // Never, from a cache.
	}
	why := workqueue.Cause{Reason: fmt.Sprintf("Secret %s changed", cache.MetaObjectToName(s))}
	for _, d := range deployments {
		if secretOf(d) == s.Name {
			c.add(cache.MetaObjectToName(d), why)
		}
	}
}

// secretOf returns the name of the Secret that d uses, or nothing.
func secretOf(d *appsv1.Deployment) string { return d.Spec.Template.Annotations["example.com/secret"] }

// handle waits until the Deployment is what its spec and its Secret ask for. It waits no longer if one of
// them changes: then the key is handled again at once, and the wait begins anew, for something else.
func (c *controller) handle(ctx context.Context, key cache.ObjectName) error {
	d, err := c.deployments.Deployments(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.finished.Delete(key)
		return nil
	}
	if err != nil {
		return err
	}
	version := fmt.Sprintf("generation %d", d.Generation)
	if s, err := c.secrets.Secrets(key.Namespace).Get(secretOf(d)); err == nil {
		version += fmt.Sprintf(" with Secret version %s", s.ResourceVersion)
	}
	if finished, ok := c.finished.Load(key); ok && finished == version {
		return nil // Only the status has changed.
	}
	fmt.Fprintf(c.out, "%s: waits for %s (%s)\n", key, version, worker.CallOf(ctx).Causes())
	waiting := worker.CallOf(ctx).UntilAdded()
	err = wait.PollUntilContextCancel(waiting, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		now, err := c.deployments.Deployments(key.Namespace).Get(key.Name)
		return err == nil && isRolledOut(now), err
	})
	if context.Cause(waiting) == worker.ErrAdded {
		fmt.Fprintf(c.out, "%s: waits no longer for %s\n", key, version)
	}
	if err != nil {
		return err // No failure, if it is because of UntilAdded.
	}
	fmt.Fprintf(c.out, "%s: %s is rolled out\n", key, version)
	c.finished.Store(key, version)
	return nil
}

// isRolledOut reports whether all replicas are new and ready.
func isRolledOut(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration == d.Generation &&
		d.Status.UpdatedReplicas == *d.Spec.Replicas && d.Status.ReadyReplicas == *d.Spec.Replicas
}
