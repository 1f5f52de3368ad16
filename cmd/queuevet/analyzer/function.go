package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/cfg"
)

// function is a function or a function literal.
type function struct {
	pass *analysis.Pass
	info *types.Info
	// outer is the declaration that the function is in.
	outer ast.Decl
	body  *ast.BlockStmt
	// points are all that can be reached, the function's start first.
	points []*point
}

// point is a place in a function: a statement or a condition, or, without a node, a way from one block to another.
type point struct {
	node       ast.Node
	next, prev []*point
	// On a way out of a branch: its condition, and whether it is true there.
	cond  ast.Expr
	holds bool
	// unlikely: the way on which no case of a switch, or no else if, applies. That may be impossible.
	unlikely bool
}

// eachFunction calls do with every function of a package that uses queues.
func eachFunction(pass *analysis.Pass, do func(*function)) {
	if !pass.ResultOf[facts].(*program).UsesQueues || isQueuePackage(pass.Pkg.Path()) {
		return
	}
	graphs := pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs)
	for _, file := range checked(pass) {
		for _, decl := range file.Decls {
			ast.Inspect(decl, func(n ast.Node) bool {
				f := &function{pass: pass, info: pass.TypesInfo, outer: decl}
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Body != nil {
						f.body, f.points = n.Body, points(graphs.FuncDecl(n))
						do(f)
					}
				case *ast.FuncLit:
					f.body, f.points = n.Body, points(graphs.FuncLit(n))
					do(f)
				}
				return true
			})
		}
	}
}

// points returns the points of a graph, linked.
func points(graph *cfg.CFG) (all []*point) {
	first, last := map[*cfg.Block]*point{}, map[*cfg.Block]*point{}
	link := func(from, to *point) {
		from.next, to.prev = append(from.next, to), append(to.prev, from)
	}
	for _, block := range graph.Blocks {
		if !block.Live {
			continue
		}
		at := &point{}
		first[block], all = at, append(all, at)
		for _, node := range block.Nodes {
			p := &point{node: node}
			link(at, p)
			at, all = p, append(all, p)
		}
		last[block] = at
	}
	for _, block := range graph.Blocks {
		end := last[block]
		for i, next := range block.Succs {
			if end == nil {
				break // It cannot be reached.
			}
			way := &point{}
			if cond, ok := end.node.(ast.Expr); ok && len(block.Succs) == 2 {
				way.cond, way.holds = cond, i == 0
				way.unlikely = next.Kind == cfg.KindSwitchDone || block.Kind == cfg.KindIfElse && next.Kind == cfg.KindIfDone
			}
			link(end, way)
			link(way, first[next])
			all = append(all, way)
		}
	}
	return all
}

// set is a set of points.
type set map[*point]bool

// after returns the points that may be reached from these. It goes no further than points at which stop is true.
func after(from []*point, stop func(*point) bool) set {
	return reach(from, stop, func(p *point) []*point { return p.next })
}

// before returns the points from which these may be reached, in the same way.
func before(to []*point, stop func(*point) bool) set {
	return reach(to, stop, func(p *point) []*point { return p.prev })
}

func reach(from []*point, stop func(*point) bool, neighbours func(*point) []*point) set {
	seen := set{}
	var visit func(p *point)
	visit = func(p *point) {
		for _, n := range neighbours(p) {
			if !seen[n] {
				seen[n] = true
				if !stop(n) {
					visit(n)
				}
			}
		}
	}
	for _, p := range from {
		visit(p)
	}
	return seen
}

// each calls f with every node of n, except those of function literals in it.
func each(n ast.Node, f func(ast.Node)) {
	if n == nil {
		return
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if n != nil {
			f(n)
		}
		_, inner := n.(*ast.FuncLit)
		return !inner
	})
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
