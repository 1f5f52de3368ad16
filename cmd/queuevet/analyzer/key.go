package analyzer

import (
	"go/ast"
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

// uses finds out what the functions of a package do with keys.
type uses struct {
	pass   *analysis.Pass
	info   *types.Info
	bodies map[*types.Func]*ast.BlockStmt
	// known caches what functions do, and what they do with a parameter. It has a value while that is being found out.
	known map[types.Object]effects
}

// names are the variables that hold a key.
type names map[types.Object]bool

func newUses(pass *analysis.Pass) *uses {
	u := &uses{pass, pass.TypesInfo, map[*types.Func]*ast.BlockStmt{}, map[types.Object]effects{}}
	for _, file := range pass.Files {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
				if f, ok := pass.TypesInfo.Defs[d.Name].(*types.Func); ok {
					u.bodies[f] = d.Body
				}
			}
		}
	}
	return u
}

// holders returns v and the local variables of body that have the same value.
func (u *uses) holders(v *types.Var, body ast.Node) names {
	key := names{v: true}
	ast.Inspect(body, func(n ast.Node) bool {
		if assign, ok := n.(*ast.AssignStmt); ok {
			for i, right := range assign.Rhs {
				left, ok := assign.Lhs[i].(*ast.Ident)
				if obj := u.info.ObjectOf(left); ok && obj != nil && local(obj, body) && u.is(right, key) {
					key[obj] = true
				}
			}
		}
		return true
	})
	return key
}

// local reports whether obj is declared in body.
func local(obj types.Object, body ast.Node) bool {
	return body.Pos() <= obj.Pos() && obj.Pos() < body.End()
}

// is reports whether e is the key.
func (u *uses) is(e ast.Expr, key names) bool {
	id, ok := strip(u.info, e).(*ast.Ident)
	return ok && key[u.info.Uses[id]]
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

// of returns what node does with the key. Without names it returns whether node finishes any key.
func (u *uses) of(node ast.Node, key names) (all effects) {
	if node == nil {
		return nothing
	}
	keeps := func(values ...ast.Expr) {
		if slices.ContainsFunc(values, func(e ast.Expr) bool { return u.is(e, key) }) {
			all |= released
		}
	}
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeferStmt:
			if u.of(n.Call, key) != nothing {
				all |= deferred
			}
			return false
		case *ast.GoStmt:
			if u.of(n.Call, key) != nothing {
				all |= released
			}
			return false
		case *ast.FuncLit: // Called here, or later.
			all |= returned(u.of(n.Body, key))
			return false
		case *ast.Ident: // A call of a function, or its value.
			f, _ := u.info.Uses[n].(*types.Func)
			if isDone(f) {
				all |= released
			} else if f != nil && u.bodies[f.Origin()] != nil {
				all |= u.ofBody(f.Origin(), u.bodies[f.Origin()], nil)
			}
		case *ast.CallExpr:
			all |= u.ofCall(n, key)
		case *ast.SendStmt:
			keeps(n.Value)
		case *ast.CompositeLit:
			keeps(n.Elts...)
		case *ast.KeyValueExpr:
			keeps(n.Value)
		case *ast.ReturnStmt:
			keeps(n.Results...)
		case *ast.ValueSpec:
			keeps(n.Values...)
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if index, ok := left.(*ast.IndexExpr); ok {
					keeps(index.Index) // A table of keys.
				}
				id, ok := left.(*ast.Ident)
				if i < len(n.Rhs) && !(ok && (id.Name == "_" || key[u.info.ObjectOf(id)])) {
					keeps(n.Rhs[i])
				}
			}
		}
		return true
	})
	return all
}

// ofBody returns what a function of this package does with the key. Its answer is kept for obj: a parameter, or the
// function itself.
func (u *uses) ofBody(obj types.Object, body ast.Node, key names) effects {
	e, ok := u.known[obj]
	if !ok {
		u.known[obj] = nothing
		e = returned(u.of(body, key))
		u.known[obj] = e
	}
	return e
}

// returned returns the effects of a function when it has returned, and its deferred calls have run.
func returned(e effects) effects {
	if e&deferred != 0 {
		e = e&^deferred | released
	}
	return e
}

// reads matches the names of methods that look something up.
var reads = regexp.MustCompile(`^(Contains|Exists|Get|Has|List)`)

// ofCall returns what a call does with its arguments, the key and queues among them.
func (u *uses) ofCall(call *ast.CallExpr, key names) (all effects) {
	signature, ok := types.Unalias(u.info.TypeOf(call.Fun)).Underlying().(*types.Signature)
	if !ok { // A conversion.
		return nothing
	}
	f := callee(u.info, call)
	body := u.bodies[f]
	if selector, ok := call.Fun.(*ast.SelectorExpr); ok && body == nil && u.is(selector.X, key) {
		all |= passes // A method of the key.
	}
	for i, arg := range call.Args {
		parameter := min(i, signature.Params().Len()-1)
		switch {
		case f != nil && inQueuePackage(f):
		case !u.is(arg, key):
			if body == nil && isQueue(u.info.TypeOf(arg)) {
				all |= released // It may call any method.
			}
		case u.info.Types[call.Fun].IsBuiltin():
			if types.ExprString(call.Fun) == "append" {
				all |= released
			}
		case isFormatted(signature, parameter):
		case body != nil:
			v := f.Signature().Params().At(parameter)
			all |= u.ofBody(v, body, u.holders(v, body))
		case f == nil || f.Signature().Recv() != nil && !reads.MatchString(f.Name()) || u.knowsQueues(f):
			all |= passes
		}
	}
	return all
}

// isFormatted reports whether a parameter is formatted or logged: it is the variadic one, of any type.
func isFormatted(s *types.Signature, parameter int) bool {
	if !s.Variadic() || parameter != s.Params().Len()-1 {
		return false
	}
	slice, ok := s.Params().At(parameter).Type().Underlying().(*types.Slice)
	return ok && types.IsInterface(slice.Elem())
}

// knowsQueues reports whether the package of f, another one, has to do with queues.
func (u *uses) knowsQueues(f *types.Func) bool {
	var of program
	u.pass.ImportPackageFact(f.Pkg(), &of)
	return of.UsesQueues
}

// calls reports whether n itself calls one of these methods of a queue with the key.
func (u *uses) calls(n ast.Node, key names, methods ...string) (found bool) {
	each(n, func(n ast.Node) {
		if call, ok := n.(*ast.CallExpr); ok && isMethod(callee(u.info, call), methods...) {
			found = found || slices.ContainsFunc(call.Args, func(arg ast.Expr) bool { return u.is(arg, key) })
		}
	})
	return found
}
