package analyzer

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Import changes imports of client-go's queue to ours, and reports what must stay.
var Import = &analysis.Analyzer{
	Name: "queueimport",
	Doc: `with -fix, change imports of client-go's queue to this project's where that is enough

The flag -queueimport.migrate turns it on; -fix of the command queuevet does, too. It tries the change by checking
the types of the package with it, and offers it for the files that still compile. What must keep client-go's
import is reported: a function, say, that is passed to a library whose own signatures name client-go's queue.`,
	URL:      url + "#queueimport",
	Run:      runImport,
	Requires: []*analysis.Analyzer{facts},
}

var migrate bool

func init() {
	Import.Flags.BoolVar(&migrate, "migrate", false, "report which imports of client-go's queue can be changed, and which cannot")
}

// migration tries to change the imports of one package.
type migration struct {
	*reporter
	copied *types.Package // client-go's queue under our path
	// clientGo has the files that import client-go's queue, with that import.
	clientGo map[*ast.File]*ast.ImportSpec
	// kept are the reasons why files keep their import.
	kept []keptImport
}

// keptImport is something that needs client-go's queue.
type keptImport struct {
	pos     token.Pos
	message string
}

func runImport(pass *analysis.Pass) (any, error) {
	if !migrate || isQueuePackage(pass.Pkg.Path()) {
		return nil, nil
	}
	m := &migration{reporter: newReporter(pass), clientGo: map[*ast.File]*ast.ImportSpec{}}
	for _, file := range pass.Files {
		for _, spec := range file.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil && path == clientGoPath {
				m.clientGo[file] = spec
			}
		}
	}
	if len(m.clientGo) == 0 || m.testsAreMissing() {
		return nil, nil
	}
	var err error
	if m.copied, err = copyQueue(pass.Pkg); err != nil {
		return nil, err
	}
	change := m.changeable()
	for _, k := range m.kept {
		if !m.ignoredAt(k.pos) {
			pass.Report(analysis.Diagnostic{Pos: k.pos, Message: k.message})
		}
	}
	for _, file := range pass.Files {
		if spec := m.clientGo[file]; change[file] && !m.ignoredAt(spec.Pos()) {
			pass.Report(analysis.Diagnostic{
				Pos: spec.Pos(), End: spec.End(),
				Message: fmt.Sprintf("this file compiles with %s in place of client-go's queue", oursPath),
				SuggestedFixes: []analysis.SuggestedFix{{
					Message:   "import " + oursPath,
					TextEdits: []analysis.TextEdit{{Pos: spec.Path.Pos(), End: spec.Path.End(), NewText: []byte(strconv.Quote(oursPath))}},
				}},
			})
		}
	}
	return nil, nil
}

// ignoredAt reports whether a comment silences findings at pos. Unlike others, these are about test files, too.
func (m *migration) ignoredAt(pos token.Pos) bool {
	f := m.pass.Fset.File(pos)
	return m.ignored[f][f.Line(pos)]
}

// testsAreMissing reports whether the package has tests in its directory that are not part of this pass. Then
// there is another pass that has both; only that one sees whether they fit together.
func (m *migration) testsAreMissing() bool {
	for _, file := range m.pass.Files {
		if isTest(m.pass.Fset.File(file.FileStart)) {
			return false
		}
	}
	dir := filepath.Dir(m.pass.Fset.File(m.pass.Files[0].FileStart).Name())
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "_test.go") && m.samePackage(filepath.Join(dir, e.Name())) {
			return true
		}
	}
	return false
}

// samePackage reports whether the test file belongs to this package, and not to the one that tests it from outside.
func (m *migration) samePackage(file string) bool {
	source, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	clause := "package " + m.pass.Pkg.Name()
	for line := range strings.Lines(string(source)) {
		if line = strings.TrimSpace(line); line == clause || strings.HasPrefix(line, clause+" ") {
			return true
		}
	}
	return false
}

// changeable returns the files whose import can be changed together, and notes why others keep it.
func (m *migration) changeable() map[*ast.File]bool {
	change := map[*ast.File]bool{}
	for file := range m.clientGo {
		change[file] = true
	}
	// With every file changed, what does not fit is due to other packages.
	problems := m.check(change)
	for _, p := range problems {
		m.keep(change, p.pos, p.message)
	}
	m.keepProviders(change)
	m.keepExported(change)
	// What shares types with a file that stays must stay, too.
	for len(change) > 0 {
		if problems = m.check(change); len(problems) == 0 {
			return change
		}
		before := len(change)
		for _, p := range problems {
			delete(change, m.fileOf(p.pos))
		}
		if len(change) == before {
			return nil // What would have to stay cannot be found.
		}
	}
	return change
}

// keepProviders keeps the import where client-go's metrics are set up.
func (m *migration) keepProviders(change map[*ast.File]bool) {
	for file := range m.clientGo {
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.Name == "SetProvider" && inQueuePackage(m.pass.TypesInfo.Uses[id]) {
				m.keep(change, id.Pos(), "this must keep client-go's import: it sets up the metrics of client-go's queues")
			}
			return true
		})
	}
}

// keepExported keeps the import where something exported names client-go's types: other packages may rely on it.
func (m *migration) keepExported(change map[*ast.File]bool) {
	if m.pass.Pkg.Name() == "main" || strings.HasSuffix(m.pass.Pkg.Path(), "_test") {
		return
	}
	scope := m.pass.Pkg.Scope()
	for _, name := range scope.Names() {
		obj := scope.Lookup(name)
		if !obj.Exported() || isTest(m.pass.Fset.File(obj.Pos())) {
			continue
		}
		if pos := exposes(obj); pos.IsValid() {
			m.keep(change, pos, "exported, with client-go's queue in its type: "+
				"change its import together with the packages that use it")
		}
	}
}

func (m *migration) keep(change map[*ast.File]bool, pos token.Pos, message string) {
	file := m.fileOf(pos)
	if m.clientGo[file] == nil {
		return
	}
	delete(change, file)
	for _, k := range m.kept {
		if k.pos == pos {
			return
		}
	}
	m.kept = append(m.kept, keptImport{pos, message})
}

func (m *migration) fileOf(pos token.Pos) *ast.File {
	for _, file := range m.pass.Files {
		if file.FileStart <= pos && pos < file.FileEnd {
			return file
		}
	}
	return nil
}

// exposes returns where obj, its exported fields or its exported methods name client-go's queue.
func exposes(obj types.Object) token.Pos {
	t, ok := obj.(*types.TypeName)
	if !ok {
		if names(obj.Type()) {
			return obj.Pos()
		}
		return token.NoPos
	}
	named, ok := t.Type().(*types.Named)
	if !ok || t.IsAlias() {
		if names(t.Type()) {
			return t.Pos()
		}
		return token.NoPos
	}
	for method := range named.Methods() {
		if method.Exported() && names(method.Type()) {
			return method.Pos()
		}
	}
	s, ok := named.Underlying().(*types.Struct)
	if !ok {
		if names(named.Underlying()) {
			return t.Pos()
		}
		return token.NoPos
	}
	for f := range s.Fields() {
		if f.Exported() && names(f.Type()) {
			return f.Pos()
		}
	}
	return token.NoPos
}

// names reports whether t is written with a type of client-go's queue in it.
func names(t types.Type) bool {
	return strings.Contains(types.TypeString(t, func(p *types.Package) string { return "«" + p.Path() + "»" }), "«"+clientGoPath+"»")
}
