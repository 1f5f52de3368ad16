package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"

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

// latency is how long keys waited in all queues.
type latency struct {
	keys uint64
	mean float64 // Seconds.
}

func (f families) latency() (l latency) {
	sum := 0.0
	for _, m := range f["workqueue_queue_duration_seconds"].GetMetric() {
		l.keys += m.GetHistogram().GetSampleCount()
		sum += m.GetHistogram().GetSampleSum()
	}
	l.mean = sum / float64(l.keys)
	return l
}
