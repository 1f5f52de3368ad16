package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyedqueue/workqueue/worker"
)

// spans writes a span for each call of a handler. It is all that a program needs to trace its workers:
//
//	s := &spans[string]{tracer: tracer, queue: "pods"}
//	worker.Options[string]{OnStart: s.start, OnFinish: s.finish}
//
// The handler's context has the span in it, so spans that the handler starts are its children. OnFinish
// gets no context, but a key, and that is enough: a key has one call at a time.
type spans[T comparable] struct {
	tracer trace.Tracer
	queue  string
	open   sync.Map // T to trace.Span
}

func (s *spans[T]) start(ctx context.Context, key T) context.Context {
	ctx, span := s.tracer.Start(ctx, "handle "+s.queue, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("workqueue.name", s.queue),
		attribute.String("workqueue.key", fmt.Sprint(key)),
		attribute.Int("workqueue.attempt", worker.Attempt(ctx)),
	))
	s.open.Store(key, span)
	return ctx
}

func (s *spans[T]) finish(key T, _ time.Duration, err error, next worker.Next) {
	open, ok := s.open.LoadAndDelete(key)
	if !ok {
		return
	}
	span := open.(trace.Span)
	span.SetAttributes(attribute.String("workqueue.next", next.String()))
	if err != nil && next != worker.NextRequeue {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
