package reconcilers

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
	"sigs.k8s.io/jobset/pkg/controllers"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// finish is the controller of Jobs: two seconds after a Job was created it fails or is complete.
func finish(s *kubetest.Scenario, cluster *kubetest.Cluster, fails func(*batchv1.Job) bool) {
	began := time.Now()
	cluster.OnChange = func(old, new client.Object) error {
		job, ok := new.(*batchv1.Job)
		if !ok || old != nil {
			return nil
		}
		result := batchv1.JobComplete
		if fails(job) {
			result = batchv1.JobFailed
		}
		s.At(time.Since(began)+2*time.Second, func() {
			kubetest.Change(cluster, job, func(o *batchv1.Job) {
				if o.UID == job.UID {
					o.Status.Conditions = []batchv1.JobCondition{{Type: result, Status: corev1.ConditionTrue}}
				}
			})
		})
		return nil
	}
}

// jobSets is a scenario of a JobSet with a driver and workers. One of the workers fails if restarts is 1:
// then all Jobs are deleted and made anew.
func jobSets(workers, restarts int32) func(s *kubetest.Scenario) {
	kinds := schemeWith(jobset.AddToScheme)
	return func(s *kubetest.Scenario) {
		cluster := kubetest.NewCluster(s, kinds)
		set := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "train"}}
		yes, one := true, int32(1)
		set.Spec.Network = &jobset.Network{EnableDNSHostnames: &yes, PublishNotReadyAddresses: &yes}
		set.Spec.SuccessPolicy = &jobset.SuccessPolicy{Operator: jobset.OperatorAll}
		set.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		// What an API server sets:
		pods := batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Parallelism: &one, Completions: &one}}
		set.Spec.ReplicatedJobs = []jobset.ReplicatedJob{
			{Name: "driver", Replicas: 1, Template: pods}, {Name: "workers", Replicas: workers, Template: pods},
		}
		cluster.Create(set)
		finish(s, cluster, func(job *batchv1.Job) bool {
			return restarts > 0 && job.Name == "train-workers-1" && job.Labels[constants.RestartsKey] == "0"
		})
		s.Check(func() error {
			var o jobset.JobSet
			must(cluster.Others().Get(context.Background(), client.ObjectKeyFromObject(set), &o))
			if o.Status.TerminalState != string(jobset.JobSetCompleted) || o.Status.Restarts != restarts {
				return fmt.Errorf("the JobSet is %q after %d restarts", o.Status.TerminalState, o.Status.Restarts)
			}
			return nil
		})
		cluster.Start(func(m *kubetest.Manager) error {
			must(controllers.SetupJobSetIndexes(m.Process.Context(), m.GetFieldIndexer()))
			return controllers.NewJobSetReconciler(m.GetClient(), m.GetScheme(), m.GetEventRecorderFor("jobset")).
				SetupWithManager(m)
		})
	}
}

// Without calls that fail before they take effect, it is right.
func TestJobSet(t *testing.T) {
	kubetest.Converges(t, func(s *kubetest.Scenario) {
		jobSets(2, 1)(s)
		s.Without(handlertest.FailedCall)
	})
}

// The error of the last write is swallowed, unless it is a conflict: the JobSet is never completed.
func TestJobSetSwallowsError(t *testing.T) {
	wantReport(t, jobSets(0, 0), "fail:d%2Ftrain#4=3ms", `Check: the JobSet is "" after 0 restarts`,
		"updates the status of JobSet d/train@4: unavailable")
}
