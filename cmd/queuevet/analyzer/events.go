package analyzer

import (
	"go/ast"
	"go/token"
	"go/types"
)

// areEvents reports whether keys of type t are events rather than keys: pointers to structs that hold objects, each
// made for the Add that it is passed to, and never retried. A queue of them is a plain list on purpose.
func (c *keyCheck) areEvents(t types.Type) bool {
	p, ok := t.Underlying().(*types.Pointer)
	if !ok || isAPIObject(p) || !holdsObjects(p.Elem()) {
		return false
	}
	fresh := c.freshPointers()
	added, others := false, false
	for _, file := range c.pass.Files {
		if isTest(c.pass.Fset.File(file.FileStart)) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
			f := c.callee(call)
			if !ok || f == nil || !inQueuePackage(f) || f.Signature().Recv() == nil || !c.takes(sel, t) {
				return true
			}
			switch f.Name() {
			case "Add":
				added = true
				others = others || !c.isFresh(call.Args[0], fresh)
			case "AddAfter", "AddRateLimited", "AddWithOpts", "Forget", "NumRequeues":
				others = true
			}
			return true
		})
	}
	return added && !others
}

// takes reports whether sel is a method of a queue whose keys have the type t.
func (c *keyCheck) takes(sel *ast.SelectorExpr, t types.Type) bool {
	s := c.info.Selections[sel]
	if s == nil {
		return false
	}
	key := keyType(s.Recv())
	return key != nil && types.Identical(key, t)
}

// holdsObjects reports whether a struct of type t holds something that cannot be part of a key.
func holdsObjects(t types.Type) bool {
	s, ok := t.Underlying().(*types.Struct)
	if !ok {
		return false
	}
	for f := range s.Fields() {
		switch f.Type().Underlying().(type) {
		case *types.Interface, *types.Pointer, *types.Map, *types.Slice, *types.Signature:
			return true
		}
	}
	return false
}

// freshPointers returns the variables that begin as the address of a new struct.
func (c *keyCheck) freshPointers() map[types.Object]bool {
	fresh := map[types.Object]bool{}
	for _, file := range c.pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || a.Tok != token.DEFINE || len(a.Lhs) != 1 || len(a.Rhs) != 1 || !isNew(a.Rhs[0]) {
				return true
			}
			if id, ok := a.Lhs[0].(*ast.Ident); ok {
				fresh[c.info.Defs[id]] = true
			}
			return true
		})
	}
	return fresh
}

func (c *keyCheck) isFresh(e ast.Expr, fresh map[types.Object]bool) bool {
	if id, ok := ast.Unparen(e).(*ast.Ident); ok {
		return fresh[c.info.Uses[id]]
	}
	return isNew(e)
}

// isNew reports whether e is &T{…}.
func isNew(e ast.Expr) bool {
	u, ok := ast.Unparen(e).(*ast.UnaryExpr)
	if !ok || u.Op != token.AND {
		return false
	}
	_, ok = ast.Unparen(u.X).(*ast.CompositeLit)
	return ok
}
