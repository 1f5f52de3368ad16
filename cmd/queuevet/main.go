// Command queuevet finds mistakes in programs that use a work queue: this project's, client-go's or
// controller-runtime's.
//
//	queuevet ./...
//	go vet -vettool=$(which queuevet) ./...
//
// The README beside this file describes what it reports.
package main

import (
	"os"
	"regexp"
	"slices"

	"github.com/keyedqueue/workqueue/cmd/queuevet/analyzer"
	"golang.org/x/tools/go/analysis/multichecker"
)

func main() {
	// Without this, -fix would find nothing to do: queueimport only speaks up when it is asked to.
	if slices.ContainsFunc(os.Args[1:], regexp.MustCompile(`^--?fix(=true)?$`).MatchString) {
		if err := analyzer.Import.Flags.Set("migrate", "true"); err != nil {
			panic(err)
		}
	}
	multichecker.Main(analyzer.All()...)
}
