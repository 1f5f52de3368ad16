package golangci

import (
	"testing"

	"github.com/golangci/plugin-module-register/register"
)

func TestPlugin(t *testing.T) {
	create, err := register.GetPlugin("queuevet")
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := create(map[string]any{"disable": []string{"queuekey"}})
	if err != nil {
		t.Fatal(err)
	}
	analyzers, err := plugin.BuildAnalyzers()
	if err != nil || len(analyzers) != 5 {
		t.Errorf("BuildAnalyzers() = %v, %v, want all but one", analyzers, err)
	}
	for _, a := range analyzers {
		if a.Name == "queuekey" {
			t.Error("queuekey is disabled, and runs")
		}
	}
	for _, wrong := range []any{map[string]any{"disable": []string{"vet"}}, map[string]any{"unknown": true}} {
		if _, err := create(wrong); err == nil {
			t.Errorf("settings %v are accepted", wrong)
		}
	}
}
