// Package handler is for controller-runtime, whose types name client-go's queue.
package handler

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

func funcs() handler.Funcs { return handler.Funcs{CreateFunc: create} }

func create(ctx context.Context, object string, q workqueue.TypedRateLimitingInterface[string]) {
	q.Add(object)
}

var _ = funcs
