package prom_test

import (
	"bufio"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/keyedqueue/workqueue/prom"
)

// The media types of the formats, which Prometheus asks for.
const (
	textFormat     = "text/plain"
	protobufFormat = "application/vnd.google.protobuf"
)

// accept is the header of a request that asks for a format.
func accept(format string) string {
	if format == protobufFormat {
		return format + ";proto=io.prometheus.client.MetricFamily;encoding=delimited"
	}
	return format + ";version=0.0.4"
}

// scrape gets and parses /metrics in that format, as Prometheus does.
func scrape(t *testing.T, b *bench, format string) []*dto.MetricFamily {
	t.Helper()
	server := httptest.NewServer(promhttp.HandlerFor(b, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept(format))
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil || response.StatusCode != http.StatusOK || got != format {
		t.Fatalf("%s, format %q, %v", response.Status, got, err)
	}
	var families []*dto.MetricFamily
	decoder := expfmt.NewDecoder(bufio.NewReader(response.Body), expfmt.ResponseFormat(response.Header))
	for {
		var f dto.MetricFamily
		if err := decoder.Decode(&f); err == io.EOF {
			return families
		} else if err != nil {
			t.Fatal(err)
		}
		families = append(families, &f)
	}
}

// What is served over HTTP can be parsed, in the text format with its classic buckets and as protobuf with
// both kinds, and says what the queue has seen.
func TestHTTP(t *testing.T) {
	b := newBench(prom.Options{NativeHistogramBucketFactor: 1.1})
	q := b.queue("q")
	defer q.ShutDown()
	for range 3 {
		q.Add("a")
		b.clock.Step(time.Second)
		process(t, q, 1)
	}
	for _, format := range []string{textFormat, protobufFormat} {
		t.Run(format, func(t *testing.T) {
			families := scrape(t, b, format)
			types := map[dto.MetricType]int{}
			for _, f := range families {
				types[f.GetType()]++
			}
			if types[dto.MetricType_GAUGE] != 5 || types[dto.MetricType_COUNTER] != 4 || types[dto.MetricType_HISTOGRAM] != 2 {
				t.Errorf("types %v", types)
			}
			if adds := find(families, "adds_total", "q").GetCounter().GetValue(); adds != 3 {
				t.Errorf("adds = %v, want 3", adds)
			}
			h := find(families, "queue_duration_seconds", "q").GetHistogram()
			if h.GetSampleCount() != 3 || h.GetSampleSum() != 3 || len(h.Bucket) < 10 {
				t.Errorf("latency = %v", h)
			}
			wantBuckets(t, h, 1, 0, 3)
			if format == protobufFormat && (h.GetSchema() != 3 || len(h.PositiveSpan) != 1 ||
				h.PositiveSpan[0].GetOffset() != 0 || len(h.PositiveDelta) != 1 || h.PositiveDelta[0] != 3) {
				t.Errorf("native buckets %v, want 3 in that up to 1", h)
			}
		})
	}
}
