package main

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyedqueue/workqueue/worker"
)

// spans writes a span for each call of a handler. It is all that a program needs to trace its workers:
//
//	s := spans[string]{tracer: tracer, queue: "pods"}
//	worker.Options[string]{OnStart: s.start, OnFinish: s.finish}
//
// The handler's context has the span in it, so spans that the handler starts are its children, and finish finds
// it there.
type spans[T comparable] struct {
	tracer trace.Tracer
	queue  string
}

func (s spans[T]) start(ctx context.Context, key T) context.Context {
	ctx, _ = s.tracer.Start(ctx, "handle "+s.queue, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("workqueue.name", s.queue),
		attribute.String("workqueue.key", fmt.Sprint(key)),
		attribute.Int("workqueue.attempt", worker.Attempt(ctx)),
	))
	return ctx
}

func (s spans[T]) finish(ctx context.Context, r worker.Result[T]) {
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(attribute.String("workqueue.next", r.Next.String()))
	if r.Err != nil && r.Next != worker.NextRequeue {
		span.RecordError(r.Err)
		span.SetStatus(codes.Error, r.Err.Error())
	}
	span.End()
}
