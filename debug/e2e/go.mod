module github.com/keyedqueue/workqueue/debug/e2e

go 1.26.0

replace (
	github.com/keyedqueue/workqueue => ../../
	github.com/keyedqueue/workqueue/debug => ../
	github.com/keyedqueue/workqueue/redisqueue => ../../redisqueue
)

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.22.1
	github.com/keyedqueue/workqueue v0.1.0
	github.com/keyedqueue/workqueue/debug v0.1.0
	github.com/keyedqueue/workqueue/redisqueue v0.1.0
	github.com/redis/go-redis/v9 v9.23.0
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/go-logr/logr v1.2.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/time v0.1.0 // indirect
)
