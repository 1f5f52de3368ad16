// Package kubetest tests a reconciler of controller-runtime against what production does to it: caches
// lag, the process crashes, calls fail, somebody deletes an object at the worst moment. It is package
// [github.com/keyedqueue/workqueue/handlertest] with a cluster in memory as its world.
//
//	func TestWebs(t *testing.T) {
//		kubetest.Converges(t, func(s *kubetest.Scenario) {
//			cluster := kubetest.NewCluster(s, scheme)
//			web := metav1.ObjectMeta{Namespace: "d", Name: "a"}
//			cluster.Create(&Web{ObjectMeta: web, Spec: WebSpec{Replicas: 2}})
//			cluster.Start(func(m *kubetest.Manager) reconcile.Reconciler {
//				m.For(&Web{})
//				m.Owns(&corev1.Pod{})
//				return &WebReconciler{Client: m.Client}
//			})
//		})
//	}
//
// # What the cluster does
//
// Reads of [Manager].Client come from a cache of the process, which shows changes later, in their order for
// each kind, or loses its watch and lists anew. Reads of [Manager].APIReader and all writes take time. The
// cluster has resource versions and conflicts, UIDs, generations, generated names, a status subresource for
// each kind that has a status, finalizers and deletion timestamps, preconditions, JSON, merge and strategic
// merge patches, and a garbage collector that deletes what none of whose owners exists. Apply knows the
// owners of whole fields, and takes a list for one field.
//
// It has no validation, defaults, conversion between versions, other subresources than status, foreground
// deletion, or quotas. Cluster.OnChange may refuse a write, as an admission webhook does.
//
// # What is compared
//
// Without Scenario.Measure it is all objects but for what differs from run to run by nature: resource
// versions, UIDs, generations, managed fields and times. Objects with generated names are compared without
// their names.
package kubetest
