package otel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/otel"
	"github.com/keyedqueue/workqueue/worker"
)

// newTracer returns a tracer, and what reads its spans.
func newTracer(t *testing.T) (trace.Tracer, *tracetest.InMemoryExporter) {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return provider.Tracer("test"), exporter
}

// describe returns a line about a span.
func describe(s tracetest.SpanStub) string {
	text := []string{s.Name}
	for _, a := range s.Attributes {
		text = append(text, fmt.Sprintf("%s=%s", strings.TrimPrefix(string(a.Key), "workqueue."), a.Value.String()))
	}
	if s.Status.Code == codes.Error {
		text = append(text, s.Status.Description)
	}
	for _, e := range s.Events {
		text = append(text, e.Name)
		for _, a := range e.Attributes {
			if a.Key == "exception.stacktrace" {
				text = append(text, "with a stack")
			}
		}
	}
	return strings.Join(text, " ")
}

// Each call has a span, in the handler's context. Only failures are errors.
func TestTracing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer, exporter := newTracer(t)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](
			time.Second, time.Hour))
		began := time.Now()
		handle := func(ctx context.Context, key string) error {
			if !trace.SpanFromContext(ctx).IsRecording() {
				t.Error("no span in the handler's context")
			}
			time.Sleep(time.Second)
			switch {
			case key == "ends":
				return worker.Terminal(errors.New("never"))
			case worker.CallOf(ctx).Attempt() > 1 || time.Since(began) > time.Minute:
			case key == "fails":
				return errors.New("not yet")
			case key == "panics":
				panic("oh")
			case key == "exits":
				runtime.Goexit()
			case key == "later":
				return worker.RequeueAfter(time.Hour)
			case key == "interrupted" && time.Since(began) < 2*time.Second:
				until := worker.CallOf(ctx).UntilAdded()
				queue.Add(key)
				<-until.Done()
				return fmt.Errorf("while it waited: %w", until.Err())
			}
			return nil
		}
		keys := []string{"ends", "exits", "fails", "interrupted", "later", "panics"}
		for _, key := range keys {
			queue.Add(key)
		}
		var panics []any
		pool := worker.New(queue, otel.Tracing(tracer, otel.TracingOptions{Name: "q", Keys: true}, handle),
			worker.Options[string]{
				Workers: len(keys),
				OnFinish: func(_ context.Context, r worker.Result[string]) {
					var p *worker.PanicError
					if errors.As(r.Err, &p) {
						if !strings.Contains(string(p.Stack), "TestTracing") {
							t.Errorf("the panic has lost its stack: %s", p.Stack)
						}
						panics = append(panics, p.Value)
					}
				},
			})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- pool.Run(ctx) }()
		time.Sleep(2 * time.Hour)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range exporter.GetSpans() {
			if s.SpanKind != trace.SpanKindConsumer || s.EndTime.Sub(s.StartTime) != time.Second {
				t.Errorf("%s: a span of kind %v that took %v", s.Name, s.SpanKind, s.EndTime.Sub(s.StartTime))
			}
			got = append(got, describe(s))
		}
		slices.Sort(got)
		want := []string{
			"handle q name=q attempt=1 key=ends next=give_up never exception",
			"handle q name=q attempt=1 key=exits next=retry worker: runtime.Goexit was called exception with a stack",
			"handle q name=q attempt=1 key=fails next=retry not yet exception",
			"handle q name=q attempt=1 key=interrupted next=forget",
			"handle q name=q attempt=1 key=interrupted next=interrupted",
			"handle q name=q attempt=1 key=later next=forget",
			"handle q name=q attempt=1 key=later next=requeue",
			"handle q name=q attempt=1 key=panics next=retry panic: oh exception with a stack",
			"handle q name=q attempt=2 key=exits next=forget",
			"handle q name=q attempt=2 key=fails next=forget",
			"handle q name=q attempt=2 key=panics next=forget",
		}
		if !slices.Equal(got, want) {
			t.Errorf("spans:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if !slices.Equal(panics, []any{"oh"}) {
			t.Errorf("the pool has seen the panics %v", panics)
		}
	})
}

// A span is linked to the spans of its causes. Keys and reasons are in it only if asked for.
func TestTracingLinks(t *testing.T) {
	for _, keys := range []bool{false, true} {
		t.Run(fmt.Sprint("keys=", keys), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tracer, exporter := newTracer(t)
				queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
				adder := queue.(workqueue.Extended[string])
				var want []trace.SpanContext
				for i := range 2 {
					ctx, span := tracer.Start(t.Context(), "an event")
					adder.AddCause("a", otel.Cause(ctx, fmt.Sprint("event ", i)))
					span.End()
					want = append(want, span.SpanContext().WithRemote(true))
				}
				adder.AddCause("a", otel.Cause(t.Context(), "no span"))
				adder.AddCause("a", workqueue.Cause{TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"})
				adder.AddCause("a",
					workqueue.Cause{TraceParent: "00-00000000000000000000000000000000-00f067aa0ba902b7-01"})
				adder.AddCause("a", workqueue.Cause{TraceParent: "nonsense"})
				exporter.Reset()
				handle := otel.Tracing(tracer, otel.TracingOptions{Name: "q", Keys: keys},
					func(context.Context, string) error { return nil })
				key, _ := queue.Get()
				entry := worker.NewTracker(queue, worker.Options[string]{}).Begin(t.Context(), key)
				entry.End(handle(entry.Context(), key))
				queue.Done(key)
				queue.ShutDown()
				spans := exporter.GetSpans()
				if len(spans) != 1 || len(spans[0].Links) != len(want) {
					t.Fatalf("%d spans, want one with %d links: %+v", len(spans), len(want), spans)
				}
				for i, l := range spans[0].Links {
					if !l.SpanContext.Equal(want[i]) {
						t.Errorf("link %d is to %v, want %v", i, l.SpanContext, want[i])
					}
					var reason []attribute.KeyValue
					if keys {
						reason = []attribute.KeyValue{attribute.String("workqueue.reason", fmt.Sprint("event ", i))}
					}
					if !slices.Equal(l.Attributes, reason) {
						t.Errorf("link %d has the attributes %v, want %v", i, l.Attributes, reason)
					}
				}
				text := "handle q name=q attempt=1 next=forget"
				if keys {
					text = "handle q name=q attempt=1 key=a next=forget"
				}
				if got := describe(spans[0]); got != text {
					t.Errorf("%s, want %s", got, text)
				}
			})
		})
	}
}

// A function with a result is traced like a handler, also outside a pool.
func TestTracingFunc(t *testing.T) {
	tracer, exporter := newTracer(t)
	f := otel.TracingFunc(tracer, otel.TracingOptions{Name: "q"},
		func(_ context.Context, n int) (string, error) {
			if n == 2 {
				return "", errors.New("no")
			}
			return fmt.Sprint(n), nil
		})
	if s, err := f(t.Context(), 1); s != "1" || err != nil {
		t.Errorf("%q, %v", s, err)
	}
	if _, err := f(t.Context(), 2); err == nil {
		t.Error("no error")
	}
	var got []string
	for _, s := range exporter.GetSpans() {
		got = append(got, describe(s))
	}
	if want := []string{"handle q name=q attempt=0 next=forget",
		"handle q name=q attempt=0 next=retry no exception"}; !slices.Equal(got, want) {
		t.Errorf("spans %q, want %q", got, want)
	}
}
