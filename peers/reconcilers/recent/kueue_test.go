package recent

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/admissionchecks/provisioning"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"

	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// workload is admitted, but for the check of its capacity.
func workload() *kueue.Workload {
	one := int32(1)
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	c := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: cpu}}
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "train"}}
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: pod}}
	flavors := map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "flavor"}
	w.Status.Admission = &kueue.Admission{ClusterQueue: "queue",
		PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: &one, Flavors: flavors}}}
	w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "check", State: kueue.CheckStatePending}}
	return w
}

// provisions is a scenario of a Workload that waits for capacity.
func provisions(w *kueue.Workload, others func(*kubetest.Scenario, *kubetest.Cluster)) func(*kubetest.Scenario) {
	kinds := schemeWith(kueue.AddToScheme, autoscaling.AddToScheme)
	return func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, kinds)
		config := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: "config"}}
		config.Spec.ProvisioningClassName = "class"
		three, minute := int32(3), int32(60)
		config.Spec.RetryStrategy = &kueue.ProvisioningRequestRetryStrategy{BackoffLimitCount: &three,
			BackoffBaseSeconds: &minute, BackoffMaxSeconds: &minute}
		check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "check"}}
		check.Spec = kueue.AdmissionCheckSpec{ControllerName: kueue.ProvisioningRequestControllerName,
			Parameters: &kueue.AdmissionCheckParametersReference{APIGroup: kueue.GroupVersion.Group,
				Kind: provisioning.ConfigKind, Name: "config"}}
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "flavor"}}
		for _, o := range []client.Object{config, check, flavor, w} {
			cluster.Create(o)
		}
		others(s, cluster)
		cluster.Start(func(m *kubetest.Manager) error {
			must(indexer.Setup(m.Process.Context(), m))
			must(provisioning.SetupIndexer(m.Process.Context(), m))
			c, err := provisioning.NewController(m.GetClient(), m.GetEventRecorderFor("kueue"), nil)
			must(err)
			return c.SetupWithManager(m)
		})
	}
}

// autoscaler provisions all requests.
func autoscaler(s *kubetest.Scenario, cluster *kubetest.Cluster) {
	s.Others("the cluster autoscaler", func() {
		var requests autoscaling.ProvisioningRequestList
		must(cluster.Others().List(context.Background(), &requests))
		for _, r := range requests.Items {
			kubetest.Change(cluster, &r, func(r *autoscaling.ProvisioningRequest) {
				apimeta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: autoscaling.Provisioned,
					Status: metav1.ConditionTrue, Reason: "Provisioned", Message: "there are nodes"})
			})
		}
	})
}

func TestProvisioning(t *testing.T) {
	kubetest.Converges(t, provisions(workload(), func(s *kubetest.Scenario, cluster *kubetest.Cluster) {
		autoscaler(s, cluster)
		s.Accept("PodTemplate/d/ppt-train-check-1-main = ", "the Workload stays its owner, see below")
	}))
}

func TestProvisioningFindings(t *testing.T) {
	// It crashes before it passes a PodTemplate on to the request, and there is capacity when it is back.
	wantReport(t, provisions(workload(), autoscaler), "crash#2=3s",
		"extra:   PodTemplate/d/ppt-train-check-1-main", `"kind":"Workload"`)
	// The second request cannot be created, as under a quota: two writers of one message.
	w := workload()
	tried := int32(1)
	w.Status.AdmissionChecks[0].RetryCount = &tried
	wantReport(t, provisions(w, func(_ *kubetest.Scenario, cluster *kubetest.Cluster) {
		failed := &autoscaling.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "d",
			Name: provisioning.ProvisioningRequestName("train", "check", 1)}}
		must(cluster.Others().Get(context.Background(), client.ObjectKeyFromObject(w), w))
		must(controllerutil.SetControllerReference(w, failed, cluster.Others().Scheme()))
		failed.Spec.ProvisioningClassName = "class"
		noNodes := metav1.Condition{Type: autoscaling.Failed, Status: metav1.ConditionTrue, Message: "no nodes"}
		failed.Status.Conditions = []metav1.Condition{noNodes}
		cluster.Create(failed)
		cluster.OnChange = func(old, now client.Object) error {
			if _, ok := now.(*autoscaling.ProvisioningRequest); ok && old == nil {
				return errors.New("exceeded quota")
			}
			return nil
		}
	}), "", "it never comes to rest: after 1070 writes in 2.1")
}
