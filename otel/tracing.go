package otel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// TracingOptions are the options of [Tracing] and [TracingFunc].
type TracingOptions struct {
	// Name is the name of the queue or the pool. It is the attribute workqueue.name, and the spans are called
	// "handle NAME".
	Name string
	// Keys also writes the keys, as fmt.Sprint has them, and the reasons of their causes into the spans: the
	// attributes workqueue.key and workqueue.reason. They have as many values as there are keys, which some
	// backends do not like.
	Keys bool
}

// Tracing returns handler with a span, of the kind consumer, for each call. The span is in the handler's
// context:
//
//	worker.Run(ctx, queue, otel.Tracing(tracer, otel.TracingOptions{Name: "pods"}, handle), options)
//
// The span has the attributes workqueue.attempt, see [worker.Call], and workqueue.next, which is
// [worker.NextOf] the handler's error. It is linked to the span of each cause that has one, see [Cause]; a
// TraceParent that cannot be parsed is left out. An error that is a failure, or a panic with its stack, is
// recorded and makes the span one with an error. A handler that wants its key again, or that was interrupted
// because its key was added again, has not failed.
func Tracing[T comparable](tracer trace.Tracer, options TracingOptions,
	handler worker.Handler[T]) worker.Handler[T] {
	traced := TracingFunc(tracer, options, func(ctx context.Context, key T) (struct{}, error) {
		return struct{}{}, handler(ctx, key)
	})
	return func(ctx context.Context, key T) error {
		_, err := traced(ctx, key)
		return err
	}
}

// TracingFunc returns f with the spans of [Tracing]. It is for a reconciler of controller-runtime, inside the
// one of package controllerruntime's WrapReconciler:
//
//	reconcile.Func(otel.TracingFunc(tracer, otel.TracingOptions{Name: "pods"}, r.Reconcile))
//
// (The span does not know what f's result asks for.)
func TracingFunc[T comparable, R any](tracer trace.Tracer, options TracingOptions,
	f func(context.Context, T) (R, error)) func(context.Context, T) (R, error) {
	name := attribute.String("workqueue.name", options.Name)
	return func(ctx context.Context, key T) (result R, err error) {
		attributes := []attribute.KeyValue{name, attribute.Int("workqueue.attempt", worker.CallOf(ctx).Attempt())}
		if options.Keys {
			attributes = append(attributes, attribute.String("workqueue.key", fmt.Sprint(key)))
		}
		ctx, span := tracer.Start(ctx, "handle "+options.Name, trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(attributes...), trace.WithLinks(links(worker.CallOf(ctx).Causes(), options.Keys)...))
		returned := false
		defer func() {
			var v any
			if !returned {
				failure := worker.ErrGoexit
				if v = recover(); v != nil {
					failure = fmt.Errorf("panic: %v", v)
				}
				record(span, worker.NextRetry, failure, trace.WithStackTrace(true))
			}
			span.End() // Not deferred itself: the SDK would record the panic once more.
			if v != nil {
				panic(v) // It panics again with its own stack.
			}
		}()
		result, err = f(ctx, key)
		record(span, worker.NextOf(ctx, err), err)
		returned = true
		return result, err
	}
}

func links(causes workqueue.Causes, reasons bool) []trace.Link {
	var all []trace.Link
	for _, c := range causes.Last {
		carrier := propagation.MapCarrier{"traceparent": c.TraceParent}
		link := trace.LinkFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
		if !link.SpanContext.IsValid() {
			continue
		}
		if reasons && c.Reason != "" {
			link.Attributes = []attribute.KeyValue{attribute.String("workqueue.reason", c.Reason)}
		}
		all = append(all, link)
	}
	return all
}

// record notes what comes next and, if a call has failed, why.
func record(span trace.Span, next worker.Next, err error, options ...trace.EventOption) {
	span.SetAttributes(attribute.String("workqueue.next", next.String()))
	if next == worker.NextRetry || next == worker.NextGiveUp {
		span.RecordError(err, options...)
		span.SetStatus(codes.Error, err.Error())
	}
}

// Cause returns a cause with that reason and, as its TraceParent, ctx's span, if there is one. The span of
// the handler that gets the key is then linked to it:
//
//	queue.AddCause(key, otel.Cause(ctx, "the order was paid"))
func Cause(ctx context.Context, reason string) workqueue.Cause {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return workqueue.Cause{Reason: reason, TraceParent: carrier.Get("traceparent")}
}
