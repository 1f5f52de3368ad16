// Package handler has as much of controller-runtime's API as the tests need.
package handler

import (
	"context"

	"k8s.io/client-go/util/workqueue"
)

type EventHandler interface {
	Create(ctx context.Context, object string, q workqueue.TypedRateLimitingInterface[string])
}

type Funcs struct {
	CreateFunc func(ctx context.Context, object string, q workqueue.TypedRateLimitingInterface[string])
}

// Fill takes any queue of strings, by its interface.
func Fill(q workqueue.TypedRateLimitingInterface[string]) {}
