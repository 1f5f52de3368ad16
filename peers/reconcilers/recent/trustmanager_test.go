package recent

import (
	"context"
	"fmt"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	trust "github.com/cert-manager/trust-manager/pkg/apis/trust/v1alpha1"
	_ "github.com/cert-manager/trust-manager/pkg/bundle"
	"github.com/cert-manager/trust-manager/pkg/bundle/controller"
	"github.com/cert-manager/trust-manager/test/dummy"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// SetupWithManager of trust-manager makes a cache of its own, from the address of an API server, and then calls
// this function.
//
//go:linkname addBundleController github.com/cert-manager/trust-manager/pkg/bundle.addBundleController
func addBundleController(context.Context, manager.Manager, controller.Options, cache.Cache) error

// withRecorder is a manager for the type of recorders in this version of controller-runtime.
type withRecorder struct{ *kubetest.Manager }

func (withRecorder) GetEventRecorder(string) recorder.EventRecorder { return new(events.FakeRecorder) }

var team = map[string]string{"team": "x"}

// bundles is a scenario of a Bundle for the two namespaces of a team. One leaves the team.
func bundles(s *kubetest.Scenario) {
	cluster := kubetest.NewCluster(s, trustKinds)
	a := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: team}}
	b, ca := a.DeepCopy(), &trust.Bundle{ObjectMeta: metav1.ObjectMeta{Name: "ca"}}
	b.Name = "b"
	ca.Spec.Sources = []trust.BundleSource{{InLine: dummy.TestCertificate1}}
	ca.Spec.Target = trust.BundleTarget{ConfigMap: &trust.TargetTemplate{Key: "ca.pem"},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: team}}
	for _, o := range []client.Object{a, b, ca} {
		cluster.Create(o)
	}
	s.At(time.Minute, func() { kubetest.Change(cluster, a, func(a *corev1.Namespace) { a.Labels = nil }) })
	s.Measure = func() any { return nil } // What is right, the check says.
	s.Check(func() error {
		var targets corev1.ConfigMapList
		must(cluster.Others().List(context.Background(), &targets))
		if len(targets.Items) != 1 || targets.Items[0].Namespace != "b" {
			return fmt.Errorf("%d targets for one namespace", len(targets.Items))
		}
		return nil
	})
	cluster.Start(func(m *kubetest.Manager) error {
		return addBundleController(m.Process.Context(), withRecorder{m}, controller.Options{}, m.GetCache())
	})
}

var trustKinds = schemeWith(trust.AddToScheme)

func TestBundle(t *testing.T) {
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		bundles(s)
		s.Accept("Check: 2 targets", "a clean-up that fails is not tried again")
	})
}

// A clean-up that fails once is only logged: the target stays in the namespace that has left the team.
func TestBundleFindings(t *testing.T) {
	wantReport(t, bundles, "fail:%2Fca#4=3ms", "Check: 2 targets", "1m0.006s  /ca: the handler returns nil")
}
