package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// watch reports Pods until ctx ends. It is the whole controller: an informer fills the queue, the worker
// handles its keys, and a group starts and ends both together.
func watch(ctx context.Context, client kubernetes.Interface, o options, stdout, stderr io.Writer) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(o.namespace))
	pods := factory.Core().V1().Pods()
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "pods"},
	)
	reporter := newReporter(pods.Lister(), o, stdout)

	// What has happened is not queued, only to whom. The handler looks what there is now, so any number
	// of changes that come before that are one key.
	enqueue := func(object any) {
		if key, err := cache.DeletionHandlingObjectToName(object); err == nil {
			queue.Add(key)
		}
	}
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
		DeleteFunc: enqueue,
	})
	if err != nil {
		return err
	}
	// An informer tries forever, which does not help without permission.
	refused := make(chan error, 1)
	err = pods.Informer().SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector,
		err error) {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			select {
			case refused <- err:
			default:
			}
			return
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		ctx, cancel := context.WithCancel(ctx)
		factory.StartWithContext(ctx)
		defer factory.Shutdown() // Waits for the informers.
		defer cancel()
		select {
		case err := <-refused:
			return fmt.Errorf("the cluster does not let us watch Pods: %w", err)
		case <-ctx.Done():
			return nil
		}
	})
	pool := worker.New(queue, reporter.look, worker.Options[cache.ObjectName]{
		Workers:        o.workers,
		MaxRetries:     5,
		HandlerTimeout: time.Minute,
		DrainTimeout:   5 * time.Second,
		Logger:         slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	group.Go(func() error { return pool.Run(ctx) })
	// Keys that are left undone do not matter: the next start lists all Pods again.
	return group.Wait()
}
