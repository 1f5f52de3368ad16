// Command kubernetes runs Kubernetes and its libraries on client-go's work queue and on ours, and compares them. Run it
// in its own directory:
//
//	go run . tests          # the tests of all packages that use a work queue, stock and swapped, test by test
//	go run . controlplane   # etcd, kube-apiserver and kube-controller-manager, stock and swapped in turn
//	go run . crash          # controllers on our queue that are killed with SIGKILL and started again
//
// Each has flags for smaller runs (-h). It needs Go and etcd, which install-etcd.sh installs. Kubernetes is an ordinary
// dependency of this module; cmd/swap makes the swapped variant, in files that git ignores.
package main
