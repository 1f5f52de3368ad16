package analyzer

import (
	"go/types"
	"regexp"

	"golang.org/x/tools/go/ssa"
)

// holders returns the values of fn that have key in them: copies, the variables that it is kept in, and the
// structs and slices that are built around it.
func holders(fn *ssa.Function, key ssa.Value) map[ssa.Value]bool {
	held := map[ssa.Value]bool{}
	if key == nil {
		return held
	}
	held[key] = true
	for changed := true; changed; {
		changed = false
		each(fn, func(instr ssa.Instruction) {
			if store, ok := instr.(*ssa.Store); ok && held[store.Val] {
				if base := baseOf(store.Addr); local(store.Addr) && !held[base] {
					held[base], changed = true, true
				}
			}
			v, ok := instr.(ssa.Value)
			if ok && !held[v] && holds(v, held, key.Type()) {
				held[v], changed = true, true
			}
		})
	}
	return held
}

// holds reports whether v has the key in it, because what it is made of has.
func holds(v ssa.Value, held map[ssa.Value]bool, key types.Type) bool {
	switch v := v.(type) {
	case *ssa.Phi:
		return anyHeld(held, v.Edges...)
	case *ssa.UnOp:
		return held[v.X]
	case *ssa.ChangeType:
		return held[v.X]
	case *ssa.ChangeInterface:
		return held[v.X]
	case *ssa.MakeInterface:
		return held[v.X]
	case *ssa.TypeAssert:
		return held[v.X]
	case *ssa.Slice:
		return held[v.X]
	case *ssa.Extract:
		_, ok := v.Tuple.(*ssa.TypeAssert)
		return ok && v.Index == 0 && held[v.Tuple]
	case *ssa.Field:
		return held[v.X] && types.Identical(v.Type(), key)
	case *ssa.FieldAddr:
		return held[v.X] && types.Identical(v.Type(), types.NewPointer(key))
	case *ssa.MakeClosure:
		return anyHeld(held, v.Bindings...)
	}
	return false
}

// baseOf returns the variable that addr is the address of a part of.
func baseOf(addr ssa.Value) ssa.Value {
	for {
		switch a := addr.(type) {
		case *ssa.FieldAddr:
			addr = a.X
		case *ssa.IndexAddr:
			addr = a.X
		default:
			return addr
		}
	}
}

// local reports whether addr is in a variable of the function itself.
func local(addr ssa.Value) bool {
	_, ok := baseOf(addr).(*ssa.Alloc)
	return ok
}

// handsOn reports whether instr puts one of the values held where other functions find it: in a channel, a map, a
// variable that is not local, a slice that grows, or a result.
func handsOn(instr ssa.Instruction, held map[ssa.Value]bool) bool {
	switch instr := instr.(type) {
	case *ssa.Return:
		return anyHeld(held, instr.Results...)
	case *ssa.Store:
		return held[instr.Val] && !local(instr.Addr)
	case *ssa.Send:
		return held[instr.X]
	case *ssa.MapUpdate:
		return held[instr.Key] || held[instr.Value]
	case *ssa.Select:
		for _, state := range instr.States {
			if state.Send != nil && held[state.Send] {
				return true
			}
		}
	case *ssa.Call:
		if builtin, ok := instr.Call.Value.(*ssa.Builtin); ok {
			return builtin.Name() == "append" && anyHeld(held, instr.Call.Args...)
		}
	}
	return false
}

// keeps matches the names of functions that keep what they are given: lists, sets, pools of workers.
var keeps = regexp.MustCompile(`^(Add|Append|Enqueue|Insert|Put|Push|Queue|Schedule|Send|Set|Store|Submit|Swap|LoadOr)`)

// reads matches the names of methods that look something up.
var reads = regexp.MustCompile(`^(Contains|Exists|Find|Get|Has|Is|List|Load|Lookup)`)

// passed reports whether one of args is held. What a variadic function formats or logs does not count.
func passed(common *ssa.CallCommon, args []ssa.Value, held map[ssa.Value]bool) bool {
	if common.Signature().Variadic() && len(args) > 0 {
		last, ok := args[len(args)-1].Type().Underlying().(*types.Slice) // not so in append(bytes, string...)
		if ok && types.IsInterface(last.Elem()) {
			args = args[:len(args)-1]
		}
	}
	return anyHeld(held, args...)
}

// bind returns the values of fn that are held where common calls it with values that are. known is what is known
// of the caller's values; of returns the same of those of fn.
func bind(common *ssa.CallCommon, fn *ssa.Function, held map[ssa.Value]bool, known env) (inside map[ssa.Value]bool, of env) {
	inside, of = map[ssa.Value]bool{}, env{}
	pair := func(inner, outer ssa.Value) {
		if held[outer] {
			for v := range holders(fn, inner) {
				inside[v] = true
			}
		}
		if value, ok := known.fact(outer); ok {
			of[name(inner)] = value
		}
		if value, ok := known["*"+name(outer)]; ok {
			of["*"+name(inner)] = value
		}
	}
	if len(common.Args) == len(fn.Params) {
		for i, arg := range common.Args {
			pair(fn.Params[i], arg)
		}
	}
	if mc, ok := common.Value.(*ssa.MakeClosure); ok && mc.Fn == fn {
		for i, bound := range mc.Bindings {
			pair(fn.FreeVars[i], bound)
		}
	}
	return inside, of
}
