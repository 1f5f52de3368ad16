// Command tracing handles a few keys and prints the OpenTelemetry spans of their handlers, which an
// exporter of the SDK has kept in memory. A real program has another exporter and the same spans.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/keyedqueue/workqueue"
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
		queue.Add(key)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cook := func(ctx context.Context, key string) error {
		_, span := tracer.Start(ctx, "cook "+key)
		defer span.End()
		switch {
		case key == "stone":
			return worker.Terminal(errors.New("stays hard"))
		case key == "soup" && worker.Attempt(ctx) == 1:
			return errors.New("not hot yet")
		case key == "soup":
			cancel() // The last one.
		}
		return nil
	}
	s := spans[string]{tracer: tracer, queue: "kitchen"}
	err := worker.Run(ctx, queue, cook, worker.Options[string]{OnStart: s.start, OnFinish: s.finish})
	if err != nil {
		return err
	}
	// Get them before Shutdown, which empties the exporter.
	printSpans(out, exporter.GetSpans())
	return provider.Shutdown(context.WithoutCancel(ctx))
}

// printSpans prints the handlers' spans with their children, in the order in which they ended.
func printSpans(out io.Writer, all tracetest.SpanStubs) {
	for _, span := range all {
		if span.Parent.IsValid() {
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
		for _, child := range all {
			if child.Parent.SpanID() == span.SpanContext.SpanID() {
				fmt.Fprintf(out, "  %s\n", child.Name)
			}
		}
	}
}
