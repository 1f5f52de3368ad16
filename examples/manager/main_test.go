package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/examples/internal/locked"
)

// cluster is controller-runtime's fake client, whose informers get what the test does to it.
type cluster struct {
	client    client.Client
	informers *informertest.FakeInformers
}

func newCluster() *cluster {
	c := &cluster{client: fake.NewClientBuilder().Build(),
		informers: &informertest.FakeInformers{Scheme: scheme.Scheme}}
	// Before the controller asks: the fake has no lock.
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.Secret{}} {
		if _, err := c.informers.FakeInformerFor(context.Background(), o); err != nil {
			panic(err)
		}
	}
	return c
}

func (c *cluster) manager() (ctrl.Manager, error) {
	return ctrl.NewManager(&rest.Config{}, ctrl.Options{
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		},
		NewCache:   func(*rest.Config, cache.Options) (cache.Cache, error) { return c.informers, nil },
		NewClient:  func(*rest.Config, client.Options) (client.Client, error) { return c.client, nil },
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
}

// show creates or changes an object, and lets the informers know.
func (c *cluster) show(o client.Object) error {
	ctx := context.Background()
	informer, err := c.informers.FakeInformerFor(ctx, o)
	if err != nil {
		return err
	}
	old := o.DeepCopyObject().(client.Object)
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(o), old); err != nil {
		err = c.client.Create(ctx, o)
		informer.Add(o)
		return err
	}
	o.SetResourceVersion(old.GetResourceVersion())
	changed := o.DeepCopyObject().(client.Object)
	if err := c.client.Update(ctx, changed); err != nil {
		return err
	}
	o.SetResourceVersion(changed.GetResourceVersion())
	if err := c.client.Status().Update(ctx, o); err != nil && !apierrors.IsNotFound(err) { // A Secret has none.
		return err
	}
	informer.Update(old, o)
	return nil
}

func deployment(generation int64, ready int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: generation},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"example.com/secret": "db"}}},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: generation, UpdatedReplicas: ready,
			ReadyReplicas: ready},
	}
}

func secret(password string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
		Data: map[string][]byte{"password": []byte(password)}}
}

// The program runs on a fake client. What it logs has the whole story, and so has the page.
func TestManager(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		mgr, err := c.manager()
		if err != nil {
			t.Fatal(err)
		}
		page := debug.NewHandler(debug.Options{})
		defer page.Close()
		var log locked.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string,
			a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}}))
		traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(logSpans{logger}))
		if err := setUp(mgr, page, traces, &reconciler{mgr.GetClient(), logger}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()
		set := func(o client.Object) { // and lets everything happen that follows
			t.Helper()
			if err := c.show(o); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		want := func(lines ...string) {
			t.Helper()
			if got, want := log.Take(), strings.Join(append(lines, ""), "\n"); got != want {
				t.Errorf("logged\n%swant\n%s", got, want)
			}
		}

		set(secret("1"))
		set(deployment(1, 0))
		want(`msg=Waiting deployment=default/web generation=1 attempt=1 causes="Create Deployment default/web"`)
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/debug/workqueue?queue=rollouts&format=json",
			nil))
		if got := answer.Body.String(); !strings.Contains(got, `"processing":[{"key":"default/web"`) {
			t.Errorf("the page does not show what is reconciled: %s", got)
		}

		set(deployment(1, 1)) // A new status does not interrupt.
		want()
		set(deployment(2, 1)) // A new generation does.
		want(
			`msg="Span handle rollouts" duration=10s name=rollouts attempt=1 key=default/web next=interrupted`,
			`msg=Waiting deployment=default/web generation=2 attempt=1 causes="Update Deployment default/web, status; Update Deployment default/web, generation 2"`,
		)
		set(secret("2")) // So does a Secret.
		want(
			`msg="Span handle rollouts" duration=5s name=rollouts attempt=1 key=default/web next=interrupted`,
			`msg=Waiting deployment=default/web generation=2 attempt=1 causes="Update Secret default/db"`,
		)
		set(deployment(2, 3)) // The status is what it waits for. It comes once more because of it.
		want(
			`msg="Rolled out" deployment=default/web generation=2`,
			`msg="Span handle rollouts" duration=6s name=rollouts attempt=1 key=default/web next=forget`,
			`msg=Waiting deployment=default/web generation=2 attempt=1 causes="Update Deployment default/web, status"`,
			`msg="Rolled out" deployment=default/web generation=2`,
			`msg="Span handle rollouts" duration=0s name=rollouts attempt=1 key=default/web next=forget`,
		)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
