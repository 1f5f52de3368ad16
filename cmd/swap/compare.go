package main

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
)

// compare returns an error if ours cannot take the place of theirs, client-go's object of the same name. What it lets
// through and is wrong all the same, the compiler finds in the generated file.
func compare(ours, theirs types.Object) error {
	o, t := describe(ours), describe(theirs)
	if lacking := slices.DeleteFunc(slices.Clone(t), func(line string) bool { return slices.Contains(o, line) }); len(lacking) > 0 {
		return fmt.Errorf("%s is another one in %s, which lacks: %s", theirs.Name(), queuePath, strings.Join(lacking, "; "))
	}
	// A type of the program has to implement all methods of an interface, so one more is one too many.
	if types.IsInterface(theirs.Type()) && len(o) != len(t) {
		return fmt.Errorf("interface %s has more methods in %s", theirs.Name(), queuePath)
	}
	return nil
}

// describe returns what a program can use of an object, a line for each of its parts.
func describe(object types.Object) []string {
	s := speller{object.Pkg()}
	name, ok := object.(*types.TypeName)
	if !ok {
		return []string{fmt.Sprintf("%T %s", object, s.spell(object.Type()))}
	}
	t := types.Unalias(instance(name.Type()))
	var lines []string
	switch under := t.Underlying().(type) {
	case *types.Struct:
		for field := range under.Fields() {
			if field.Exported() {
				lines = append(lines, "field "+field.Name()+" "+s.spell(field.Type()))
			}
		}
	case *types.Interface:
	default:
		lines = append(lines, "type "+s.spell(under))
	}
	methods := types.NewMethodSet(t)
	if !types.IsInterface(t) {
		methods = types.NewMethodSet(types.NewPointer(t))
	}
	for method := range methods.Methods() {
		if object := method.Obj(); object.Exported() {
			lines = append(lines, "method "+object.Name()+" "+s.spell(object.Type()))
		}
	}
	return lines
}

// instance returns t, or if it is generic, t of any.
func instance(t types.Type) types.Type {
	generic, ok := t.(interface{ TypeParams() *types.TypeParamList })
	if !ok || generic.TypeParams().Len() == 0 {
		return t
	}
	arguments := make([]types.Type, generic.TypeParams().Len())
	for i := range arguments {
		arguments[i] = types.Universe.Lookup("any").Type()
	}
	instance, err := types.Instantiate(nil, t, arguments, false)
	if err != nil {
		return t
	}
	return instance
}

// speller writes types such that equal types of client-go's workqueue and of the queue are written alike: without
// aliases, without the name of home, and without the names of parameters.
type speller struct {
	home *types.Package
}

func (s speller) spell(t types.Type) string {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		name := t.Obj().Name()
		if pkg := t.Obj().Pkg(); pkg != nil && pkg != s.home {
			name = pkg.Path() + "." + name
		}
		if t.TypeArgs().Len() == 0 {
			return name
		}
		var arguments []string
		for argument := range t.TypeArgs().Types() {
			arguments = append(arguments, s.spell(argument))
		}
		return name + "[" + strings.Join(arguments, ", ") + "]"
	case *types.TypeParam:
		return fmt.Sprint("$", t.Index())
	case *types.Pointer:
		return "*" + s.spell(t.Elem())
	case *types.Slice:
		return "[]" + s.spell(t.Elem())
	case *types.Map:
		return "map[" + s.spell(t.Key()) + "]" + s.spell(t.Elem())
	case *types.Signature:
		return "func" + s.typeParams(t) + s.tuple(t.Params(), t.Variadic()) + s.tuple(t.Results(), false)
	default:
		return types.TypeString(t, func(pkg *types.Package) string {
			if pkg == s.home {
				return ""
			}
			return pkg.Path()
		})
	}
}

func (s speller) typeParams(signature *types.Signature) string {
	var constraints []string
	for param := range signature.TypeParams().TypeParams() {
		constraints = append(constraints, s.spell(param.Constraint()))
	}
	return "[" + strings.Join(constraints, ", ") + "]"
}

func (s speller) tuple(tuple *types.Tuple, variadic bool) string {
	var spelled []string
	for v := range tuple.Variables() {
		spelled = append(spelled, s.spell(v.Type()))
	}
	if variadic {
		spelled = append(spelled, "...")
	}
	return "(" + strings.Join(spelled, ", ") + ")"
}
