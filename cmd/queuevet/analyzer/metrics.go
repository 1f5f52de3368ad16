package analyzer

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"reflect"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Metrics reports programs that have one of our queues under a name, and whose metrics are client-go's alone.
var Metrics = &analysis.Analyzer{
	Name: "queuemetrics",
	Doc: `report queues whose metrics no registry has

A queue of this project with a name reports its metrics to this project's provider. A program that sets only
client-go's provider, as component-base and controller-runtime do when they are imported, does not show them.`,
	URL:      url + "#queuemetrics",
	Run:      runMetrics,
	Requires: []*analysis.Analyzer{facts},
}

func runMetrics(pass *analysis.Pass) (any, error) {
	p := pass.ResultOf[facts].(*program)
	if pass.Pkg.Name() != "main" || p.Ours || p.Named == "" || p.ClientGo == "" || len(checked(pass)) == 0 {
		return nil, nil
	}
	pos := cmp.Or(p.named, pass.Files[0].Name.Pos())
	report(pass, pos, "metrics of the queues that %s makes are not registered: "+
		"%s sets client-go's provider alone; call workqueue.SetProvider of %s, too", p.Named, p.ClientGo, oursPath)
	return nil, nil
}

// facts collects what a package and all that it imports have in them.
var facts = &analysis.Analyzer{
	Name:       "queuefacts",
	Doc:        "find the packages that make queues or set providers of metrics",
	URL:        url,
	Run:        runFacts,
	ResultType: reflect.TypeFor[*program](),
	FactTypes:  []analysis.Fact{new(program)},
}

// program describes a package and everything that it imports.
type program struct {
	// UsesQueues: there is a package with queues among them.
	UsesQueues bool
	// Named is the package that makes a queue of ours with a name and without a provider of its own.
	Named string
	// ClientGo is the package that sets client-go's provider.
	ClientGo string
	// Ours: our provider is set, or package prom or otel is imported.
	Ours bool

	// named is where this package itself makes a queue with a name.
	named token.Pos
}

func (*program) AFact()           {}
func (p *program) String() string { return "program" }

func runFacts(pass *analysis.Pass) (any, error) {
	p := &program{UsesQueues: isQueuePackage(pass.Pkg.Path())}
	for _, imported := range pass.Pkg.Imports() {
		var of program
		pass.ImportPackageFact(imported, &of)
		path := imported.Path()
		p.UsesQueues = p.UsesQueues || of.UsesQueues || isQueuePackage(path)
		p.Ours = p.Ours || of.Ours || within(path, oursPath+"/prom") || within(path, oursPath+"/otel")
		p.Named = cmp.Or(p.Named, of.Named)
		p.ClientGo = cmp.Or(p.ClientGo, of.ClientGo)
	}
	if !p.UsesQueues {
		return p, nil
	}
	if !isQueuePackage(pass.Pkg.Path()) {
		for _, file := range checked(pass) {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					p.use(pass, n)
				case *ast.CompositeLit:
					p.config(pass, n)
				}
				return true
			})
		}
	}
	pass.ExportPackageFact(p)
	return p, nil
}

// use notes what it means that id is mentioned.
func (p *program) use(pass *analysis.Pass, id *ast.Ident) {
	obj := pass.TypesInfo.Uses[id]
	if !inQueuePackage(obj) {
		return
	}
	path := obj.Pkg().Path()
	switch obj := obj.(type) {
	case *types.Func:
		switch {
		case obj.Name() == "SetProvider" && path == clientGoPath:
			p.ClientGo = pass.Pkg.Path()
		case obj.Name() == "SetProvider" && path == oursPath:
			p.Ours = true
		case path == oursPath && strings.HasPrefix(obj.Name(), "NewNamed"):
			p.makesNamed(pass, id.Pos())
		}
	case *types.Var:
		if obj.IsField() && obj.Name() == "MetricsProvider" && isOurs(path) {
			p.Ours = true
		}
	}
}

// config notes a literal of one of our configs that has a name.
func (p *program) config(pass *analysis.Pass, lit *ast.CompositeLit) {
	named, ok := types.Unalias(pass.TypesInfo.TypeOf(lit)).(*types.Named)
	if !ok || !strings.HasSuffix(named.Obj().Name(), "Config") || named.Obj().Pkg() == nil || !isOurs(named.Obj().Pkg().Path()) {
		return
	}
	for _, e := range lit.Elts {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := field.Key.(*ast.Ident); ok && key.Name == "Name" {
			value := pass.TypesInfo.Types[field.Value].Value
			if value == nil || constant.StringVal(value) != "" {
				p.makesNamed(pass, lit.Pos())
			}
		}
	}
}

func (p *program) makesNamed(pass *analysis.Pass, pos token.Pos) {
	if !p.named.IsValid() {
		p.named = pos
		p.Named = pass.Pkg.Path()
	}
}
