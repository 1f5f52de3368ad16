package compat

import "go/types"

// identical is types.Identical, but a named type of one package is identical to the one of that name of
// the other, and a type parameter to the one at the same place. Unexported names are no business of
// the packages' users, so all unexported types of the two packages are alike.
func (d *apiDiff) identical(g, w types.Type) bool {
	g, w = types.Unalias(g), types.Unalias(w)
	switch w := w.(type) {
	case *types.Basic:
		g, ok := g.(*types.Basic)
		return ok && g.Kind() == w.Kind()
	case *types.Named:
		g, ok := g.(*types.Named)
		return ok && d.sameName(g.Obj(), w.Obj()) && d.identicalLists(g.TypeArgs(), w.TypeArgs())
	case *types.TypeParam:
		g, ok := g.(*types.TypeParam)
		return ok && g.Index() == w.Index()
	case *types.Pointer:
		g, ok := g.(*types.Pointer)
		return ok && d.identical(g.Elem(), w.Elem())
	case *types.Slice:
		g, ok := g.(*types.Slice)
		return ok && d.identical(g.Elem(), w.Elem())
	case *types.Array:
		g, ok := g.(*types.Array)
		return ok && g.Len() == w.Len() && d.identical(g.Elem(), w.Elem())
	case *types.Map:
		g, ok := g.(*types.Map)
		return ok && d.identical(g.Key(), w.Key()) && d.identical(g.Elem(), w.Elem())
	case *types.Chan:
		g, ok := g.(*types.Chan)
		return ok && g.Dir() == w.Dir() && d.identical(g.Elem(), w.Elem())
	case *types.Signature:
		g, ok := g.(*types.Signature)
		return ok && d.identicalSignatures(g, w)
	case *types.Struct:
		g, ok := g.(*types.Struct)
		return ok && d.identicalStructs(g, w)
	case *types.Interface:
		g, ok := g.(*types.Interface)
		return ok && d.identicalInterfaces(g, w)
	case *types.Union:
		g, ok := g.(*types.Union)
		return ok && d.identicalUnions(g, w)
	}
	return false
}

func (d *apiDiff) sameName(g, w *types.TypeName) bool {
	if g.Pkg() != d.got || w.Pkg() != d.want {
		return g.Pkg() == w.Pkg() && g.Name() == w.Name()
	}
	return g.Name() == w.Name() || !g.Exported() && !w.Exported()
}

func (d *apiDiff) identicalLists(g, w *types.TypeList) bool {
	if g.Len() != w.Len() {
		return false
	}
	for i := range w.Len() {
		if !d.identical(g.At(i), w.At(i)) {
			return false
		}
	}
	return true
}

func (d *apiDiff) identicalTypeParams(g, w *types.TypeParamList) bool {
	if g.Len() != w.Len() {
		return false
	}
	for i := range w.Len() {
		if !d.identical(g.At(i).Constraint(), w.At(i).Constraint()) {
			return false
		}
	}
	return true
}

func (d *apiDiff) identicalTuples(g, w *types.Tuple) bool {
	if g.Len() != w.Len() {
		return false
	}
	for i := range w.Len() {
		if !d.identical(g.At(i).Type(), w.At(i).Type()) {
			return false
		}
	}
	return true
}

func (d *apiDiff) identicalSignatures(g, w *types.Signature) bool {
	return g.Variadic() == w.Variadic() &&
		d.identicalTypeParams(g.TypeParams(), w.TypeParams()) &&
		d.identicalTuples(g.Params(), w.Params()) &&
		d.identicalTuples(g.Results(), w.Results())
}

func (d *apiDiff) identicalStructs(g, w *types.Struct) bool {
	if g.NumFields() != w.NumFields() {
		return false
	}
	for i := range w.NumFields() {
		gf, wf := g.Field(i), w.Field(i)
		if gf.Name() != wf.Name() || gf.Embedded() != wf.Embedded() || g.Tag(i) != w.Tag(i) ||
			!d.identical(gf.Type(), wf.Type()) {
			return false
		}
	}
	return true
}

func (d *apiDiff) identicalInterfaces(g, w *types.Interface) bool {
	if g.NumMethods() != w.NumMethods() || g.NumEmbeddeds() != w.NumEmbeddeds() ||
		g.IsComparable() != w.IsComparable() {
		return false
	}
	// Both lists are sorted by name.
	for i := range w.NumMethods() {
		if g.Method(i).Name() != w.Method(i).Name() || !d.identical(g.Method(i).Type(), w.Method(i).Type()) {
			return false
		}
	}
	for i := range w.NumEmbeddeds() {
		if !d.identical(g.EmbeddedType(i), w.EmbeddedType(i)) {
			return false
		}
	}
	return true
}

func (d *apiDiff) identicalUnions(g, w *types.Union) bool {
	if g.Len() != w.Len() {
		return false
	}
	for i := range w.Len() {
		if g.Term(i).Tilde() != w.Term(i).Tilde() || !d.identical(g.Term(i).Type(), w.Term(i).Type()) {
			return false
		}
	}
	return true
}
