package reconcilers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	externalsecrets "github.com/external-secrets/external-secrets/apis/externalsecrets/v1"
	"github.com/external-secrets/external-secrets/pkg/controllers/clusterexternalsecret"
	"github.com/external-secrets/external-secrets/pkg/controllers/clusterexternalsecret/cesmetrics"
	"github.com/external-secrets/external-secrets/pkg/controllers/metrics"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

var registerMetrics = sync.OnceFunc(func() { metrics.SetUpLabelNames(false); cesmetrics.SetUpMetrics() })

var (
	team      = labels.Set{"team": "x"}
	isOfTeam  = labels.SelectorFromSet(team)
	secrets   = &externalsecrets.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: team}}
)

// leaves takes the first namespace away from the team.
func leaves(cluster *kubetest.Cluster) func() {
	return func() { kubetest.Change(cluster, namespace, func(a *corev1.Namespace) { a.Labels = nil }) }
}

// clusterSecrets is a scenario of a ClusterExternalSecret for two namespaces, those of a team. Each must have
// an ExternalSecret and, until the ClusterExternalSecret is gone, a finalizer.
func clusterSecrets(others func(*kubetest.Scenario, *kubetest.Cluster)) func(s *kubetest.Scenario) {
	registerMetrics()
	kinds := schemeWith(externalsecrets.AddToScheme)
	return func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, kinds)
		second, all := namespace.DeepCopy(), secrets.DeepCopy()
		second.Name = "b"
		all.Spec.NamespaceSelectors = []*metav1.LabelSelector{{MatchLabels: team}}
		for _, o := range []client.Object{namespace, second, all} {
			cluster.Create(o)
		}
		others(s, cluster)
		s.Settle = 3 * time.Hour // What has failed is tried again after one.
		s.Check(func() error { return checkSecrets(context.Background(), cluster.Others()) })
		s.Measure = func() any { return nil } // What is right, the check says.
		cluster.Start(func(m *kubetest.Manager) error {
			return (&clusterexternalsecret.Reconciler{Client: m.GetClient(), Log: logr.Discard(), Scheme: m.GetScheme(),
				RequeueInterval: time.Hour}).SetupWithManager(m, controller.Options{})
		})
	}
}

// checkSecrets wants the namespaces of the team to have a secret, and others to have none.
func checkSecrets(ctx context.Context, others client.Client) error {
	var namespaces corev1.NamespaceList
	must(others.List(ctx, &namespaces))
	gone := apierrors.IsNotFound(others.Get(ctx, client.ObjectKeyFromObject(secrets), secrets.DeepCopy()))
	for _, n := range namespaces.Items {
		var list externalsecrets.ExternalSecretList
		must(others.List(ctx, &list, client.InNamespace(n.Name)))
		wanted := !gone && isOfTeam.Matches(labels.Set(n.Labels))
		if len(list.Items) == 1 != wanted || gone && len(n.Finalizers) > 0 {
			return fmt.Errorf("%s has %d secrets and the finalizers %v", n.Name, len(list.Items), n.Finalizers)
		}
	}
	return nil
}

func deletes(cluster *kubetest.Cluster) func() { return func() { cluster.Delete(secrets) } }

// When one thing changes long after it has done its work, it is right, unless a deletion fails.
func TestClusterExternalSecret(t *testing.T) {
	for _, change := range []func(*kubetest.Cluster) func(){leaves, deletes} {
		kubetest.Converges(t, clusterSecrets(func(s *kubetest.Scenario, cluster *kubetest.Cluster) {
			s.At(4*time.Hour, change(cluster))
			s.Accept("Check: a has 1 secrets", "a deletion that fails is not tried again")
		}))
	}
}

func TestClusterExternalSecretFindings(t *testing.T) {
	// It forgets a namespace after a conflict, and leaves the secret there when the namespace leaves the team.
	wantReport(t, clusterSecrets(func(s *kubetest.Scenario, cluster *kubetest.Cluster) {
		s.Sometime("takes a out of the team", leaves(cluster))
	}), "lag:Namespace#1=30ms sometime:takes+a+out+of+the+team#1=10ms", "Check: a has 1 secrets")
	// It crashes before it notes where it has put finalizers: they stay, and nobody can delete the namespaces.
	wantReport(t, clusterSecrets(func(s *kubetest.Scenario, cluster *kubetest.Cluster) {
		s.Sometime("deletes it", deletes(cluster))
	}), "crash#6=3ms sometime:deletes+it#1=4ms", "Check: a has 0 secrets and the finalizers [externalsecrets")
	// It does not try again to delete the secret of a namespace that has left the team.
	wantReport(t, clusterSecrets(func(s *kubetest.Scenario, cluster *kubetest.Cluster) {
		s.At(4*time.Hour, leaves(cluster))
	}), "fail:%2Fdb#12=3ms", "Check: a has 1 secrets", "deletes ExternalSecret a/db@6: unavailable")
	// The finalizer of a namespace that has left the team always stays as well.
	wantReport(t, clusterSecrets(func(s *kubetest.Scenario, cluster *kubetest.Cluster) {
		s.At(4*time.Hour, leaves(cluster))
		s.At(8*time.Hour, deletes(cluster))
	}), "", "fails undisturbed: Check: a has 0 secrets and the finalizers [externalsecrets")
}
