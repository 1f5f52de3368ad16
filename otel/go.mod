module github.com/keyedqueue/workqueue/otel

go 1.25.0

replace github.com/keyedqueue/workqueue => ../

require (
	github.com/keyedqueue/workqueue v0.1.0
	github.com/prometheus/otlptranslator v0.0.2
	go.opentelemetry.io/otel v1.44.0
	go.opentelemetry.io/otel/metric v1.44.0
	go.opentelemetry.io/otel/sdk v1.44.0
	go.opentelemetry.io/otel/sdk/metric v1.44.0
	go.opentelemetry.io/otel/trace v1.44.0
	k8s.io/utils v0.0.0-20210930125809-cb0fa318a74b
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/grafana/regexp v0.0.0-20240518133315-a468a5bfb3bc // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	golang.org/x/sys v0.45.0 // indirect
	golang.org/x/time v0.1.0 // indirect
)
