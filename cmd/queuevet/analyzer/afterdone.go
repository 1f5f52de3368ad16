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
	Requires: []*analysis.Analyzer{Metrics, ctrlflow.Analyzer},
}

func runAfterDone(pass *analysis.Pass) (any, error) {
	eachFunction(pass, func(f *function) {
		seen := map[done]bool{{}: true}
		each(f.body, func(n ast.Node) {
			if call, ok := n.(*ast.CallExpr); ok {
				if d := f.doneOf(call); !seen[d] {
					seen[d] = true
					f.checkDone(d)
				}
			}
		})
	})
	return nil, nil
}

// done is a queue, as it is written, and a key for which a function calls Done.
type done struct {
	queue string
	key   *types.Var
}

// doneOf returns what call calls Done of, if that are variables and fields.
func (f *function) doneOf(call *ast.CallExpr) done {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !isMethod(callee(f.info, call), "Done") || len(call.Args) != 1 {
		return done{}
	}
	d := done{types.ExprString(selector.X), f.variable(strip(f.info, call.Args[0]))}
	if d.key == nil || strings.ContainsAny(d.queue, "([{") {
		return done{}
	}
	return d
}

// kind is what a point does to a key, as far as this analyzer is concerned.
type kind int

const (
	other kind = iota
	finishes
	processes
	renews // The key, or the queue, has another value from here on.
)

// checkDone reports every point that finishes or processes the key and has a Done before it on every way to it, and a
// second Done that is on every way from the first. Paths are not followed, as in leak.
func (f *function) checkDone(d done) {
	kinds := map[*point]kind{}
	var dones []*point
	starts := f.points[:1:1] // Where the key has not been Done yet.
	for _, p := range f.points {
		switch kinds[p] = f.kindOf(p.node, d); kinds[p] {
		case renews:
			starts = append(starts, p)
		case finishes:
			dones = append(dones, p)
		}
	}
	said := set{}
	say := func(p, first *point, message string) {
		if !said[p] {
			said[p] = true
			report(f.pass, p.node.Pos(), message, f.line(first.node.Pos()))
		}
	}
	for _, first := range dones {
		_, deferred := first.node.(*ast.DeferStmt)
		without := after(starts, func(p *point) bool { return p == first })
		later := after([]*point{first}, func(p *point) bool { return kinds[p] == renews })
		toNext := after([]*point{first}, func(p *point) bool { return kinds[p] == finishes })
		inevitable := true // There is a second Done on every way.
		for p := range toNext {
			inevitable = inevitable && kinds[p] != renews && (len(p.next) > 0 || kinds[p] == finishes)
		}
		for _, p := range f.points {
			certain := later[p] && !without[p]
			switch {
			case kinds[p] == finishes && (certain || inevitable && toNext[p] && p != first):
				say(p, first, "second Done of this key (the first is in line %d): by now another worker may hold it")
			case kinds[p] == processes && certain && !deferred:
				say(p, first, "key is processed after its Done in line %d: another worker may process it at the same time")
			}
		}
	}
}

// kindOf returns what node does to the key.
func (f *function) kindOf(node ast.Node, d done) (k kind) {
	each(node, func(n ast.Node) {
		if call, ok := n.(*ast.CallExpr); ok {
			switch {
			case isMethod(callee(f.info, call), "Get", "GetWithPriority", "GetContext"):
				k = renews
			case k == other && f.doneOf(call) == d:
				k = finishes
			case k == other && f.processesKey(call, d.key):
				k = processes
			}
		}
		if assign, ok := n.(*ast.AssignStmt); ok {
			for _, left := range assign.Lhs { // The queue, or a field on the way to it.
				if strings.HasPrefix(d.queue+".", types.ExprString(left)+".") {
					k = renews
				}
			}
		}
		if f.assigns(n, d.key) {
			k = renews
		}
	})
	if id, ok := node.(*ast.Ident); ok && f.variable(id) == d.key {
		k = renews // The variable of a range.
	}
	return k
}

// working matches the names of functions that do a key's work.
var working = regexp.MustCompile(`^(?i)(do)?(sync|reconcile|process|handle|work)`)

// processesKey reports whether call passes the key to a function that does its work: it returns an error and takes none.
func (f *function) processesKey(call *ast.CallExpr, key *types.Var) bool {
	signature, _ := types.Unalias(f.info.TypeOf(call.Fun)).Underlying().(*types.Signature)
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
		slices.ContainsFunc(call.Args, func(arg ast.Expr) bool { return f.variable(strip(f.info, arg)) == key })
}
