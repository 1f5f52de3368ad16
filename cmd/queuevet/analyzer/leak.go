package analyzer

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/cfg"
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
	Requires: []*analysis.Analyzer{functions},
}

func runLeak(pass *analysis.Pass) (any, error) {
	for _, f := range pass.ResultOf[functions].([]*function) {
		for _, block := range f.graph.Blocks {
			for i, n := range block.Nodes {
				if assign, ok := n.(*ast.AssignStmt); ok && block.Live {
					f.pass = pass
					f.checkGet(assign, position{block, i})
				}
			}
		}
	}
	return nil, nil
}

// leak looks for a point in a function where a key from Get is certainly not Done: no way from Get to that point has a
// Done, or anything that may lead to one, and no way from there to where the function is left, or to the next Get. Paths
// are not followed, so it does not matter which conditions exclude each other.
type leak struct {
	*function
	get  position
	key  *types.Var
	quit *types.Var // The bool, or the error, that comes with the key.
	// names are the variables that hold the key.
	names map[types.Object]bool
	// ownDone: the function itself calls Done with the key, so handlers that it calls do not.
	ownDone bool
}

func (f *function) checkGet(assign *ast.AssignStmt, at position) {
	name, ok := f.getCall(assign)
	if !ok {
		return
	}
	l := &leak{function: f, get: at, key: f.variable(assign.Lhs[0]), quit: f.variable(assign.Lhs[len(assign.Lhs)-1])}
	if l.key == nil || !local(l.key, f.body) {
		return
	}
	l.names = f.uses.aliases(f.body, l.key)
	if l.unclear(assign) {
		return
	}
	if end := l.search(); end.IsValid() {
		where := fmt.Sprintf("when the function is left at line %d", f.line(end))
		if end == assign.Pos() {
			where = "when the loop comes back here"
		}
		report(f.pass, assign.Pos(), "key from %s is not Done %s: the queue will not hand it out again", name, where)
	}
}

// getCall returns the name of the Get whose results n assigns.
func (f *function) getCall(n ast.Node) (name string, ok bool) {
	assign, ok := n.(*ast.AssignStmt)
	if !ok || len(assign.Rhs) != 1 || len(assign.Lhs) < 2 {
		return "", false
	}
	call, ok := ast.Unparen(assign.Rhs[0]).(*ast.CallExpr)
	if !ok {
		return "", false
	}
	method := callee(f.info, call)
	if !isMethod(method, "Get", "GetWithPriority", "GetContext") {
		return "", false
	}
	return method.Name(), true
}

// unclear reports whether the function does something with the results of Get, or with the queue, that is too much for
// this analyzer.
func (l *leak) unclear(get *ast.AssignStmt) (unclear bool) {
	ast.Inspect(l.outer, func(n ast.Node) bool {
		if n == nil || n == get {
			return false
		}
		outside := n.Pos() < get.Pos() || n.Pos() >= l.body.End()
		switch n := n.(type) {
		case *ast.FuncLit:
			around := n.Pos() < get.Pos() && get.End() <= n.End()
			if !around && outside && (l.uses.finishes(n.Body) || l.mentions(n.Body, l.key)) {
				unclear = true // It may be called later.
			}
		case *ast.DeferStmt:
			unclear = unclear || l.body.Pos() < n.Pos() && n.Pos() < get.Pos() && l.uses.finishes(n)
		case *ast.ExprStmt:
			// A queue that is shut down hands out what is left.
			call, ok := n.X.(*ast.CallExpr)
			unclear = unclear || ok && l.body.Pos() < n.Pos() && isMethod(callee(l.info, call), "ShutDown", "ShutDownWithDrain", "ShutDownContext")
		}
		if _, ok := l.getCall(n); !ok {
			unclear = unclear || l.assigns(n, l.key) || l.assigns(n, l.quit)
		}
		return true
	})
	each(l.body, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.AssignStmt:
			// The answer lives on in another variable, as in stop := quit || key == "".
			if _, ok := l.getCall(n); !ok {
				for _, r := range n.Rhs {
					unclear = unclear || l.mentions(r, l.quit)
				}
			}
		case *ast.SwitchStmt:
			unclear = unclear || n.Tag != nil && l.mentions(n.Tag, l.quit)
		case *ast.CallExpr:
			l.ownDone = l.ownDone || isDone(callee(l.info, n)) && l.passesKey(n)
		}
	})
	for _, block := range l.graph.Blocks {
		cond := condition(block)
		if cond == nil {
			continue
		}
		_, known := l.shutdown(cond)
		// Without a look at quit, the key itself may show that the queue is shut down.
		unclear = unclear || l.mentions(cond, l.quit) && !known || l.quit == nil && l.mentions(cond, l.key)
	}
	return unclear
}

// passesKey reports whether call passes the key as it is.
func (l *leak) passesKey(call *ast.CallExpr) bool {
	id, ok := strip(l.info, call.Args[0]).(*ast.Ident)
	return ok && l.names[l.info.Uses[id]]
}

// shutdown reports whether the queue is shut down, or Get has failed, if cond is true, or else if it is false. It is
// known only for conditions that it understands.
func (l *leak) shutdown(cond ast.Expr) (ifTrue, known bool) {
	switch cond := ast.Unparen(cond).(type) {
	case *ast.Ident:
		return true, true
	case *ast.BinaryExpr:
		compares := l.variable(cond.X) == l.quit && l.isNil(cond.Y) || l.variable(cond.Y) == l.quit && l.isNil(cond.X)
		return cond.Op == token.NEQ, compares && (cond.Op == token.EQL || cond.Op == token.NEQ)
	case *ast.CallExpr:
		// No error is any error.
		if f := callee(l.info, cond); f != nil && f.Pkg() != nil && f.Pkg().Path() == "errors" {
			return true, f.Name() == "Is" || f.Name() == "As"
		}
	}
	return false, false
}

// next returns the blocks that follow block if Get has returned a key, and those that follow if it has not.
func (l *leak) next(block *cfg.Block) (given, shut []*cfg.Block) {
	cond := condition(block)
	if cond == nil || l.quit == nil || !l.mentions(cond, l.quit) {
		return block.Succs, nil
	}
	if ifTrue, _ := l.shutdown(cond); ifTrue {
		return block.Succs[1:], block.Succs[:1]
	}
	return block.Succs[:1], block.Succs[1:]
}

// ending returns where the key must be Done at the latest if block is run from its start, and the index of that node: the
// next Get of a key into the same variable, or a return.
func (l *leak) ending(block *cfg.Block, from int) (index int, pos token.Pos, isGet bool) {
	for i := from; i < len(block.Nodes); i++ {
		if _, ok := l.getCall(block.Nodes[i]); ok && l.assigns(block.Nodes[i], l.key) {
			return i, block.Nodes[i].Pos(), true
		}
	}
	if r := block.Return(); r != nil {
		return len(block.Nodes), r.Pos(), false
	}
	return len(block.Nodes), token.NoPos, false
}

// after returns what has happened to the key after node, if all happened before.
func (l *leak) after(all effects, node ast.Node) effects {
	all |= l.effects(node)
	if l.ownDone && l.uses.manages(node, l.names) {
		all &^= passes // The function goes on with the key, so the one that it was passed to has not finished it.
	}
	return all
}

// effects returns what node does with the key. A select that sends it in one case may well end in another.
func (l *leak) effects(node ast.Node) effects {
	e := l.uses.of(node, l.names)
	each(l.body, func(n ast.Node) {
		if s, ok := n.(*ast.SelectStmt); ok {
			has, sends := false, false
			for _, clause := range s.Body.List {
				comm := clause.(*ast.CommClause).Comm
				send, ok := comm.(*ast.SendStmt)
				has, sends = has || comm == node, sends || ok && l.uses.of(send, l.names) == released
			}
			if has && sends {
				e = released
			}
		}
	})
	return e
}

// search returns where the function is left, or where it gets the next key, without a Done.
func (l *leak) search() token.Pos {
	past, order := l.past()
	shut := l.afterShutdown(order)
	for _, block := range order {
		h := past[block]
		if shut[block] || h&(released|passes) != 0 {
			continue
		}
		from := 0
		if block == l.get.block {
			from = l.get.index + 1
		}
		given, _ := l.next(block)
		if _, end, _ := l.ending(block, from); end.IsValid() {
			given = []*cfg.Block{nil}
		}
		for _, next := range given {
			if isExhaustive(block, next) {
				continue
			}
			future, left, again := l.future(block, from, next)
			onTime := (h|future)&deferred == 0
			switch {
			case future&(released|passes) != 0:
			case left.IsValid() && onTime:
				return left
			case again.IsValid() && (onTime || !left.IsValid()): // Deferred calls run too late for the next Get.
				return again
			}
		}
	}
	return token.NoPos
}

// isExhaustive reports whether next is where the last case of a switch, or the last else if, leads if it is false, too:
// that may be impossible.
func isExhaustive(block, next *cfg.Block) bool {
	if next == nil || condition(block) == nil {
		return false
	}
	return next.Kind == cfg.KindSwitchDone || block.Kind == cfg.KindIfElse && next.Kind == cfg.KindIfDone
}

// past returns what may have happened at the end of every block that is reached from Get with a key, and these blocks.
func (l *leak) past() (map[*cfg.Block]effects, []*cfg.Block) {
	ends := map[*cfg.Block]effects{}
	var order []*cfg.Block
	var visit func(block *cfg.Block, from int, h effects)
	visit = func(block *cfg.Block, from int, h effects) {
		end, _, isGet := l.ending(block, from)
		for _, node := range block.Nodes[from:end] {
			h = l.after(h, node)
		}
		if isGet && block == l.get.block {
			return
		}
		before, seen := ends[block]
		if !seen {
			order = append(order, block)
		}
		if h |= before; seen && h == before {
			return
		}
		ends[block] = h
		if isGet {
			return
		}
		given, _ := l.next(block)
		for _, next := range given {
			visit(next, 0, h)
		}
	}
	visit(l.get.block, l.get.index+1, nothing)
	return ends, order
}

// afterShutdown returns the blocks that may run when Get has not returned a key. What they do with it does not matter.
func (l *leak) afterShutdown(order []*cfg.Block) map[*cfg.Block]bool {
	shut := map[*cfg.Block]bool{}
	var visit func(block *cfg.Block)
	visit = func(block *cfg.Block) {
		if shut[block] || block == l.get.block {
			return
		}
		shut[block] = true
		for _, next := range block.Succs {
			visit(next)
		}
	}
	for _, block := range order {
		_, blocks := l.next(block)
		for _, next := range blocks {
			visit(next)
		}
	}
	return shut
}

// future returns what may happen after the end of block, which is run from a node on and goes on at next, and where the
// function may be left, or may get the next key. Without a next block, it ends in block.
func (l *leak) future(block *cfg.Block, from int, next *cfg.Block) (h effects, left, again token.Pos) {
	queue := []*cfg.Block{next}
	// ends reports whether the key must be Done in block, and notes where.
	ends := func(block *cfg.Block, from int) bool {
		_, pos, isGet := l.ending(block, from)
		switch {
		case isGet && !again.IsValid():
			again = pos
		case !isGet && pos.IsValid() && !left.IsValid():
			left = pos
		}
		return pos.IsValid()
	}
	if ends(block, from) {
		return h, left, again
	}
	for seen := map[*cfg.Block]bool{}; len(queue) > 0; queue = queue[1:] {
		block := queue[0]
		if seen[block] {
			continue
		}
		seen[block] = true
		end, _, _ := l.ending(block, 0)
		for _, node := range block.Nodes[:end] {
			h |= l.effects(node)
		}
		if !ends(block, 0) {
			given, _ := l.next(block)
			queue = append(queue, given...)
		}
	}
	return h, left, again
}
