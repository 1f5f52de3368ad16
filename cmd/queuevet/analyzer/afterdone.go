package analyzer

import (
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"

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
		_, deferred := first.(*ast.DeferStmt)
		// A node that is also reached without this Done is not certain.
		without := map[ast.Node]bool{}
		for _, entry := range entries {
			walk(entry, func(node ast.Node) bool { without[node] = true; return node != first })
		}
		next := position{at.block, at.index + 1}
		walk(next, func(node ast.Node) bool {
			if k := kinds[node]; !without[node] && (k == finishes || k == processes && !deferred) {
				say(node, first)
			}
			return kinds[node] != renews
		})
		// But a second Done on every way from this one is.
		var second ast.Node
		renewed := false
		uncertain := walk(next, func(node ast.Node) bool {
			renewed = renewed || kinds[node] == renews
			if kinds[node] == finishes {
				second = node
			}
			return kinds[node] != finishes
		})
		if !uncertain && !renewed && second != nil && second != first {
			say(second, first)
		}
	}
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

// assignsQueue reports whether n changes a variable or a field on the way to the queue.
func (d *done) assignsQueue(n ast.Node) bool {
	assign, ok := n.(*ast.AssignStmt)
	return ok && slices.ContainsFunc(assign.Lhs, func(left ast.Expr) bool {
		return strings.HasPrefix(types.ExprString(d.queue)+".", types.ExprString(left)+".")
	})
}

// working matches the names of functions that do a key's work.
var working = regexp.MustCompile(`^(?i)(do)?(sync|reconcile|process|handle|work)`)

// processesKey reports whether call passes the key to a function that does its work: it returns an error and takes none.
func (d *done) processesKey(call *ast.CallExpr) bool {
	signature, _ := types.Unalias(d.info.TypeOf(call.Fun)).Underlying().(*types.Signature)
	if signature == nil || signature.Results().Len() == 0 {
		return false
	}
	isError := func(v *types.Var) bool { return types.Identical(v.Type(), types.Universe.Lookup("error").Type()) }
	for p := range signature.Params().Variables() {
		if isError(p) {
			return false
		}
	}
	name := types.ExprString(call.Fun)
	name = name[strings.LastIndex(name, ".")+1:]
	return isError(signature.Results().At(signature.Results().Len()-1)) && working.MatchString(name) &&
		slices.ContainsFunc(call.Args, func(arg ast.Expr) bool { return d.variable(strip(d.info, arg)) == d.key })
}
