package analyzer_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/keyedqueue/workqueue/cmd/queuevet/analyzer"
)

func TestKeys(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), analyzer.Keys, "keysbad", "keysgood")
}

func TestMetrics(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), analyzer.Metrics,
		"metricsbad", "metricsours", "metricsprom", "metricsconfig", "metricsnone", "metricsnamed", "metricslib",
		"metricscontroller")
}
