// Package golangci registers queuevet with golangci-lint's module plugin system, under the name queuevet.
package golangci

import (
	"github.com/golangci/plugin-module-register/register"
	"github.com/keyedqueue/workqueue/cmd/queuevet/analyzer"
	"golang.org/x/tools/go/analysis"
)

func init() { register.Plugin("queuevet", newPlugin) }

// settings are what linters.settings.custom.queuevet.settings may hold.
type settings struct {
	// Disable lists analyzers, by name, that must not run.
	Disable []string `json:"disable"`
	// Migrate is the flag -queueimport.migrate.
	Migrate bool `json:"migrate"`
}

type plugin struct{ settings settings }

func newPlugin(conf any) (register.LinterPlugin, error) {
	s, err := register.DecodeSettings[settings](conf)
	if err != nil {
		return nil, err
	}
	if err := analyzer.Validate(s.Disable); err != nil {
		return nil, err
	}
	return plugin{s}, nil
}

func (p plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	if p.settings.Migrate {
		if err := analyzer.Import.Flags.Set("migrate", "true"); err != nil {
			return nil, err
		}
	}
	return analyzer.Except(p.settings.Disable), nil
}

func (p plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
