package analyzer_test

import (
	"testing"

	"github.com/keyedqueue/workqueue/cmd/queuevet/analyzer"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
)

func TestAnalyzers(t *testing.T) {
	for _, test := range []struct {
		analyzer *analysis.Analyzer
		packages []string
	}{
		{analyzer.Leak, []string{"leak", "helper"}},
		{analyzer.AfterDone, []string{"afterdone"}},
		{analyzer.Metrics, []string{"metricsbad", "metricsours", "metricsprom", "metricsconfig", "metricsnone", "metricsnamed", "metricslib"}},
	} {
		t.Run(test.analyzer.Name, func(t *testing.T) {
			analysistest.Run(t, analysistest.TestData(), test.analyzer, test.packages...)
		})
	}
}
