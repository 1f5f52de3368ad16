package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/sharding"
	"github.com/keyedqueue/workqueue/sharding/shardingprom"
	"github.com/keyedqueue/workqueue/worker"
)

const (
	group              = "sharded-example"
	label              = "sharded-example=true"
	checksumAnnotation = "sharded-example/checksum"
	fenceAnnotation    = "sharded-example/fence"
)

type options struct {
	namespace, leases, http string
	workers                 int
}

// control is a replica of the controller until ctx ends. Its group is in store. The order matters: the caches
// are filled before it joins, so that no slot comes here too early, and it leaves when its handlers have
// returned.
func control(ctx context.Context, client kubernetes.Interface, store sharding.Store, o options,
	stderr io.Writer) (err error) {
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(o.namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = label }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	factory.StartWithContext(watching)
	defer factory.Shutdown() // Waits for the informer.
	defer stopWatching()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil // Ctrl-C.
	}

	member, err := sharding.Join(ctx, store, sharding.Config{Group: group, Logger: logger})
	if err != nil {
		return err
	}
	defer func() { // Not with ctx, which has ended.
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		err = errors.Join(err, member.Leave(leaving))
	}()
	registry := prometheus.NewRegistry()
	provider := prom.NewProvider(registry, prom.Options{})
	queue, err := sharding.NewQueue(workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "configmaps", MetricsProvider: provider},
	), member, sharding.QueueConfig[cache.ObjectName]{
		Keys: func(context.Context) (iter.Seq[cache.ObjectName], error) {
			var keys []cache.ObjectName
			for _, object := range informer.GetStore().List() {
				keys = append(keys, cache.MetaObjectToName(object.(*corev1.ConfigMap)))
			}
			return slices.Values(keys), nil
		},
	})
	if err != nil {
		return err
	}
	registry.MustRegister(shardingprom.NewCollector(member, map[string]shardingprom.Queue{"configmaps": queue}))
	// Every replica adds all keys. The queue drops those of the others.
	enqueue := func(object any) {
		if key, err := cache.DeletionHandlingObjectToName(object); err == nil {
			queue.Add(key)
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
		DeleteFunc: enqueue,
	})
	if err == nil && o.http != "" {
		err = serve(ctx, o.http, registry, queue, logger)
	}
	if err != nil {
		return err
	}
	c := &controller{client: client, store: informer.GetStore(), logger: logger}
	return worker.Run(ctx, queue, c.handle, worker.Options[cache.ObjectName]{
		Workers: o.workers, HandlerTimeout: time.Minute, DrainTimeout: 10 * time.Second,
		Logger: logger, MetricsProvider: provider,
	})
}

// serve serves the metrics and the debug page until ctx ends.
func serve(ctx context.Context, addr string, registry *prometheus.Registry,
	queue workqueue.TypedInterface[cache.ObjectName], logger *slog.Logger) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	page := debug.NewHandler(debug.Options{})
	debug.Register(page, "configmaps", queue)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/debug/workqueue/", http.StripPrefix("/debug/workqueue", page))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() {
		_ = server.Close()
		page.Close()
	})
	go func() { _ = server.Serve(l) }()
	logger.Info("Serving", "metrics", fmt.Sprintf("http://%s/metrics", l.Addr()), "debug_page",
		fmt.Sprintf("http://%s/debug/workqueue/", l.Addr()))
	return nil
}

type controller struct {
	client kubernetes.Interface
	store  cache.Store
	logger *slog.Logger
}

// handle writes the checksum of a ConfigMap's data into an annotation, and the fence of the slot beside it.
func (c *controller) handle(ctx context.Context, key cache.ObjectName) error {
	object, found, err := c.store.GetByKey(key.String())
	if err != nil || !found {
		return err // Nothing is left to do for a deleted site.
	}
	m := object.(*corev1.ConfigMap)
	sum, err := checksum(m)
	if err != nil {
		return worker.Terminal(err)
	}
	if m.Annotations[checksumAnnotation] == sum {
		return nil
	}
	// A process that was stopped, for example with its machine, may continue here after another replica has got the
	// slot. That one has a greater fence. Until it has written that, the update below still conflicts, if the
	// cache is old.
	fence, _ := sharding.Fence(ctx)
	if written, _ := strconv.ParseInt(m.Annotations[fenceAnnotation], 10, 64); written > fence {
		return fmt.Errorf("fence %d of this replica is older than %d: another one holds the slot", fence, written)
	}
	m = m.DeepCopy()
	if m.Annotations == nil {
		m.Annotations = make(map[string]string)
	}
	m.Annotations[checksumAnnotation], m.Annotations[fenceAnnotation] = sum, strconv.FormatInt(fence, 10)
	_, err = c.client.CoreV1().ConfigMaps(m.Namespace).Update(ctx, m, metav1.UpdateOptions{})
	switch {
	case err == nil:
		c.logger.Info("Wrote the checksum", "configmap", key.String(), "fence", fence)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // It has changed since, and that change adds it again.
	}
	return err
}

func checksum(m *corev1.ConfigMap) (string, error) {
	data, err := json.Marshal([]any{m.Data, m.BinaryData}) // The keys of maps are sorted.
	return fmt.Sprintf("%x", sha256.Sum256(data))[:16], err
}
