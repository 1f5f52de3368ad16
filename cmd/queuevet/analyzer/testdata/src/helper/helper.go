// Package helper helps tests.
package helper

import (
	"testing"

	"k8s.io/client-go/util/workqueue"
)

func WantNext(t *testing.T, queue workqueue.TypedInterface[string], want string) {
	if key, _ := queue.Get(); key != want {
		t.Errorf("Get() = %q, want %q", key, want)
	}
}
