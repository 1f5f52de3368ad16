// Package analyzer has the analyzers of queuevet. They check the users of three kinds of queue: this project's,
// k8s.io/client-go/util/workqueue and sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue.
//
// An analyzer prefers silence to a false alarm: where it cannot see what becomes of a key, it reports nothing.
// Tests, and packages that import package testing to help them, are not checked: a test may well take a key and
// drop the queue.
// A comment silences a finding on its own line and on the next:
//
//	//queuevet:ignore the pointers come from a pool, one per object
package analyzer

import (
	"fmt"
	"go/token"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const url = "https://github.com/keyedqueue/workqueue/tree/main/cmd/queuevet"

// All returns every analyzer.
func All() []*analysis.Analyzer {
	return []*analysis.Analyzer{Leak, AfterDone, Forget, Key, Metrics, Import}
}

// Except returns every analyzer whose name is not in names.
func Except(names []string) []*analysis.Analyzer {
	return slices.DeleteFunc(All(), func(a *analysis.Analyzer) bool { return slices.Contains(names, a.Name) })
}

// Validate returns an error if one of names is not the name of an analyzer.
func Validate(names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(All(), func(a *analysis.Analyzer) bool { return a.Name == name }) {
			return fmt.Errorf("queuevet has no analyzer %q", name)
		}
	}
	return nil
}

// reporter reports findings, except in test files and where a comment silences them.
type reporter struct {
	pass *analysis.Pass
	// ignored has the lines that are silenced, by file.
	ignored map[*token.File]map[int]bool
	// helps: the package helps tests, as it imports package testing outside of test files.
	helps bool
}

func newReporter(pass *analysis.Pass) *reporter {
	r := &reporter{pass: pass, ignored: map[*token.File]map[int]bool{}}
	for _, f := range pass.Files {
		file, lines := pass.Fset.File(f.FileStart), map[int]bool{}
		r.ignored[file] = lines
		for _, spec := range f.Imports {
			r.helps = r.helps || spec.Path.Value == `"testing"` && !isTest(file)
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "//queuevet:ignore") {
					line := pass.Fset.Position(c.Pos()).Line
					lines[line], lines[line+1] = true, true
				}
			}
		}
	}
	return r
}

// wanted reports whether a finding at pos would be reported.
func (r *reporter) wanted(pos token.Pos) bool {
	f := r.pass.Fset.File(pos)
	return f != nil && !r.helps && !isTest(f) && !r.ignored[f][f.Line(pos)]
}

func (r *reporter) report(d analysis.Diagnostic) {
	if r.wanted(d.Pos) {
		r.pass.Report(d)
	}
}

func (r *reporter) reportf(pos token.Pos, format string, args ...any) {
	r.report(analysis.Diagnostic{Pos: pos, Message: fmt.Sprintf(format, args...)})
}

func (r *reporter) line(pos token.Pos) int { return r.pass.Fset.Position(pos).Line }

func isTest(f *token.File) bool { return strings.HasSuffix(f.Name(), "_test.go") }
