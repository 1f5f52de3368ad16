package analyzer

import (
	"go/ast"
	"go/types"
	"regexp"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/cfg"
)

// AfterDone reports what must not happen to a key after its Done.
var AfterDone = &analysis.Analyzer{
	Name: "queueafterdone",
	Doc: `report keys that are Done twice, or processed after their Done

After Done another worker may hold the key. A second Done then takes it from that worker: in client-go the key is
queued twice, and two workers hold it. Processing after Done runs beside the other worker's. (Add, AddAfter,
AddRateLimited, Forget and NumRequeues are fine after Done.)`,
	URL:      url + "#queueafterdone",
	Run:      runAfterDone,
	Requires: []*analysis.Analyzer{functions},
}

func runAfterDone(pass *analysis.Pass) (any, error) {
	for _, f := range pass.ResultOf[functions].([]*function) {
		seen := map[string]bool{}
		each(f.body, func(n ast.Node) {
			if call, ok := n.(*ast.CallExpr); ok {
				if d := f.doneOf(call); d != nil && !seen[d.text] {
					seen[d.text] = true
					d.check(pass)
				}
			}
		})
	}
	return nil, nil
}

// done is a queue and a key for which a function calls Done.
type done struct {
	*function
	queue ast.Expr
	key   *types.Var
	text  string // The queue and the key as they are written.
}

// doneOf returns the queue and the key of a call of Done, or nil if they are more than variables and fields.
func (f *function) doneOf(call *ast.CallExpr) *done {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !isMethod(callee(f.info, call), "Done") || len(call.Args) != 1 {
		return nil
	}
	key := f.variable(strip(f.info, call.Args[0]))
	for x := selector.X; ; {
		inner, ok := x.(*ast.SelectorExpr)
		if !ok {
			if f.variable(x) == nil || key == nil {
				return nil
			}
			return &done{f, selector.X, key, types.ExprString(selector.X) + " " + key.Name()}
		}
		x = inner.X
	}
}

// kind is what a node does to a key, as far as this analyzer is concerned.
type kind int

const (
	other kind = iota
	finishes
	processes
	renews // The key, or the queue, has another value from here on.
)

// check reports every node that finishes or processes the key and has a Done before it on every way to it, and a second
// Done that is on every way from the first. Paths are not followed, as in leak.
func (d *done) check(pass *analysis.Pass) {
	kinds, entries, dones := map[ast.Node]kind{}, []position{{d.graph.Blocks[0], 0}}, []position{}
	for _, block := range d.graph.Blocks {
		for i, node := range block.Nodes {
			kinds[node] = d.kindOf(node)
			switch kinds[node] {
			case renews:
				entries = append(entries, position{block, i + 1})
			case finishes:
				dones = append(dones, position{block, i})
			}
		}
	}
	said := map[ast.Node]bool{}
	say := func(node, first ast.Node) {
		message := "second Done of this key (the first is in line %d): by now another worker may hold it"
		if kinds[node] == processes {
			message = "key is processed after its Done in line %d: another worker may process it at the same time"
		}
		if !said[node] {
			said[node] = true
			report(pass, node.Pos(), message, d.line(first.Pos()))
		}
	}
	for _, at := range dones {
		first := at.block.Nodes[at.index]
		// What is reached without this Done is not certain.
		without := map[ast.Node]bool{}
		for _, entry := range entries {
			walk(entry, func(node ast.Node) bool { without[node] = true; return node != first })
		}
		var second ast.Node
		walk(position{at.block, at.index + 1}, func(node ast.Node) bool {
			_, deferred := first.(*ast.DeferStmt)
			if k := kinds[node]; !without[node] && (k == finishes || k == processes && !deferred) {
				say(node, first)
			}
			return kinds[node] != renews
		})
		always := !walk(position{at.block, at.index + 1}, func(node ast.Node) bool {
			if kinds[node] == finishes && node != first {
				second = node
				return false
			}
			return true
		})
		if always && second != nil && !d.renewedBefore(kinds, at, first) {
			say(second, first)
		}
	}
}

// renewedBefore reports whether the key may have another value on a way from a Done to the next one.
func (d *done) renewedBefore(kinds map[ast.Node]kind, at position, first ast.Node) (renewed bool) {
	walk(position{at.block, at.index + 1}, func(node ast.Node) bool {
		renewed = renewed || kinds[node] == renews || node == first
		return kinds[node] != finishes
	})
	return renewed
}

// walk calls f with the nodes that may run from a position on, and goes on behind those for which it returns true. It
// reports whether the function may be left on the way.
func walk(from position, f func(ast.Node) bool) (leaves bool) {
	seen := map[*cfg.Block]bool{}
	var visit func(block *cfg.Block, index int)
	visit = func(block *cfg.Block, index int) {
		for _, node := range block.Nodes[index:] {
			if !f(node) {
				return
			}
		}
		leaves = leaves || len(block.Succs) == 0
		for _, next := range block.Succs {
			if !seen[next] {
				seen[next] = true
				visit(next, 0)
			}
		}
	}
	visit(from.block, from.index)
	return leaves
}

// kindOf returns what node does to the key.
func (d *done) kindOf(node ast.Node) (k kind) {
	each(node, func(n ast.Node) {
		call, isCall := n.(*ast.CallExpr)
		switch {
		case isCall && isMethod(callee(d.info, call), "Get", "GetWithPriority", "GetContext", "GetBatch", "DoneAndGet"):
			k = renews
		case isCall && k == other:
			if of := d.doneOf(call); of != nil && of.text == d.text && of.key == d.key {
				k = finishes
			} else if d.processesKey(call) {
				k = processes
			}
		}
		if d.assigns(n, d.key) || d.assignsQueue(n) {
			k = renews
		}
	})
	if _, ok := node.(*ast.Ident); ok && d.variable(node.(*ast.Ident)) == d.key {
		k = renews // The variable of a range.
	}
	return k
}

// assignsQueue reports whether n changes something on the way to the queue.
func (d *done) assignsQueue(n ast.Node) bool {
	assign, ok := n.(*ast.AssignStmt)
	if !ok {
		return false
	}
	for _, left := range assign.Lhs {
		for x := d.queue; ; {
			if types.ExprString(left) == types.ExprString(x) {
				return true
			}
			inner, ok := x.(*ast.SelectorExpr)
			if !ok {
				break
			}
			x = inner.X
		}
	}
	return false
}

// working matches the names of functions that do a key's work.
var working = regexp.MustCompile(`^(?i)(do)?(sync|reconcile|process|handle|work)`)

// processesKey reports whether call passes the key to a function that does its work: it returns an error and takes none.
func (d *done) processesKey(call *ast.CallExpr) bool {
	signature, _ := types.Unalias(d.info.TypeOf(call.Fun)).Underlying().(*types.Signature)
	if signature == nil || signature.Results().Len() == 0 {
		return false
	}
	isError := func(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }
	for p := range signature.Params().Variables() {
		if isError(p.Type()) {
			return false
		}
	}
	name := ""
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		name = fun.Name
	case *ast.SelectorExpr:
		name = fun.Sel.Name
	}
	last := signature.Results().At(signature.Results().Len() - 1).Type()
	if !isError(last) || !working.MatchString(name) {
		return false
	}
	for _, arg := range call.Args {
		if d.variable(strip(d.info, arg)) == d.key {
			return true
		}
	}
	return false
}
