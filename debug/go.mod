module github.com/keyedqueue/workqueue/debug

go 1.25.0

replace github.com/keyedqueue/workqueue => ../

require (
	github.com/keyedqueue/workqueue v0.1.0
	go.uber.org/goleak v1.2.0
	golang.org/x/time v0.1.0
	k8s.io/utils v0.0.0-20210930125809-cb0fa318a74b
)

require github.com/go-logr/logr v1.2.0 // indirect
