// Package analyzer has the analyzers of queuevet. They check programs that use a queue of this project, of
// k8s.io/client-go/util/workqueue or of sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue.
//
// An analyzer that is in doubt is silent. Tests, and packages that import package testing, are not checked: a test may
// take a key and drop the queue. A comment silences a finding on its own line and on the next:
//
//	//queuevet:ignore the process ends here
package analyzer

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const url = "https://github.com/keyedqueue/workqueue/tree/main/cmd/queuevet"

// All returns every analyzer.
func All() []*analysis.Analyzer { return []*analysis.Analyzer{Leak, AfterDone, Metrics} }

// checked returns the files of the package that are checked.
func checked(pass *analysis.Pass) (files []*ast.File) {
	for _, file := range pass.Files {
		if strings.HasSuffix(pass.Fset.Position(file.FileStart).Filename, "_test.go") {
			continue
		}
		for _, spec := range file.Imports {
			if spec.Path.Value == `"testing"` {
				return nil
			}
		}
		files = append(files, file)
	}
	return files
}

// report reports a finding, unless a comment silences it.
func report(pass *analysis.Pass, pos token.Pos, format string, args ...any) {
	at := pass.Fset.Position(pos)
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				p := pass.Fset.Position(c.Pos())
				near := p.Filename == at.Filename && (p.Line == at.Line || p.Line+1 == at.Line)
				if near && strings.HasPrefix(c.Text, "//queuevet:ignore") {
					return
				}
			}
		}
	}
	pass.Report(analysis.Diagnostic{Pos: pos, Message: fmt.Sprintf(format, args...)})
}
