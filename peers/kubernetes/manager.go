package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/keyedqueue/workqueue/controllerruntime"
)

// Names and annotations by which the manager knows its objects.
const (
	inputPrefix  = "input-"
	outputPrefix = "output-"
	finalizer    = "workqueue.example/cleanup"
	handled      = "workqueue.example/handled" // An annotation with the value that the output was made for.
)

// manager is a program with one controller on our queue, by way of controllerruntime.NewQueue. For every
// ConfigMap input-N it keeps a ConfigMap output-N, and removes that with a finalizer.
func manager(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "`file` that says where the cluster is")
	namespace := flags.String("namespace", "", "the namespace of the objects")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // No limit.
	ctrl.SetLogger(logr.Discard())
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}},
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	r := &reconciler{client: mgr.GetClient()}
	inputs := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return strings.HasPrefix(o.GetName(), inputPrefix)
	})
	err = ctrl.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}, builder.WithPredicates(inputs)).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{NewQueue: controllerruntime.NewQueue, MaxConcurrentReconciles: writers}).
		Complete(r)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// reconciler makes outputs of inputs. It prints a line for each reconciliation.
type reconciler struct {
	client client.Client
	busy   sync.Map // The keys that are being reconciled.
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if _, twice := r.busy.LoadOrStore(request, true); twice {
		fmt.Fprintf(os.Stdout, "twice %s\n", request.Name)
	} else {
		defer r.busy.Delete(request)
	}
	err := r.reconcile(ctx, request)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		// The cache is behind. What it lacks is coming, and so is the retry.
		fmt.Fprintf(os.Stdout, "behind %s\n", request.Name)
		return ctrl.Result{}, err
	}
	if err != nil {
		fmt.Fprintf(os.Stdout, "failed %s: %v\n", request.Name, err)
		return ctrl.Result{}, err
	}
	fmt.Fprintf(os.Stdout, "reconciled %s\n", request.Name)
	return ctrl.Result{}, nil
}

func (r *reconciler) reconcile(ctx context.Context, request ctrl.Request) error {
	input := &corev1.ConfigMap{}
	if err := r.client.Get(ctx, request.NamespacedName, input); err != nil {
		return client.IgnoreNotFound(err)
	}
	output := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: input.Namespace,
		Name: outputName(input.Name)}}
	if input.DeletionTimestamp != nil {
		if err := r.client.Delete(ctx, output); client.IgnoreNotFound(err) != nil {
			return err
		}
		if controllerutil.RemoveFinalizer(input, finalizer) {
			return client.IgnoreNotFound(r.client.Update(ctx, input))
		}
		return nil
	}
	if controllerutil.AddFinalizer(input, finalizer) {
		if err := r.client.Update(ctx, input); err != nil {
			return err
		}
	}
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, output, func() error {
		output.Data = map[string]string{"result": resultOf(input.Data["value"])}
		return controllerutil.SetControllerReference(input, output, r.client.Scheme())
	})
	if err != nil {
		return err
	}
	if input.Annotations[handled] == input.Data["value"] {
		return nil
	}
	if input.Annotations == nil {
		input.Annotations = map[string]string{}
	}
	input.Annotations[handled] = input.Data["value"]
	return r.client.Update(ctx, input)
}

func inputName(i int) string { return fmt.Sprintf("%s%05d", inputPrefix, i) }

func outputName(input string) string { return outputPrefix + strings.TrimPrefix(input, inputPrefix) }

// resultOf is the work that the controller does.
func resultOf(value string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(value))) }
