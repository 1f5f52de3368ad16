package main

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/examples/internal/readme"
	"github.com/keyedqueue/workqueue/worker"
)

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if want := readme.Output(t, "go run ./examples/tracing"); out.String() != want {
			t.Errorf("printed:\n%s\nREADME.md shows:\n%s", out.String(), want)
		}
	})
}

// TestSpans looks at the spans themselves: their times, parents and errors, with handlers that end in
// every way and keys that are added while they are handled, by several workers.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exporter := tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		tracer := provider.Tracer("test")
		queue := workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour))
		keys := []string{"fine", "later", "panics", "exits", "again"}
		for _, key := range keys {
			queue.Add(key)
		}
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		var mu sync.Mutex
		calls := make(map[string]int)
		start := time.Now()
		s := spans[string]{tracer: tracer, queue: "q"}
		go func() {
			result <- worker.Run(ctx, queue, func(ctx context.Context, key string) error {
				if !trace.SpanFromContext(ctx).IsRecording() {
					t.Error("no span in the handler's context")
				}
				mu.Lock()
				calls[key]++
				first := calls[key] == 1
				mu.Unlock()
				time.Sleep(time.Second)
				switch {
				case !first:
				case key == "later":
					return worker.RequeueAfter(time.Minute)
				case key == "panics":
					panic("oh")
				case key == "exits":
					runtime.Goexit()
				case key == "again":
					queue.Add(key)
				}
				return nil
			}, worker.Options[string]{Workers: 5, OnStart: s.start, OnFinish: s.finish})
		}()
		time.Sleep(time.Hour)
		cancel()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, span := range exporter.GetSpans() {
			text := []string{span.StartTime.Sub(start).String(), span.EndTime.Sub(span.StartTime).String()}
			for _, a := range span.Attributes {
				if a.Key != attribute.Key("workqueue.name") {
					text = append(text, a.Value.String())
				}
			}
			if span.SpanKind != trace.SpanKindConsumer || span.Name != "handle q" {
				t.Errorf("%s, kind %v", span.Name, span.SpanKind)
			}
			if span.Status.Code == codes.Error {
				text = append(text, span.Status.Description, span.Events[0].Name)
			}
			got = append(got, strings.Join(text, " "))
		}
		slices.Sort(got)
		want := []string{
			"0s 1s again 1 forget",
			"0s 1s exits 1 retry worker: runtime.Goexit was called exception",
			"0s 1s fine 1 forget",
			"0s 1s later 1 requeue",
			"0s 1s panics 1 retry panic: oh exception",
			"1m1s 1s later 1 forget",
			"1s 1s again 1 forget",
			"2s 1s exits 2 forget",
			"2s 1s panics 2 forget",
		}
		if !slices.Equal(got, want) {
			t.Errorf("spans:\n%s", strings.Join(got, "\n"))
		}
		if err := provider.Shutdown(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
