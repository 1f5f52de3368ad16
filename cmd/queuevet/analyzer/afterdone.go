package analyzer

import (
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
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
	Requires: []*analysis.Analyzer{facts, ctrlflow.Analyzer},
}

func runAfterDone(pass *analysis.Pass) (any, error) {
	eachFunction(pass, func(f *function) {
		seen := map[string]bool{}
		each(f.body, func(n ast.Node) {
			if call, ok := n.(*ast.CallExpr); ok {
				if d := f.doneOf(call); d != nil && !seen[d.text] {
					seen[d.text] = true
					d.check()
				}
			}
		})
	})
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

// check reports every point that finishes or processes the key and has a Done before it on every way to it, and a second
// Done that is on every way from the first. Paths are not followed, as in leak.
func (d *done) check() {
	kinds := map[*point]kind{}
	var dones []*point
	starts := []*point{d.points[0]} // Where the key has not been Done yet.
	for _, p := range d.points {
		switch kinds[p] = d.kindOf(p.node); kinds[p] {
		case renews:
			starts = append(starts, p)
		case finishes:
			dones = append(dones, p)
		}
	}
	said := set{}
	say := func(p, first *point) {
		message := "second Done of this key (the first is in line %d): by now another worker may hold it"
		if kinds[p] == processes {
			message = "key is processed after its Done in line %d: another worker may process it at the same time"
		}
		if !said[p] {
			said[p] = true
			report(d.pass, p.node.Pos(), message, d.line(first.node.Pos()))
		}
	}
	for _, first := range dones {
		_, deferred := first.node.(*ast.DeferStmt)
		without := after(starts, func(p *point) bool { return p == first })
		later := after([]*point{first}, func(p *point) bool { return kinds[p] == renews })
		for _, p := range d.points {
			certain := later[p] && !without[p]
			if certain && (kinds[p] == finishes || kinds[p] == processes && !deferred) {
				say(p, first)
			}
		}
		if second := d.next(first, kinds); second != nil {
			say(second, first)
		}
	}
}

// next returns a second Done of the key, if every way from the first leads to one.
func (d *done) next(first *point, kinds map[*point]kind) (second *point) {
	ways := after([]*point{first}, func(p *point) bool { return kinds[p] == finishes })
	for _, p := range d.points {
		switch {
		case !ways[p]:
		case kinds[p] == finishes:
			second = p
		case kinds[p] == renews || len(p.next) == 0:
			return nil
		}
	}
	if second == first {
		return nil
	}
	return second
}

// kindOf returns what node does to the key.
func (d *done) kindOf(node ast.Node) (k kind) {
	each(node, func(n ast.Node) {
		call, isCall := n.(*ast.CallExpr)
		switch {
		case isCall && isMethod(callee(d.info, call), "Get", "GetWithPriority", "GetContext"):
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
