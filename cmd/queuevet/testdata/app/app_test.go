package app

import (
	"testing"

	"k8s.io/client-go/util/workqueue"
)

func TestNew(t *testing.T) {
	c := newController()
	take := func(workqueue.TypedInterface[string]) {}
	take(c.queue)
}
