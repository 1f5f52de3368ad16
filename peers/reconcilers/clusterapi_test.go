package reconcilers

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterapi "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// machines is a scenario of a MachineDeployment that somebody scales from 1 to 3. At the end there must be 3
// machines, and so many MachineSets, unless that is 0.
func machines(wantSets int) func(s *kubetest.Scenario) {
	kinds := schemeWith(clusterapi.AddToScheme)
	return func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, kinds)
		one, labels := int32(1), map[string]string{"set": "workers"}
		workers := &clusterapi.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "workers"}}
		workers.Spec.ClusterName, workers.Spec.Replicas = "prod", &one
		workers.Spec.Selector.MatchLabels, workers.Spec.Template.Labels = labels, labels
		workers.Spec.Template.Spec.ClusterName = "prod"
		workers.Spec.Template.Spec.InfrastructureRef.Kind = "Host"
		workers.Spec.Rollout.Strategy.Type = clusterapi.OnDeleteMachineDeploymentStrategyType
		cluster.Create(&clusterapi.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "prod"}})
		cluster.Create(workers)
		s.At(time.Minute, func() {
			kubetest.Change(cluster, workers, func(w *clusterapi.MachineDeployment) { *w.Spec.Replicas = 3 })
		})
		s.Measure = func() any { return nil } // The names of MachineSets are random. What is right, the check says.
		s.Check(func() error {
			var sets clusterapi.MachineSetList
			must(cluster.Others().List(context.Background(), &sets))
			replicas := int32(0)
			for _, set := range sets.Items {
				replicas += *set.Spec.Replicas
			}
			if replicas != 3 || wantSets > 0 && len(sets.Items) != wantSets {
				return fmt.Errorf("%d MachineSets with %d machines", len(sets.Items), replicas)
			}
			return nil
		})
		s.Accept("goroutines are left", "those of its caches, which clean up every ten hours")
		s.Runs = 300
		cluster.Start(func(m *kubetest.Manager) error {
			r := controllers.MachineDeploymentReconciler{Client: m.GetClient(), APIReader: m.GetAPIReader()}
			return r.SetupWithManager(m.Process.Context(), m, controller.Options{})
		})
	}
}

// It makes the right number of machines.
func TestMachineDeployment(t *testing.T) { kubetest.Converges(t, machines(0)) }

// A MachineSet is created, the answer is lost, and the cache shows it late: another one is created.
func TestMachineDeploymentFindings(t *testing.T) {
	wantReport(t, machines(1), "lag:MachineSet#1=10ms lost:d%2Fworkers#4=3ms",
		"Check: 2 MachineSets with 3 machines")
}
