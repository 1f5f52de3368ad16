// Package analyzer has the analyzers of queuevet, for other drivers of go/analysis.
package analyzer

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const (
	clientGoPath = "k8s.io/client-go/util/workqueue"
	oursPath     = "github.com/keyedqueue/workqueue"
)

// Metrics reports programs that have one of our queues under a name, and whose metrics are client-go's alone.
// Tests are not checked.
var Metrics = &analysis.Analyzer{
	Name: "queuemetrics",
	Doc: `report queues whose metrics no registry has

A queue of this project with a name reports its metrics to this project's provider. A program that sets only
client-go's provider, as component-base and controller-runtime do when they are imported, does not show
them.`,
	URL:       "https://github.com/keyedqueue/workqueue/tree/main/cmd/queuevet",
	Run:       runMetrics,
	FactTypes: []analysis.Fact{new(packageFact)},
}

// packageFact describes a package and everything that it imports. Packages without queues have none.
type packageFact struct {
	// Named is the package that makes a queue of ours with a name.
	Named string
	// ClientGo is the package that sets client-go's provider.
	ClientGo string
	// Ours: our provider is set, one is in a config, or package prom or otel is imported.
	Ours bool
}

func (*packageFact) AFact()         {}
func (*packageFact) String() string { return "packageFact" }

func runMetrics(pass *analysis.Pass) (any, error) {
	if pass.Pkg.Path() == clientGoPath || isOurs(pass.Pkg.Path()) {
		return nil, nil
	}
	p, files := new(packageFact), withoutTests(pass)
	if len(files) == 0 || strings.HasSuffix(pass.Pkg.Path(), ".test") { // .test is the main function of tests.
		return nil, nil
	}
	for _, file := range files {
		for _, spec := range file.Imports {
			if name := pass.TypesInfo.PkgNameOf(spec); name != nil {
				p.noteImport(pass, name.Imported())
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			p.note(pass, n)
			return true
		})
	}
	if *p != (packageFact{}) {
		pass.ExportPackageFact(p)
	}
	if pass.Pkg.Name() == "main" && p.Named != "" && p.ClientGo != "" && !p.Ours {
		pass.Reportf(files[0].Name.Pos(), "metrics of the queues that %s makes are not registered: "+
			"%s sets client-go's provider alone; also call workqueue.SetProvider of %s", p.Named, p.ClientGo, oursPath)
	}
	return nil, nil
}

// isOurs reports whether path is a package that has queues of this project.
func isOurs(path string) bool {
	switch path {
	case oursPath, oursPath + "/priorityqueue", oursPath + "/redisqueue", oursPath + "/controllerruntime":
		return true
	}
	return false
}

func (p *packageFact) noteImport(pass *analysis.Pass, imported *types.Package) {
	var of packageFact
	pass.ImportPackageFact(imported, &of)
	path := imported.Path()
	p.Ours = p.Ours || of.Ours || path == oursPath+"/prom" || path == oursPath+"/otel"
	p.Named = cmp.Or(p.Named, of.Named)
	p.ClientGo = cmp.Or(p.ClientGo, of.ClientGo)
}

// note notes what n says about the program.
func (p *packageFact) note(pass *analysis.Pass, n ast.Node) {
	switch n := n.(type) {
	case *ast.Ident:
		f, ok := pass.TypesInfo.Uses[n].(*types.Func)
		switch {
		case !ok || f.Pkg() == nil:
		case f.Name() == "SetProvider" && f.Pkg().Path() == clientGoPath:
			p.ClientGo = pass.Pkg.Path()
		case f.Name() == "SetProvider" && f.Pkg().Path() == oursPath:
			p.Ours = true
		case f.Name() == "With" && f.Pkg().Path() == oursPath+"/controllerruntime":
			p.Ours = true // It puts the metrics of its queues into controller-runtime's registry.
		case strings.HasPrefix(f.Name(), "NewNamed") && f.Pkg().Path() == oursPath:
			p.Named = pass.Pkg.Path()
		}
	case *ast.CompositeLit:
		config, ok := types.Unalias(pass.TypesInfo.TypeOf(n)).(*types.Named)
		if !ok || config.Obj().Pkg() == nil || !isOurs(config.Obj().Pkg().Path()) ||
			!isConfig(config.Obj().Name()) {
			return
		}
		for _, element := range n.Elts {
			if field, ok := element.(*ast.KeyValueExpr); ok {
				p.noteField(pass, field)
			}
		}
	}
}

// isConfig reports whether a type of this name configures a queue. In other types a field Name is something
// else.
func isConfig(name string) bool {
	return strings.HasSuffix(name, "Config") || strings.HasSuffix(name, "Options")
}

// noteField notes what a field of a config says about the program.
func (p *packageFact) noteField(pass *analysis.Pass, field *ast.KeyValueExpr) {
	id, ok := field.Key.(*ast.Ident)
	switch {
	case !ok:
	case id.Name == "MetricsProvider":
		p.Ours = true
	case id.Name == "Name":
		value := pass.TypesInfo.Types[field.Value].Value
		if value == nil || constant.StringVal(value) != "" {
			p.Named = pass.Pkg.Path()
		}
	}
}
