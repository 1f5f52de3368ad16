package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// providerNote says which packages set client-go's provider of metrics, or is empty. Swapped, they see the
// queues; a program whose imports are changed needs the queue's own provider. (cmd/queuevet finds a program
// that lacks it.)
func (p *program) providerNote() (string, error) {
	out, err := p.swapped().run("list", "-e", "-deps", "-f",
		`{{range .Imports}}{{if eq . "`+workqueuePath+`"}}{{range $.GoFiles}}{{$.ImportPath}}	{{$.Dir}}	{{.}}
{{end}}{{end}}{{end}}`, "./...")
	if err != nil {
		return "", err
	}
	var setters []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 || len(setters) > 0 && setters[len(setters)-1] == fields[0] {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(fields[1], fields[2]), nil,
			parser.SkipObjectResolution)
		if err == nil && setsProvider(file) { // A file that is no Go is for the compiler to report.
			setters = append(setters, fields[0])
		}
	}
	if len(setters) == 0 {
		return "", nil
	}
	return fmt.Sprintf("metrics: client-go's SetProvider is called by %s, and here sees the queues. When you "+
		"change imports to %s, also call workqueue.SetProvider of that package, or the metrics vanish: see "+
		"docs/migrating.md.",
		strings.Join(setters, ", "), queuePath), nil
}

// setsProvider reports whether a file names client-go's SetProvider.
func setsProvider(file *ast.File) (found bool) {
	name := ""
	for _, spec := range file.Imports {
		if imported, _ := strconv.Unquote(spec.Path.Value); imported == workqueuePath {
			if name = path.Base(imported); spec.Name != nil {
				name = spec.Name.Name
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok && selector.Sel.Name == "SetProvider" {
			of, ok := selector.X.(*ast.Ident)
			found = found || ok && of.Name == name
		}
		return !found
	})
	return found
}
