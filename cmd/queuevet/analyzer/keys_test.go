package analyzer_test

import (
	"testing"

	"github.com/keyedqueue/workqueue/cmd/queuevet/analyzer"
	"golang.org/x/tools/go/analysis/analysistest"
)

func TestKeys(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), analyzer.Keys, "keysbad", "keysgood")
}
