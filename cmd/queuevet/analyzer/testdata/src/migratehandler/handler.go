package migratehandler

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

type events struct{}

var _ handler.EventHandler = events{}

func (events) Create(ctx context.Context, object string, q workqueue.TypedRateLimitingInterface[string]) { // want `this signature must keep client-go's import: it is used in line 12`
	q.Add(object)
}

func funcs() handler.Funcs {
	return handler.Funcs{
		CreateFunc: enqueue,
	}
}

func enqueue(ctx context.Context, object string, q workqueue.TypedRateLimitingInterface[string]) { // want `this signature must keep client-go's import: it is used in line 20`
	q.Add(object)
}

func literal() handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, object string, q workqueue.TypedRateLimitingInterface[string]) { // want `this signature must keep client-go's import: it is used in line 30`
			q.Add(object)
		},
	}
}

func pointer(c struct {
	queue *workqueue.Typed[string]
}) {
}
