// Package metrics holds a test that compares what Prometheus is told by this module's queues and prom, by
// client-go's queues and Kubernetes' own provider of metrics, and by client-go's queues and prom. It is a
// package of its own because Kubernetes' provider makes itself that of all of a program's queues.
package metrics
