module github.com/keyedqueue/workqueue/redisqueue

go 1.25.0

replace github.com/keyedqueue/workqueue => ../

require (
	github.com/keyedqueue/workqueue v0.1.0
	github.com/prometheus/client_golang v1.16.0
	github.com/redis/go-redis/v9 v9.5.5
)

require (
	github.com/anishathalye/porcupine v1.0.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/go-logr/logr v1.2.0 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/matttproud/golang_protobuf_extensions v1.0.4 // indirect
	github.com/prometheus/client_model v0.5.0 // indirect
	github.com/prometheus/common v0.42.0 // indirect
	github.com/prometheus/procfs v0.10.1 // indirect
	go.uber.org/goleak v1.2.0 // indirect
	golang.org/x/sys v0.44.0 // indirect
	golang.org/x/time v0.1.0 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
	k8s.io/utils v0.0.0-20210930125809-cb0fa318a74b // indirect
	pgregory.net/rapid v1.1.0 // indirect
)
