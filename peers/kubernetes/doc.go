// Command kubernetes runs Kubernetes and its libraries on client-go's work queue and on ours, and compares
// them. It needs Go and etcd, which run.sh installs if it may:
//
//	bash peers/kubernetes/run.sh tests          # the tests of all packages that use a work queue, test by test
//	bash peers/kubernetes/run.sh controlplane   # etcd, kube-apiserver and kube-controller-manager, stock and swapped in turn
//	bash peers/kubernetes/run.sh crash          # controllers on our queue, killed with SIGKILL and started again
//	bash peers/kubernetes/run.sh sharding       # replicas that divide their keys, killed, stopped and cut off
//
// Each has flags for smaller runs (-h). README.md has the results. Kubernetes is an ordinary
// dependency of this module. cmd/swap makes the swapped variant, in files that git ignores.
package main
