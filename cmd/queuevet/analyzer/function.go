package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/cfg"
)

// function is a function or a function literal.
type function struct {
	*uses
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
	if !pass.ResultOf[Metrics].(*program).UsesQueues || isQueuePackage(pass.Pkg.Path()) {
		return
	}
	graphs := pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs)
	u := newUses(pass)
	for _, file := range checked(pass) {
		for _, decl := range file.Decls {
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Body != nil {
						do(&function{u, decl, n.Body, points(graphs.FuncDecl(n))})
					}
				case *ast.FuncLit:
					do(&function{u, decl, n.Body, points(graphs.FuncLit(n))})
				}
				return true
			})
		}
	}
}

// points returns the points of a graph, linked.
func points(graph *cfg.CFG) (all []*point) {
	add := func(p *point) *point {
		all = append(all, p)
		return p
	}
	link := func(from, to *point) {
		from.next, to.prev = append(from.next, to), append(to.prev, from)
	}
	first, last := map[*cfg.Block]*point{}, map[*cfg.Block]*point{}
	for _, block := range graph.Blocks {
		if block.Live {
			at := add(&point{})
			first[block] = at
			for _, node := range block.Nodes {
				before := at
				at = add(&point{node: node})
				link(before, at)
			}
			last[block] = at
		}
	}
	for _, block := range graph.Blocks {
		for i, next := range block.Succs {
			if !block.Live {
				continue
			}
			way := add(&point{})
			if cond, ok := last[block].node.(ast.Expr); ok && len(block.Succs) == 2 {
				way.cond, way.holds = cond, i == 0
				way.unlikely = next.Kind == cfg.KindSwitchDone || block.Kind == cfg.KindIfElse && next.Kind == cfg.KindIfDone
			}
			link(last[block], way)
			link(way, first[next])
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
	for queue := slices.Clone(from); len(queue) > 0; queue = queue[1:] {
		for _, p := range neighbours(queue[0]) {
			if !seen[p] {
				seen[p] = true
				if !stop(p) {
					queue = append(queue, p)
				}
			}
		}
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
func (u *uses) variable(e ast.Expr) *types.Var {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok || id.Name == "_" {
		return nil
	}
	v, _ := u.info.ObjectOf(id).(*types.Var)
	return v
}

// mentions reports whether n uses v.
func (u *uses) mentions(n ast.Node, v *types.Var) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && v != nil && u.info.Uses[id] == v
		return !found
	})
	return found
}

// assigns reports whether n gives v a value.
func (u *uses) assigns(n ast.Node, v *types.Var) bool {
	var left []ast.Expr
	switch n := n.(type) {
	case *ast.AssignStmt:
		left = n.Lhs
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			left = []ast.Expr{n.X}
		}
	case *ast.RangeStmt:
		left = []ast.Expr{n.Key, n.Value}
	}
	return v != nil && slices.ContainsFunc(left, func(e ast.Expr) bool { return e != nil && u.variable(e) == v })
}

func (u *uses) line(pos token.Pos) int { return u.pass.Fset.Position(pos).Line }
