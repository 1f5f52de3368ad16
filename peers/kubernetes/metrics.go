package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// insecure is for kube-controller-manager, which signs its certificate itself.
var insecure = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

func get(ctx context.Context, client *http.Client, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		response.Body.Close()
		return nil, fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	return response.Body, nil
}

// answers returns an error unless url answers with status 200.
func answers(ctx context.Context, client *http.Client, url string) error {
	body, err := get(ctx, client, url)
	if err != nil {
		return err
	}
	return body.Close()
}

// families are the metrics of a program by their names.
type families map[string]*dto.MetricFamily

func scrape(ctx context.Context, client *http.Client, url string) (families, error) {
	body, err := get(ctx, client, url+"/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return parseMetrics(body)
}

func parseMetrics(r io.Reader) (families, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(r)
}

// value returns the sum of a counter or gauge over its labels.
func (f families) value(name string) (sum float64) {
	for _, m := range f[name].GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

// A histogram is a distribution of seconds.
type histogram struct {
	count   uint64
	sum     float64
	buckets []bucket // In order of their bounds.
}

type bucket struct {
	bound float64 // Inclusive; the last is +Inf.
	below uint64  // How many observations are not above the bound.
}

// queueLatency returns how long keys waited in the queue of that name, or in all queues if the name is empty.
func (f families) queueLatency(queue string) (h histogram) {
	below := map[float64]uint64{}
	for _, m := range f["workqueue_queue_duration_seconds"].GetMetric() {
		if queue != "" && label(m, "name") != queue {
			continue
		}
		h.count += m.GetHistogram().GetSampleCount()
		h.sum += m.GetHistogram().GetSampleSum()
		for _, b := range m.GetHistogram().GetBucket() {
			below[b.GetUpperBound()] += b.GetCumulativeCount()
		}
	}
	for bound, n := range below {
		h.buckets = append(h.buckets, bucket{bound, n})
	}
	slices.SortFunc(h.buckets, func(a, b bucket) int { return cmp.Compare(a.bound, b.bound) })
	return h
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func (h histogram) mean() float64 { return h.sum / float64(h.count) }

// quantile returns the value that a share q of the observations does not exceed. As PromQL's histogram_quantile, it
// assumes that the observations of a bucket lie evenly in it, and returns the highest finite bound for what is above.
func (h histogram) quantile(q float64) float64 {
	if h.count == 0 {
		return math.NaN()
	}
	rank := q * float64(h.count)
	lower, before := 0.0, uint64(0)
	for _, b := range h.buckets {
		if float64(b.below) >= rank && b.below > before {
			if math.IsInf(b.bound, 1) {
				return lower
			}
			return lower + (b.bound-lower)*(rank-float64(before))/float64(b.below-before)
		}
		lower, before = b.bound, b.below
	}
	return lower
}
