package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"
	"reflect"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/cfg"
)

// functions finds the functions of a package that uses queues.
var functions = &analysis.Analyzer{
	Name:       "queuefunctions",
	Doc:        "find the functions of a package that uses queues",
	URL:        url,
	Run:        runFunctions,
	Requires:   []*analysis.Analyzer{facts, ctrlflow.Analyzer},
	ResultType: reflect.TypeFor[[]*function](),
}

// function is a function or a function literal.
type function struct {
	pass *analysis.Pass
	info *types.Info
	// outer is the declaration that the function is in.
	outer ast.Node
	body  *ast.BlockStmt
	graph *cfg.CFG
	uses  *uses
}

func runFunctions(pass *analysis.Pass) (any, error) {
	all := []*function{}
	if !pass.ResultOf[facts].(*program).UsesQueues || isQueuePackage(pass.Pkg.Path()) {
		return all, nil
	}
	graphs := pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs)
	u := newUses(pass)
	for _, file := range checked(pass) {
		for _, decl := range file.Decls {
			ast.Inspect(decl, func(n ast.Node) bool {
				f := &function{pass: pass, info: pass.TypesInfo, outer: decl, uses: u}
				switch n := n.(type) {
				case *ast.FuncDecl:
					f.body, f.graph = n.Body, graphs.FuncDecl(n)
				case *ast.FuncLit:
					f.body, f.graph = n.Body, graphs.FuncLit(n)
				}
				if f.body != nil && f.graph != nil {
					all = append(all, f)
				}
				return true
			})
		}
	}
	return all, nil
}

// each calls f with every node of n, except those of function literals in it.
func each(n ast.Node, f func(ast.Node)) {
	ast.Inspect(n, func(n ast.Node) bool {
		if n != nil {
			f(n)
		}
		_, inner := n.(*ast.FuncLit)
		return !inner
	})
}

// position is a node in the graph of a function.
type position struct {
	block *cfg.Block
	index int
}

// find returns where node is.
func (f *function) find(node ast.Node) (position, bool) {
	for _, block := range f.graph.Blocks {
		for i, n := range block.Nodes {
			if n == node {
				return position{block, i}, true
			}
		}
	}
	return position{}, false
}

// condition returns the condition on which block branches, or nil. It holds on the way to Succs[0].
func condition(block *cfg.Block) ast.Expr {
	if len(block.Succs) != 2 || len(block.Nodes) == 0 {
		return nil
	}
	cond, _ := block.Nodes[len(block.Nodes)-1].(ast.Expr)
	return cond
}

// variable returns the variable that e names, or nil.
func (f *function) variable(e ast.Expr) *types.Var {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok || id.Name == "_" {
		return nil
	}
	v, _ := f.info.ObjectOf(id).(*types.Var)
	return v
}

// isNil reports whether e is nil.
func (f *function) isNil(e ast.Expr) bool { return f.info.Types[e].IsNil() }

// mentions reports whether n uses v.
func (f *function) mentions(n ast.Node, v *types.Var) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && v != nil && f.info.Uses[id] == v
		return !found
	})
	return found
}

// assigns reports whether n gives v a value.
func (f *function) assigns(n ast.Node, v *types.Var) bool {
	if v == nil {
		return false
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, left := range n.Lhs {
			if f.variable(left) == v {
				return true
			}
		}
	case *ast.IncDecStmt:
		return f.variable(n.X) == v
	case *ast.UnaryExpr:
		return n.Op == token.AND && f.variable(n.X) == v
	case *ast.RangeStmt:
		return n.Key != nil && f.variable(n.Key) == v || n.Value != nil && f.variable(n.Value) == v
	}
	return false
}

func (f *function) line(pos token.Pos) int { return f.pass.Fset.Position(pos).Line }
