module github.com/keyedqueue/workqueue/examples

go 1.26.0

require (
	github.com/fsnotify/fsnotify v1.10.1
	github.com/keyedqueue/workqueue v0.0.0
)

require (
	github.com/go-logr/logr v1.4.4 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3 // indirect
)

replace github.com/keyedqueue/workqueue => ../
