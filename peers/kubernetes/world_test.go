package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// known are the lines in which the cluster of handlertest/kubetest differs from an API server, with the reasons.
// They stand in docs/testing-handlers.md.
var known = map[string]string{
	"an immutable field": "nothing but metadata is validated",
	"scale":              "there is no such subresource",
}

// The cluster of handlertest/kubetest does what an API server does. The same calls go to a kube-apiserver with a
// kube-controller-manager, to that cluster, and to the fake client of controller-runtime. It takes the programs
// that an earlier command has built: see .ci/run.
func TestWorld(t *testing.T) {
	if os.Getenv("WORKQUEUE_WORLD") == "" {
		t.Skip("it needs the servers: set WORKQUEUE_WORLD to the variant that is built")
	}
	variants, err := variantsNamed(os.Getenv("WORKQUEUE_WORLD"))
	if err != nil {
		t.Fatal(err)
	}
	want := onServer(t, variants[0])
	got, faked := onCluster(t), onFake(t)
	differ := func(got []string) (names []string) {
		for i, line := range want {
			if i >= len(got) || got[i] != line {
				name, _, _ := strings.Cut(line, ": ")
				names = append(names, name)
			}
		}
		return names
	}
	for i, line := range want {
		name, _, _ := strings.Cut(line, ": ")
		if same, reason := i < len(got) && got[i] == line, known[name]; same == (reason != "") {
			t.Errorf("known to differ: %q\n\tserver:  %s\n\tcluster: %s", reason, line, slices.Concat(got, make([]string, len(want)))[i])
		}
	}
	t.Logf("of %d lines the cluster differs in %d, and client/fake in %d: %v", len(want), len(differ(got)), len(differ(faked)),
		differ(faked))
}

func onServer(t *testing.T, v variant) []string {
	ctx := t.Context()
	c, err := startCluster(ctx, v, filepath.Join(t.TempDir(), "world"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	live, err := client.New(c.config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	create := func(o client.Object) {
		if err := live.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	crd := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(widgetDefinition), crd); err != nil {
		t.Fatal(err)
	}
	create(crd)
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "d"}})
	for since := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if err := live.List(ctx, widgetList(), client.InNamespace("d")); err == nil {
			break
		} else if time.Since(since) > time.Minute {
			t.Fatal(err)
		}
	}
	shown, err := cache.New(c.config, cache.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = shown.Start(ctx) }()
	return calls(ctx, live, shown, func(done func() bool) {
		for since := time.Now(); !done() && time.Since(since) < 90*time.Second; {
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// past is a client that reads past the cache.
type past struct {
	client.Client
	client.Reader
}

func (p past) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return p.Reader.Get(ctx, key, o, opts...)
}

func (p past) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return p.Reader.List(ctx, l, opts...)
}

func onCluster(t *testing.T) (lines []string) {
	t.Setenv("HANDLERTEST", "slow:none#1=3ms") // Nothing is disturbed.
	report := kubetest.Find(t, func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		cluster.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "d"}})
		s.Measure = func() any { return nil }
		cluster.Start(func(m *kubetest.Manager) error {
			r := func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				if lines == nil {
					lines = calls(ctx, past{m.GetClient(), m.GetAPIReader()}, m.GetCache(),
						func(func() bool) { time.Sleep(10 * time.Second) }) // of virtual time
				}
				return reconcile.Result{}, nil
			}
			return builder.ControllerManagedBy(m).For(&corev1.Namespace{}).Complete(reconcile.Func(r))
		})
	})
	if report != "" {
		t.Log(report)
	}
	return lines
}

func onFake(t *testing.T) []string {
	return calls(t.Context(), fake.NewClientBuilder().WithScheme(scheme.Scheme).WithReturnManagedFields().
		WithStatusSubresource(&corev1.Pod{}, &appsv1.Deployment{}, widget("x", nil)).Build(), nil, func(func() bool) {})
}
