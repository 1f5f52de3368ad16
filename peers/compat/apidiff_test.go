package compat

import (
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
)

// apiDiff compares two packages of which one is meant to replace the other.
//
// Packages cannot be compared with types.Identical, because a named type of one is never identical
// to the type of that name of the other. So this walks both and takes such a pair for one type.
type apiDiff struct {
	got, want *types.Package
	found     []string
}

// compareAPI returns what keeps got from replacing want: a line for every exported name, field or
// method of want that got lacks or has otherwise. What got exports beyond that is no difference,
// unless it breaks a program: a method more in an interface, a field more in a struct.
func compareAPI(got, want *types.Package) []string {
	d := &apiDiff{got: got, want: want}
	for _, name := range exportedNames(want) {
		if g := got.Scope().Lookup(name); g == nil {
			d.report(name, "is missing")
		} else {
			d.object(name, g, want.Scope().Lookup(name))
		}
	}
	return d.found
}

func exportedNames(p *types.Package) []string {
	var names []string
	for _, name := range p.Scope().Names() {
		if token.IsExported(name) {
			names = append(names, name)
		}
	}
	return names
}

func (d *apiDiff) report(name, format string, args ...any) {
	d.found = append(d.found, name+": "+fmt.Sprintf(format, args...))
}

func (d *apiDiff) object(name string, g, w types.Object) {
	if kind(g) != kind(w) {
		d.report(name, "is a %s, want a %s", kind(g), kind(w))
		return
	}
	if w, ok := w.(*types.TypeName); ok {
		d.typeName(name, g.(*types.TypeName), w)
		return
	}
	d.sameType(name, g.Type(), w.Type())
	if w, ok := w.(*types.Const); ok {
		if g := g.(*types.Const); !constant.Compare(g.Val(), token.EQL, w.Val()) {
			d.report(name, "is %v, want %v", g.Val(), w.Val())
		}
	}
}

func kind(o types.Object) string {
	switch o := o.(type) {
	case *types.Const:
		return "constant"
	case *types.Var:
		return "variable"
	case *types.Func:
		return "function"
	case *types.TypeName:
		if o.IsAlias() {
			return "type alias"
		}
		return "defined type"
	}
	return fmt.Sprintf("%T", o)
}

func (d *apiDiff) sameType(name string, g, w types.Type) {
	if !d.identical(g, w) {
		d.report(name, "is %s, want %s", d.show(g), d.show(w))
	}
}

// show writes a type so that types of the two packages look the same.
func (d *apiDiff) show(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == d.got || p == d.want {
			return ""
		}
		return p.Path()
	})
}

func (d *apiDiff) typeName(name string, g, w *types.TypeName) {
	if w.IsAlias() {
		// Whoever uses the name gets the type behind it, which is compared under its own name.
		d.sameType(name, g.Type(), w.Type())
		return
	}
	gNamed, wNamed := g.Type().(*types.Named), w.Type().(*types.Named)
	if !d.identicalTypeParams(gNamed.TypeParams(), wNamed.TypeParams()) {
		d.report(name, "is %s, want %s", d.show(gNamed), d.show(wNamed))
		return
	}
	if types.Comparable(wNamed) && !types.Comparable(gNamed) {
		d.report(name, "is not comparable")
	}
	switch w := wNamed.Underlying().(type) {
	case *types.Interface:
		g, ok := gNamed.Underlying().(*types.Interface)
		if !ok {
			d.report(name, "is no interface")
			return
		}
		d.interfaces(name, g, w)
		return // Its methods are its method set.
	case *types.Struct:
		g, ok := gNamed.Underlying().(*types.Struct)
		if !ok {
			d.report(name, "is no struct")
			return
		}
		d.fields(name, g, w)
	default:
		d.sameType(name, gNamed.Underlying(), w)
	}
	d.methods(name, gNamed, wNamed)
	d.methods("*"+name, types.NewPointer(gNamed), types.NewPointer(wNamed))
}

// interfaces reports methods that are missing, and those that are there for the first time: a type
// that a user wrote for want would not have them.
func (d *apiDiff) interfaces(name string, g, w *types.Interface) {
	d.methodSets(name, types.NewMethodSet(g), types.NewMethodSet(w))
	for m := range g.Methods() {
		if obj, _, _ := types.LookupFieldOrMethod(w, false, d.want, m.Name()); obj == nil {
			d.report(name+"."+m.Name(), "is not wanted")
		}
	}
	if g.IsMethodSet() != w.IsMethodSet() || g.IsComparable() != w.IsComparable() {
		d.sameType(name, g, w)
	}
}

// fields reports fields that are missing, other, in another order or more than wanted. All of that
// breaks programs that write a value without naming fields.
func (d *apiDiff) fields(name string, g, w *types.Struct) {
	gFields, wFields := exportedFields(g), exportedFields(w)
	for i, wf := range wFields {
		field := name + "." + w.Field(wf).Name()
		if i >= len(gFields) {
			d.report(field, "is missing")
			continue
		}
		gf := gFields[i]
		if got := g.Field(gf).Name(); got != w.Field(wf).Name() {
			d.report(field, "is missing or has another place: there is %s", got)
			continue
		}
		d.sameType(field, g.Field(gf).Type(), w.Field(wf).Type())
		if g.Field(gf).Embedded() != w.Field(wf).Embedded() {
			d.report(field, "embedded: %t, want %t", g.Field(gf).Embedded(), w.Field(wf).Embedded())
		}
		if g.Tag(gf) != w.Tag(wf) {
			d.report(field, "has the tag %q, want %q", g.Tag(gf), w.Tag(wf))
		}
	}
	for _, gf := range gFields[min(len(wFields), len(gFields)):] {
		d.report(name+"."+g.Field(gf).Name(), "is not wanted")
	}
	if len(wFields) == w.NumFields() && len(gFields) < g.NumFields() {
		d.report(name, "has unexported fields, wants none")
	}
}

func exportedFields(s *types.Struct) []int {
	var fields []int
	for i := range s.NumFields() {
		if s.Field(i).Exported() {
			fields = append(fields, i)
		}
	}
	return fields
}

func (d *apiDiff) methods(name string, g, w types.Type) {
	d.methodSets(name, types.NewMethodSet(g), types.NewMethodSet(w))
}

func (d *apiDiff) methodSets(name string, g, w *types.MethodSet) {
	for wm := range w.Methods() {
		m := wm.Obj()
		if !m.Exported() {
			continue
		}
		if gm := g.Lookup(d.got, m.Name()); gm == nil {
			d.report(name+"."+m.Name(), "is missing")
		} else {
			d.sameType(name+"."+m.Name(), gm.Obj().Type(), m.Type())
		}
	}
}
