package analyzer

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
)

// Leak reports keys that are not Done on some path.
var Leak = &analysis.Analyzer{
	Name: "queueleak",
	Doc: `report keys from Get without a Done on some path

A key that a worker got and never gave back by Done is not handed out again, however often it is added, and
ShutDownWithDrain waits for it forever. Every path from Get to a return, and to the next Get, needs a Done, unless
the queue is shut down; "defer queue.Done(key)" right after the test for shutdown is the usual way.`,
	URL:      url + "#queueleak",
	Run:      runLeak,
	Requires: []*analysis.Analyzer{Metrics, ctrlflow.Analyzer},
}

func runLeak(pass *analysis.Pass) (any, error) {
	eachFunction(pass, func(f *function) {
		for _, p := range f.points {
			if get, name := f.getCall(p.node); get != nil {
				f.checkGet(p, get, name)
			}
		}
	})
	return nil, nil
}

// leak looks for a point in a function where a key from Get is certainly lost: no way from Get to that point has a Done,
// or anything that may lead to one, and no way from there to where the function is left, or to the next Get. Paths
// are not followed, so it does not matter which conditions exclude each other.
type leak struct {
	*function
	get   *point
	key   *types.Var
	quit  *types.Var // The bool, or the error, that comes with the key.
	names names      // The variables that hold the key.
}

func (f *function) checkGet(at *point, get *ast.AssignStmt, name string) {
	l := &leak{function: f, get: at, key: f.variable(get.Lhs[0]), quit: f.variable(get.Lhs[len(get.Lhs)-1])}
	if l.key == nil || !local(l.key, f.body) {
		return
	}
	l.names = f.holders(l.key, f.body)
	if l.unclear(get) {
		return
	}
	if end := l.search(); end != nil {
		where := fmt.Sprintf("when the function is left at line %d", f.line(end.node.Pos()))
		if l.isGet(end) {
			where = "when the loop comes back here"
		}
		report(f.pass, get.Pos(), "key from %s is not Done %s: the queue will not hand it out again", name, where)
	}
}

// getCall returns n if it assigns the results of a Get, and the name of that method.
func (f *function) getCall(n ast.Node) (get *ast.AssignStmt, name string) {
	assign, ok := n.(*ast.AssignStmt)
	if !ok || len(assign.Rhs) != 1 || len(assign.Lhs) < 2 {
		return nil, ""
	}
	call, ok := ast.Unparen(assign.Rhs[0]).(*ast.CallExpr)
	if !ok {
		return nil, ""
	}
	method := callee(f.info, call)
	if !isMethod(method, "Get", "GetWithPriority", "GetContext") {
		return nil, ""
	}
	return assign, method.Name()
}

// isGet reports whether p gets the next key into the same variable.
func (l *leak) isGet(p *point) bool {
	get, _ := l.getCall(p.node)
	return get != nil && l.assigns(get, l.key)
}

// unclear reports whether the function does something with the results of Get that is too much for this analyzer.
func (l *leak) unclear(get *ast.AssignStmt) (unclear bool) {
	ast.Inspect(l.outer, func(n ast.Node) bool {
		if n == nil || n == get {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit, *ast.DeferStmt: // Written elsewhere, it may run when the key is held.
			around := n.Pos() < get.Pos() && get.End() <= n.End()
			elsewhere := n.Pos() < get.Pos() || n.Pos() >= l.body.End()
			unclear = unclear || !around && elsewhere && (l.of(n, nil) != nothing || l.mentions(n, l.key))
		case *ast.AssignStmt:
			for _, right := range n.Rhs { // As in stop := quit || key == "".
				unclear = unclear || n.Pos() > l.body.Pos() && l.mentions(right, l.quit)
			}
		case *ast.SelectStmt: // A select that sends the key in one case may well end in another.
			for _, clause := range n.Body.List {
				send, ok := clause.(*ast.CommClause).Comm.(*ast.SendStmt)
				unclear = unclear || ok && l.of(send, l.names) != nothing
			}
		}
		if again, _ := l.getCall(n); again == nil {
			unclear = unclear || l.assigns(n, l.key) || l.assigns(n, l.quit)
		}
		return true
	})
	for _, p := range l.points {
		if p.cond != nil {
			_, known := l.shutdown(p.cond)
			// Without a look at quit, the key itself may show that the queue is shut down.
			unclear = unclear || l.mentions(p.cond, l.quit) && !known || l.quit == nil && l.mentions(p.cond, l.key)
		}
	}
	return unclear
}

// shutdown reports whether the queue is shut down, or Get has failed, if cond is true, or else if it is false. It is
// known only for conditions that it understands.
func (l *leak) shutdown(cond ast.Expr) (ifTrue, known bool) {
	switch cond := ast.Unparen(cond).(type) {
	case *ast.Ident:
		return true, true
	case *ast.BinaryExpr:
		compares := l.variable(cond.X) == l.quit && l.info.Types[cond.Y].IsNil()
		return cond.Op == token.NEQ, compares && (cond.Op == token.EQL || cond.Op == token.NEQ)
	case *ast.CallExpr:
		f := callee(l.info, cond) // No error is any error.
		return true, f != nil && f.Pkg() != nil && f.Pkg().Path() == "errors"
	}
	return false, false
}

// search returns where the function is left, or where it gets the next key, without a Done.
func (l *leak) search() *point {
	held := after([]*point{l.get}, l.stops)
	// Deferred calls are in time when the function is left, but not for the next Get.
	for _, inTime := range []bool{true, false} {
		safe := l.safe(held, inTime)
		for _, p := range l.points {
			if held[p] && !safe[p] && !p.unlikely {
				left, again := l.ends(p)
				if left != nil && inTime {
					return left
				}
				if again != nil && (left == nil || inTime) {
					return again
				}
			}
		}
	}
	return nil
}

// isShut reports whether p is on a way on which Get has returned no key.
func (l *leak) isShut(p *point) bool {
	if p.cond == nil || !l.mentions(p.cond, l.quit) {
		return false
	}
	ifTrue, _ := l.shutdown(p.cond)
	return ifTrue == p.holds
}

// stops reports whether the key cannot be Done later than at p.
func (l *leak) stops(p *point) bool {
	_, returns := p.node.(*ast.ReturnStmt)
	return returns || l.isGet(p) || l.isShut(p)
}

// ends returns where the key must have been Done after p: where the function is left first, and the next Get.
func (l *leak) ends(p *point) (left, again *point) {
	ends := set{p: true}
	if !l.stops(p) {
		ends = after([]*point{p}, l.stops)
	}
	for _, end := range l.points {
		_, returns := end.node.(*ast.ReturnStmt)
		switch {
		case !ends[end]:
		case l.isGet(end):
			again = end
		case returns && (left == nil || end.node.Pos() < left.node.Pos()):
			left = end
		}
	}
	return left, again
}

// safe returns the points that have a Done, or anything that may lead to one, on some way to them or from them, and those
// that may run when Get has returned no key.
func (l *leak) safe(held set, inTime bool) set {
	var finished, passed, shut []*point
	ownDone := false
	for p := range held {
		e := l.of(p.node, l.names)
		if !inTime {
			e &^= deferred
		}
		switch {
		case l.isShut(p):
			shut = append(shut, p)
		case l.isGet(p):
		case e&(deferred|released) != 0:
			finished = append(finished, p)
		case e&passes != 0:
			passed = append(passed, p)
		}
		ownDone = ownDone || l.calls(p.node, l.names, "Done")
	}
	// A function that finishes the key itself, and goes on with it, has not passed it to one that finishes it.
	goesOn := func(p *point) bool {
		return l.stops(p) || ownDone && l.calls(p.node, l.names, "AddRateLimited", "AddAfter", "AddWithOpts", "Forget", "NumRequeues")
	}
	safe := set{}
	for _, points := range []set{
		after(finished, l.stops), after(passed, goesOn), before(slices.Concat(finished, passed), l.stops), after(shut, l.isGet),
	} {
		maps.Copy(safe, points)
	}
	for _, p := range slices.Concat(finished, passed, shut) {
		safe[p] = true
	}
	return safe
}
