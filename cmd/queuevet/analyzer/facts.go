package analyzer

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"reflect"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// facts finds out what other analyzers need to know of the packages that a package imports.
var facts = &analysis.Analyzer{
	Name:       "queuefacts",
	Doc:        "find which functions finish or forget keys, and which packages make queues or register metrics",
	URL:        url,
	Run:        runFacts,
	ResultType: reflect.TypeFor[*knowledge](),
	FactTypes:  []analysis.Fact{new(callsQueue), new(program)},
}

// callsQueue says of a function what it, or a function that it calls by name, may do with keys.
type callsQueue struct{ Done, Forget bool }

func (*callsQueue) AFact()           {}
func (c *callsQueue) String() string { return "callsQueue" }

func (c callsQueue) or(d callsQueue) callsQueue {
	return callsQueue{c.Done || d.Done, c.Forget || d.Forget}
}

// program says what a package and everything that it imports have in them.
type program struct {
	// UsesQueues: there is a package with queues among them. Others are skipped.
	UsesQueues bool
	// Named is where a queue of ours is made that has a name and no provider of its own.
	Named string
	// ClientGo is the package that sets client-go's provider of metrics.
	ClientGo string
	// Ours: our provider is set, or package prom or otel is imported.
	Ours bool
}

func (*program) AFact()           {}
func (p *program) String() string { return "program" }

// knowledge is what facts knows of one package.
type knowledge struct {
	pass    *analysis.Pass
	calls   map[*types.Func]callsQueue
	program program
	// mentions: this package itself uses something of a package with queues, outside of its tests.
	mentions bool
	// named is where this package itself makes a queue that has a name.
	named token.Pos
}

func runFacts(pass *analysis.Pass) (any, error) {
	k := &knowledge{pass: pass, calls: map[*types.Func]callsQueue{}}
	k.inherit()
	if k.program.UsesQueues {
		k.findMetrics()
		k.findCalls()
		pass.ExportPackageFact(&k.program)
	}
	return k, nil
}

// of returns what f may do with keys.
func (k *knowledge) of(f *types.Func) callsQueue {
	if f == nil {
		return callsQueue{}
	}
	f = f.Origin()
	if kind := kindOf(f); kind != other {
		return callsQueue{Done: finishes(f), Forget: kind == forget}
	}
	if k.isOwn(f) {
		return k.calls[f]
	}
	var fact callsQueue
	if f.Pkg() != nil {
		k.pass.ImportObjectFact(f, &fact)
	}
	return fact
}

// isOwn reports whether f is a function of this package.
func (k *knowledge) isOwn(f *types.Func) bool { return f.Pkg() == k.pass.Pkg }

// inherit begins with what is known of the imported packages.
func (k *knowledge) inherit() {
	p := &k.program
	p.UsesQueues = isQueuePackage(k.pass.Pkg.Path())
	for _, imported := range k.pass.Pkg.Imports() {
		var of program
		k.pass.ImportPackageFact(imported, &of)
		path := imported.Path()
		p.UsesQueues = p.UsesQueues || of.UsesQueues || isQueuePackage(path)
		p.Ours = p.Ours || of.Ours || within(path, oursPath+"/prom") || within(path, oursPath+"/otel")
		if p.Named == "" {
			p.Named = of.Named
		}
		if p.ClientGo == "" {
			p.ClientGo = of.ClientGo
		}
	}
}

// findCalls finds out what the functions of this package may do with keys.
func (k *knowledge) findCalls() {
	bodies := map[*types.Func]*ast.BlockStmt{}
	for _, file := range k.pass.Files {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
				if f, ok := k.pass.TypesInfo.Defs[d.Name].(*types.Func); ok {
					bodies[f] = d.Body
				}
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for f, body := range bodies {
			before := k.calls[f]
			after := before.or(k.callsIn(body))
			if after != before {
				k.calls[f], changed = after, true
			}
		}
	}
	for f, c := range k.calls {
		k.pass.ExportObjectFact(f, &c)
	}
}

func (k *knowledge) callsIn(body ast.Node) (c callsQueue) {
	ast.Inspect(body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if f, ok := k.pass.TypesInfo.Uses[id].(*types.Func); ok {
				c = c.or(k.of(f))
				// An interface of the program's own may stand for a queue.
				if s := f.Signature(); f.Name() == "Done" && s.Recv() != nil && s.Params().Len() == 1 {
					c.Done = true
				}
			}
		}
		return true
	})
	return c
}

// findMetrics finds the providers that this package sets, and the queues with a name that it makes.
func (k *knowledge) findMetrics() {
	if isQueuePackage(k.pass.Pkg.Path()) {
		return
	}
	for _, file := range k.pass.Files {
		if isTest(k.pass.Fset.File(file.FileStart)) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				k.use(n)
			case *ast.CompositeLit:
				k.config(n)
			}
			return true
		})
	}
}

// use notes what it means that id is mentioned.
func (k *knowledge) use(id *ast.Ident) {
	obj := k.pass.TypesInfo.Uses[id]
	if !inQueuePackage(obj) {
		return
	}
	k.mentions = true
	path, p := obj.Pkg().Path(), &k.program
	switch obj := obj.(type) {
	case *types.Func:
		switch {
		case obj.Name() == "SetProvider" && path == clientGoPath:
			p.ClientGo = k.pass.Pkg.Path()
		case obj.Name() == "SetProvider" && path == oursPath:
			p.Ours = true
		case path == oursPath && strings.HasPrefix(obj.Name(), "NewNamed"),
			within(path, oursPath+"/controllerruntime") && obj.Signature().Recv() == nil:
			k.makesNamed(id.Pos())
		}
	case *types.Var:
		if obj.IsField() && obj.Name() == "MetricsProvider" && isOurs(path) {
			p.Ours = true
		}
	}
}

// config notes a literal of one of our configs that has a name.
func (k *knowledge) config(lit *ast.CompositeLit) {
	named, ok := types.Unalias(k.pass.TypesInfo.TypeOf(lit)).(*types.Named)
	if !ok || !isOursObject(named.Obj()) || !strings.HasSuffix(named.Obj().Name(), "Config") {
		return
	}
	for _, e := range lit.Elts {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := field.Key.(*ast.Ident); ok && key.Name == "Name" {
			value := k.pass.TypesInfo.Types[field.Value].Value
			if value == nil || constant.StringVal(value) != "" {
				k.makesNamed(lit.Pos())
			}
		}
	}
}

func isOursObject(obj types.Object) bool {
	return obj.Pkg() != nil && isOurs(obj.Pkg().Path())
}

func (k *knowledge) makesNamed(pos token.Pos) {
	if !k.named.IsValid() {
		k.named = pos
		k.program.Named = k.pass.Pkg.Path()
	}
}
