module github.com/keyedqueue/workqueue

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/go-logr/logr v1.4.4
	go.uber.org/goleak v1.3.0
	golang.org/x/time v0.16.0
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3
	pgregory.net/rapid v1.3.0
)
