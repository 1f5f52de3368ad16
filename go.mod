module github.com/keyedqueue/workqueue

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.0.0
	github.com/go-logr/logr v1.2.0
	github.com/prometheus/client_golang v1.16.0
	github.com/prometheus/client_model v0.5.0
	github.com/prometheus/common v0.42.0
	go.uber.org/goleak v1.2.0
	golang.org/x/time v0.1.0
	google.golang.org/protobuf v1.33.0
	k8s.io/utils v0.0.0-20210930125809-cb0fa318a74b
	pgregory.net/rapid v1.1.0
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/matttproud/golang_protobuf_extensions v1.0.4 // indirect
	github.com/prometheus/procfs v0.10.1 // indirect
	golang.org/x/sys v0.44.0 // indirect
)
