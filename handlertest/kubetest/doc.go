// Package kubetest tests a reconciler of controller-runtime against what production does to it: caches
// lag, the process crashes, calls fail, somebody deletes an object at the worst moment. It is package
// [github.com/keyedqueue/workqueue/handlertest] with a cluster in memory as its world.
//
//	func TestWebs(t *testing.T) {
//		kubetest.Converges(t, func(s *kubetest.Scenario) {
//			cluster := kubetest.NewCluster(s, scheme)
//			web := metav1.ObjectMeta{Namespace: "d", Name: "a"}
//			cluster.Create(&Web{ObjectMeta: web, Spec: WebSpec{Replicas: 2}})
//			cluster.Start(func(m *kubetest.Manager) error {
//				return (&WebReconciler{Client: m.GetClient()}).SetupWithManager(m)
//			})
//		})
//	}
//
// # What the cluster does
//
// Reads of the manager's client come from a cache of the process, which shows changes later, in their order
// for each kind, or loses its watch and lists anew. A list has no order. All writes take time, and so do
// reads of GetAPIReader, of unstructured objects, and of what [Cluster].Cache says.
//
// The cluster has resource versions and conflicts, UIDs, generations, generated names, the checks of
// metadata, dry runs, pages of lists, preconditions, finalizers and deletions in the background, in the
// foreground and with orphans, a garbage collector, a status subresource for each kind that has a status,
// evictions, and JSON, merge and strategic merge patches. Who manages which field is decided by the API
// server's own code: Apply merges, and conflicts, as it does there. Of kinds that are not Kubernetes' own it
// knows no schema: each list is one value, but for finalizers, owner references and the
// conditions of a status.
//
// It has no validation but that of metadata, no defaults but those of Cluster.Default, no conversion between
// versions, no other subresources, and no quotas. A pod is gone at once, without a grace period. The
// garbage collector reacts as what Scenario.Others declares does, 5 ms after a change or later; of
// objects that own each other, a deletion in the foreground never ends.
// Cluster.OnChange may refuse a write, as an admission webhook does.
//
// # What is compared
//
// Without Scenario.Measure it is all objects but for what differs from run to run by nature: resource
// versions, UIDs, generations, managed fields, and values that are times. Objects with generated names are
// compared without their names.
package kubetest
