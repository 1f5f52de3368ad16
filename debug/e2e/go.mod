module github.com/keyedqueue/workqueue/debug/e2e

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.22.1
	github.com/keyedqueue/workqueue v0.1.0
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	golang.org/x/time v0.16.0 // indirect
)

replace github.com/keyedqueue/workqueue => ../../
