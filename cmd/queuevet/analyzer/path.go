package analyzer

import (
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// A search follows the paths of a function from one of its instructions on. It leaves out the paths that cannot be
// taken because a condition was found true before, or false.
type search struct {
	// visit is called with every instruction on a path. It returns false if the path ends there.
	visit func(p *path, instr ssa.Instruction) bool
	// given has what is known of values as soon as they exist.
	given map[ssa.Value]bool

	steps  int
	seen   map[string]bool
	worthy map[string]bool // see remember
}

// path is how the search came to an instruction.
type path struct {
	known env
	// deferred: something that finishes the key will run when the function returns.
	deferred bool
}

// env has what is known of values, by their names (see name): a boolean, or whether something is nil.
type env map[string]bool

const (
	maxSteps = 20000
	maxKnown = 24
)

// run follows the paths from block.Instrs[index] on. It returns false if there were too many.
func (s *search) run(block *ssa.BasicBlock, index int, p path) bool {
	if s.seen == nil {
		s.seen, s.worthy = map[string]bool{}, remember(block.Parent())
	}
	if s.steps++; s.steps > maxSteps {
		return false
	}
	p.known = maps.Clone(p.known)
	if p.known == nil {
		p.known = env{}
	}
	for _, instr := range block.Instrs[index:] {
		if _, ok := instr.(*ssa.Phi); ok {
			continue // entered by enter
		}
		if !s.visit(&p, instr) {
			return true
		}
		p.known.execute(instr)
		if v, ok := instr.(ssa.Value); ok {
			if value, ok := s.given[v]; ok {
				p.known[name(v)] = value
			}
		}
	}
	branch, _ := block.Instrs[len(block.Instrs)-1].(*ssa.If)
	for i, next := range block.Succs {
		q := path{maps.Clone(p.known), p.deferred}
		if branch != nil && !q.known.assume(branch.Cond, i == 0) {
			continue
		}
		q.known.enter(block, next)
		maps.DeleteFunc(q.known, func(k string, _ bool) bool { return !s.worthy[k] })
		state := fmt.Sprint(next.Index, q.deferred, q.known.String())
		if s.seen[state] {
			continue
		}
		s.seen[state] = true
		if !s.run(next, 0, q) {
			return false
		}
	}
	return true
}

// remember returns the names of the conditions of fn that are worth remembering, because they are tested more
// than once or become the value of a variable. To remember all would multiply the paths.
func remember(fn *ssa.Function) map[string]bool {
	tests := map[string]int{}
	assigned := func(v ssa.Value) {
		tests[name(v)] += 2
		named, _ := condition(v)
		tests[named] += 2
	}
	each(fn, func(instr ssa.Instruction) {
		switch instr := instr.(type) {
		case *ssa.If:
			named, _ := condition(instr.Cond)
			tests[named]++
		case *ssa.Phi:
			tests[instr.Name()]++
			for _, edge := range instr.Edges {
				assigned(edge)
			}
		case *ssa.Store:
			tests["*"+name(instr.Addr)] += 2
			assigned(instr.Val)
		case ssa.CallInstruction:
			for _, arg := range instr.Common().Args {
				assigned(arg)
			}
		}
	})
	worthy := map[string]bool{}
	for named, n := range tests {
		worthy[named] = n > 1
	}
	return worthy
}

func (e env) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(e)) {
		fmt.Fprintf(&b, " %s=%t", k, e[k])
	}
	return b.String()
}

// name returns a name for what v is, the same for two reads of one variable.
func name(v ssa.Value) string {
	switch v := v.(type) {
	case *ssa.Const:
		return v.String()
	case *ssa.UnOp:
		if v.Op == token.MUL {
			return "*" + name(v.X)
		}
	case *ssa.FieldAddr:
		return fmt.Sprintf("%s.%d", name(v.X), v.Field)
	case *ssa.Field:
		return fmt.Sprintf("%s.%d", name(v.X), v.Field)
	case *ssa.MakeInterface:
		return name(v.X)
	case *ssa.ChangeInterface:
		return name(v.X)
	case *ssa.ChangeType:
		return name(v.X)
	case *ssa.TypeAssert:
		if !v.CommaOk {
			return name(v.X)
		}
	case *ssa.Extract:
		if t, ok := v.Tuple.(*ssa.TypeAssert); ok && v.Index == 0 {
			return name(t.X)
		}
	}
	return v.Name()
}

// condition returns cond as a name, and whether cond is its negation.
func condition(cond ssa.Value) (named string, negated bool) {
	switch v := cond.(type) {
	case *ssa.UnOp:
		if v.Op == token.NOT {
			named, negated = condition(v.X)
			return named, !negated
		}
	case *ssa.BinOp:
		x, y := name(v.X), name(v.Y)
		switch v.Op {
		case token.EQL, token.NEQ:
			if isNil(v.X) {
				x, y = y, x
			}
			if isNil(v.X) || isNil(v.Y) {
				return x, v.Op == token.NEQ // known[x]: x is nil
			}
			return min(x, y) + "==" + max(x, y), v.Op == token.NEQ
		case token.LSS:
			return x + "<" + y, false
		case token.GEQ:
			return x + "<" + y, true
		case token.GTR:
			return y + "<" + x, false
		case token.LEQ:
			return y + "<" + x, true
		}
	}
	return name(cond), false
}

func isNil(v ssa.Value) bool {
	c, ok := v.(*ssa.Const)
	return ok && c.IsNil()
}

// eval returns the value of the condition cond, if it is known.
func (e env) eval(cond ssa.Value) (value, ok bool) {
	if c, isConst := cond.(*ssa.Const); isConst && c.Value != nil && c.Value.Kind() == constant.Bool {
		return constant.BoolVal(c.Value), true
	}
	named, negated := condition(cond)
	if value, ok = e[named]; ok {
		return value != negated, true
	}
	if call, isCall := cond.(*ssa.Call); isCall {
		// errors.Is(nil, …)
		if fn := call.Call.StaticCallee(); fn != nil && fn.String() == "errors.Is" && e[name(call.Call.Args[0])] {
			return false, true
		}
	}
	return false, false
}

// assume adds that cond is value. It returns false if that is known to be wrong.
func (e env) assume(cond ssa.Value, value bool) bool {
	if known, ok := e.eval(cond); ok {
		return known == value
	}
	if len(e) < maxKnown {
		named, negated := condition(cond)
		e[named] = value != negated
	}
	return true
}

// fact returns what is known of v itself: of an error or a pointer, that it is nil; of a bool, that it is true.
func (e env) fact(v ssa.Value) (value, ok bool) {
	switch v := v.(type) {
	case *ssa.Const:
		if v.IsNil() {
			return true, true
		}
		if v.Value != nil && v.Value.Kind() == constant.Bool {
			return constant.BoolVal(v.Value), true
		}
	case *ssa.MakeInterface, *ssa.Alloc, *ssa.MakeClosure, *ssa.MakeMap:
		return false, true // not nil
	}
	if b, ok := v.Type().Underlying().(*types.Basic); ok && b.Info()&types.IsBoolean != 0 {
		return e.eval(v)
	}
	value, ok = e[name(v)]
	return value, ok
}

// execute forgets what instr makes untrue, and learns from it.
func (e env) execute(instr ssa.Instruction) {
	if store, ok := instr.(*ssa.Store); ok {
		value, known := e.fact(store.Val)
		stored := "*" + name(store.Addr)
		e.forget(stored)
		if known {
			e[stored] = value
		}
		return
	}
	if v, ok := instr.(ssa.Value); ok && v.Name() != "" {
		if name(v) == v.Name() {
			e.forget(v.Name())
		}
	}
}

// forget drops what is known of named, and of what is made of it.
func (e env) forget(named string) {
	maps.DeleteFunc(e, func(k string, _ bool) bool {
		for i := 0; ; {
			j := strings.Index(k[i:], named)
			if j < 0 {
				return false
			}
			i += j + len(named)
			if i == len(k) || k[i] < '0' || k[i] > '9' {
				return true
			}
		}
	})
}

// enter gives the phis of next their values.
func (e env) enter(from, next *ssa.BasicBlock) {
	type phi struct {
		name  string
		value bool
		known bool
	}
	var phis []phi
	edge := slices.Index(next.Preds, from)
	for _, instr := range next.Instrs {
		p, ok := instr.(*ssa.Phi)
		if !ok {
			break
		}
		value, known := e.fact(p.Edges[edge])
		phis = append(phis, phi{p.Name(), value, known})
	}
	for _, p := range phis {
		e.forget(p.name)
		if p.known {
			e[p.name] = p.value
		}
	}
}

// conditionsAt returns what the branches that lead to block make known.
func conditionsAt(block *ssa.BasicBlock) env {
	e := env{}
	for b := block; b.Idom() != nil; b = b.Idom() {
		above := b.Idom()
		branch, ok := above.Instrs[len(above.Instrs)-1].(*ssa.If)
		if !ok || above.Succs[0] == above.Succs[1] {
			continue
		}
		for i, next := range above.Succs {
			if len(next.Preds) == 1 && next.Dominates(block) {
				e.assume(branch.Cond, i == 0)
			}
		}
	}
	return e
}
