package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// effects are what statements may do with a key that is held.
type effects int

const (
	// passes: the key is passed to a function that cannot be seen. It may finish the key.
	passes effects = 1 << iota
	// deferred: the key is finished when the function returns.
	deferred
	// released: the key is finished, or kept where another function finds it.
	released

	nothing effects = 0
)

// uses finds out what functions do with keys.
type uses struct {
	pass *analysis.Pass
	info *types.Info
	// bodies are the functions of this package.
	bodies map[*types.Func]*ast.FuncDecl
	// finishing caches finishes, parameters caches ofParameter. Both have a value while it is being found out.
	finishing  map[*types.Func]bool
	parameters map[*types.Var]effects
}

func newUses(pass *analysis.Pass) *uses {
	u := &uses{
		pass: pass, info: pass.TypesInfo, bodies: map[*types.Func]*ast.FuncDecl{},
		finishing: map[*types.Func]bool{}, parameters: map[*types.Var]effects{},
	}
	for _, file := range pass.Files {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
				if f, ok := pass.TypesInfo.Defs[d.Name].(*types.Func); ok {
					u.bodies[f] = d
				}
			}
		}
	}
	return u
}

// finishes reports whether n mentions a method Done, or a function of this package that does.
func (u *uses) finishes(n ast.Node) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !found {
			f, _ := u.info.Uses[id].(*types.Func)
			found = f != nil && (isDone(f) || isMethod(f, "DoneAndGet") || u.functionFinishes(f.Origin()))
		}
		return !found
	})
	return found
}

func (u *uses) functionFinishes(f *types.Func) bool {
	known, ok := u.finishing[f]
	if decl := u.bodies[f]; !ok && decl != nil {
		u.finishing[f] = false
		known = u.finishes(decl.Body)
		u.finishing[f] = known
	}
	return known
}

// ofParameter returns what a function of this package does with its parameter v.
func (u *uses) ofParameter(v *types.Var, body ast.Node) effects {
	known, ok := u.parameters[v]
	if !ok {
		u.parameters[v] = nothing
		known = u.of(body, u.aliases(body, v))
		u.parameters[v] = known
	}
	return known
}

// aliases returns v and the local variables of body that have the same value.
func (u *uses) aliases(body ast.Node, v *types.Var) map[types.Object]bool {
	names := map[types.Object]bool{v: true}
	for before := 0; before < len(names); {
		before = len(names)
		add := func(left *ast.Ident, right ast.Expr) {
			if id, ok := strip(u.info, right).(*ast.Ident); ok && names[u.info.Uses[id]] {
				if obj := u.info.ObjectOf(left); obj != nil && local(obj, body) {
					names[obj] = true
				}
			}
		}
		ast.Inspect(body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if id, ok := left.(*ast.Ident); ok && i < len(n.Rhs) {
						add(id, n.Rhs[i])
					}
				}
			case *ast.ValueSpec:
				for i, id := range n.Names {
					if i < len(n.Values) {
						add(id, n.Values[i])
					}
				}
			}
			return true
		})
	}
	return names
}

// variable returns the local variable that e names, the blank one included, or nil.
func (u *uses) variable(e ast.Expr) *ast.Ident {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if obj := u.info.ObjectOf(id); ok && obj != nil && obj.Parent() == u.pass.Pkg.Scope() {
		return nil
	}
	return id
}

// local reports whether obj is declared in body.
func local(obj types.Object, body ast.Node) bool {
	return body.Pos() <= obj.Pos() && obj.Pos() < body.End()
}

// strip removes parentheses, conversions and type assertions.
func strip(info *types.Info, e ast.Expr) ast.Expr {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.TypeAssertExpr:
			e = x.X
		case *ast.CallExpr:
			if !info.Types[x.Fun].IsType() || len(x.Args) != 1 {
				return e
			}
			e = x.Args[0]
		default:
			return e
		}
	}
}

// of returns what node does with the key that the variables names hold.
func (u *uses) of(node ast.Node, names map[types.Object]bool) (all effects) {
	var stack []ast.Node
	ast.Inspect(node, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		switch x := n.(type) {
		case *ast.FuncLit:
			all |= u.ofLiteral(x, stack, names)
			return false
		case *ast.CallExpr:
			all |= deferredIn(stack, u.ofCall(x))
		case *ast.Ident:
			if names[u.info.Uses[x]] {
				all |= deferredIn(stack, u.ofIdent(x, stack))
			}
		}
		stack = append(stack, n)
		return true
	})
	return all
}

// deferredIn returns e as the effect of a call, if it is that of a defer or go statement.
func deferredIn(stack []ast.Node, e effects) effects {
	if e != nothing && len(stack) > 0 {
		switch stack[0].(type) {
		case *ast.DeferStmt:
			return deferred
		case *ast.GoStmt:
			return released
		}
	}
	return e
}

// ofLiteral returns what it means that a function literal is written below stack.
func (u *uses) ofLiteral(lit *ast.FuncLit, stack []ast.Node, names map[types.Object]bool) effects {
	e := u.of(lit.Body, names)
	if e == nothing && !u.finishes(lit.Body) {
		return nothing
	}
	if call, ok := parent(stack).(*ast.CallExpr); ok && call.Fun == lit {
		return deferredIn(stack, returned(e))
	}
	if e == passes && !u.finishes(lit.Body) {
		return passes
	}
	return released // Kept or passed on: it may run at any time.
}

func parent(stack []ast.Node) ast.Node {
	if len(stack) == 0 {
		return nil
	}
	return stack[len(stack)-1]
}

// ofCall returns what a call does with keys that are not passed to it.
func (u *uses) ofCall(call *ast.CallExpr) effects {
	f := callee(u.info, call)
	switch {
	case f != nil && (isDone(f) || isMethod(f, "DoneAndGet") || u.functionFinishes(f)):
		return released
	case f != nil && (inQueuePackage(f) || u.bodies[f] != nil):
		return nothing
	}
	for _, arg := range call.Args {
		if isQueue(u.info.TypeOf(arg)) {
			return released // It may call any method.
		}
	}
	return nothing
}

// ofIdent returns what it means that the key is used below stack.
func (u *uses) ofIdent(id *ast.Ident, stack []ast.Node) effects {
	var e ast.Node = id
	for i := len(stack) - 1; i >= 0; i-- {
		switch parent := stack[i].(type) {
		case *ast.ParenExpr, *ast.TypeAssertExpr:
			e = parent
			continue
		case *ast.CallExpr:
			if u.info.Types[parent.Fun].IsType() {
				e = parent
				continue
			}
			return u.ofArgument(parent, e)
		case *ast.SelectorExpr:
			if f, ok := u.info.Uses[parent.Sel].(*types.Func); ok && u.bodies[f.Origin()] == nil && types.IsInterface(u.info.TypeOf(parent.X)) {
				return passes // A method of the key.
			}
			return nothing
		case *ast.IndexExpr:
			if i > 0 {
				if a, ok := stack[i-1].(*ast.AssignStmt); ok && slices.Contains(a.Lhs, ast.Expr(parent)) {
					return released // A table of keys.
				}
			}
			return nothing
		case *ast.AssignStmt:
			for i, left := range parent.Lhs {
				if i < len(parent.Rhs) && parent.Rhs[i] == e && u.variable(left) == nil {
					return released // A field, or a variable of the package.
				}
			}
			return nothing // An alias, or nothing that has the key in it.
		case *ast.UnaryExpr:
			if parent.Op == token.AND {
				return released
			}
			return nothing
		case *ast.ReturnStmt:
			if i > 0 {
				return nothing // In a function that is called: the caller has the key already.
			}
			return released
		case *ast.BinaryExpr, *ast.StarExpr, *ast.SliceExpr, *ast.ExprStmt, *ast.ValueSpec, *ast.IfStmt, *ast.SwitchStmt, *ast.CaseClause, *ast.RangeStmt:
			return nothing
		default:
			return released // Sent, part of a struct, its address is taken.
		}
	}
	return nothing // A condition.
}

// keeps matches the names of functions that keep what they are given: lists, sets, pools of workers.
var keeps = regexp.MustCompile(`(?i)^(add|append|dispatch|enqueue|go$|insert|put|push|queue|run$|schedule|send|set|start|store|submit|swap|loador)`)

// reads matches the names of methods that look something up.
var reads = regexp.MustCompile(`^(Contains|Exists|Find|Get|Has|Is|List|Load|Lookup)`)

// ofArgument returns what call does with the key e, which is one of its arguments, or in Fun.
func (u *uses) ofArgument(call *ast.CallExpr, e ast.Node) effects {
	i := slices.IndexFunc(call.Args, func(a ast.Expr) bool { return a == e })
	if i < 0 {
		return nothing
	}
	if id, ok := ast.Unparen(call.Fun).(*ast.Ident); ok {
		if b, ok := u.info.Uses[id].(*types.Builtin); ok {
			if b.Name() == "append" {
				return released
			}
			return nothing
		}
	}
	if lit, ok := ast.Unparen(call.Fun).(*ast.FuncLit); ok {
		return u.ofParameterOf(u.info.TypeOf(lit).(*types.Signature), i, lit.Body)
	}
	signature, _ := types.Unalias(u.info.TypeOf(call.Fun)).Underlying().(*types.Signature)
	if signature != nil && signature.Variadic() && i >= signature.Params().Len()-1 {
		if last, ok := signature.Params().At(signature.Params().Len() - 1).Type().Underlying().(*types.Slice); ok && types.IsInterface(last.Elem()) {
			return nothing // It is formatted or logged.
		}
	}
	f := callee(u.info, call)
	switch {
	case f == nil:
		return passes
	case inQueuePackage(f):
		return nothing
	case u.bodies[f] != nil:
		return u.ofParameterOf(f.Signature(), i, u.bodies[f].Body)
	case keeps.MatchString(f.Name()):
		return released
	case reads.MatchString(f.Name()) || !u.knowsQueues(f):
		return nothing
	}
	return passes
}

// ofParameterOf returns what a function does with argument i.
func (u *uses) ofParameterOf(s *types.Signature, i int, body *ast.BlockStmt) effects {
	i = min(i, s.Params().Len()-1)
	return returned(u.ofParameter(s.Params().At(i), body))
}

// returned returns the effects of a function when it has returned, and its deferred calls have run.
func returned(e effects) effects {
	if e&deferred != 0 {
		e = e&^deferred | released
	}
	return e
}

// knowsQueues reports whether the function f, of another package, may have to do with queues.
func (u *uses) knowsQueues(f *types.Func) bool {
	if s := f.Signature(); s.Recv() != nil && types.IsInterface(s.Recv().Type()) || f.Pkg() == nil {
		return true // Any type may implement it.
	}
	var of program
	u.pass.ImportPackageFact(f.Pkg(), &of)
	return of.UsesQueues
}

// manages reports whether n passes the key to a method of a queue that is called by whoever holds the key.
func (u *uses) manages(n ast.Node, names map[types.Object]bool) bool {
	found := false
	each(n, func(n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || !isMethod(callee(u.info, call), "AddRateLimited", "AddAfter", "Forget", "NumRequeues", "AddWithOpts") {
			return
		}
		for _, arg := range call.Args {
			id, ok := strip(u.info, arg).(*ast.Ident)
			found = found || ok && names[u.info.Uses[id]]
		}
	})
	return found
}
