// Command tracing handles a few keys and prints the OpenTelemetry spans of their handlers, which an
// exporter of the SDK has kept in memory. A real program has another exporter and the same otel.Tracing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
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

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	tracer := provider.Tracer("example")

	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](10*time.Millisecond, time.Second))
	for _, key := range []string{"bread", "soup", "stone"} {
		order(ctx, tracer, queue, key)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cook := func(ctx context.Context, key string) error {
		_, span := tracer.Start(ctx, "cook "+key)
		defer span.End()
		switch {
		case key == "stone":
			return worker.Terminal(errors.New("stays hard"))
		case key == "soup" && worker.CallOf(ctx).Attempt() == 1:
			return errors.New("not hot yet")
		case key == "soup":
			cancel() // The last one.
		}
		return nil
	}
	handler := otel.Tracing(tracer, otel.TracingOptions{Name: "kitchen", Keys: true}, cook)
	// The spans say it all.
	err := worker.Run(ctx, queue, handler, worker.Options[string]{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	// Get them before Shutdown, which empties the exporter.
	printSpans(out, exporter.GetSpans())
	return provider.Shutdown(context.WithoutCancel(ctx))
}

// order adds a key, and says in which span.
func order(ctx context.Context, tracer trace.Tracer, queue workqueue.TypedRateLimitingInterface[string],
	key string) {
	ctx, span := tracer.Start(ctx, "order "+key)
	defer span.End()
	workqueue.AddCause(queue, key, otel.Cause(ctx, "a guest wants "+key))
}

// printSpans prints the handlers' spans, with the spans that they are linked to and their children, in the
// order in which they ended.
func printSpans(out io.Writer, all tracetest.SpanStubs) {
	for _, span := range all {
		if span.SpanKind != trace.SpanKindConsumer {
			continue
		}
		fmt.Fprintf(out, "%s:", span.Name)
		for _, a := range span.Attributes {
			if a.Key != attribute.Key("workqueue.name") {
				fmt.Fprintf(out, " %s=%s", a.Key, a.Value.String())
			}
		}
		if span.Status.Code == codes.Error {
			fmt.Fprintf(out, " error=%q", span.Status.Description)
		}
		fmt.Fprintln(out)
		for _, link := range span.Links {
			for _, other := range all {
				if other.SpanContext.SpanID() == link.SpanContext.SpanID() {
					fmt.Fprintf(out, "  because of %q: %s\n", other.Name, link.Attributes[0].Value.String())
				}
			}
		}
		for _, child := range all {
			if child.Parent.SpanID() == span.SpanContext.SpanID() {
				fmt.Fprintf(out, "  %s\n", child.Name)
			}
		}
	}
}
