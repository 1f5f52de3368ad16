package analyzer_test

import (
	"testing"

	"github.com/keyedqueue/workqueue/cmd/queuevet/analyzer"
	"golang.org/x/tools/go/analysis/analysistest"
)

func TestMetrics(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), analyzer.Metrics,
		"metricsbad", "metricsours", "metricsprom", "metricsconfig", "metricsnone", "metricsnamed", "metricslib",
		"metricscontroller")
}
