// Package metrics compares what Prometheus scrapes from this module's queues with prom, from client-go's
// queues with Kubernetes' own provider of metrics, and from client-go's queues with prom. It is a package of
// its own because Kubernetes' provider serves all queues of a program that imports it.
package metrics
