package analyzer

import (
	"fmt"
	"go/token"
	"go/types"
	"maps"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// Leak reports keys that are not Done on some path.
var Leak = &analysis.Analyzer{
	Name: "queueleak",
	Doc: `report keys from Get without a Done on some path

A key that a worker got and never gave back by Done is not handed out again, however often it is added, and
ShutDownWithDrain waits for it forever. Every path from Get to a return, and to the next Get, needs a Done, unless
the queue is shut down; "defer queue.Done(key)" right after the test for shutdown is the usual way.`,
	URL:      url + "#queueleak",
	Run:      runLeak,
	Requires: []*analysis.Analyzer{functions},
}

func runLeak(pass *analysis.Pass) (any, error) {
	c := pass.ResultOf[functions].(*code).with(pass)
	for _, fn := range c.functions {
		each(fn, func(instr ssa.Instruction) {
			if got := queueCall(instr); got != nil && c.wanted(instr.Pos()) {
				if _, ok := instr.(*ssa.Call); ok {
					c.checkGet(got)
				}
			}
		})
	}
	return nil, nil
}

// with returns c, reporting to pass.
func (c *code) with(pass *analysis.Pass) *code {
	d := *c
	d.reporter = &reporter{pass, c.ignored, c.helps}
	return &d
}

func (c *code) checkGet(got *call) {
	switch got.kind {
	case get, doneAndGet:
		l := &leak{code: c, got: got, given: map[ssa.Value]bool{}}
		instr := got.instr.(*ssa.Call)
		if pos := l.after(instr, c.keyOf(instr, l.given)); pos.IsValid() {
			l.report(pos)
		}
	case getBatch:
		if c.neverFinished(got) {
			c.reportf(got.instr.Pos(), "keys from %s are never Done", got.name)
		}
	}
}

// neverFinished reports whether nothing after got may finish a key or hand one on.
func (c *code) neverFinished(got *call) bool {
	held := holders(got.instr.Parent(), c.keyOf(got.instr.(*ssa.Call), map[ssa.Value]bool{}))
	handed := false
	reach(got.instr, func(i ssa.Instruction) bool {
		handed = handed || handsOn(i, held)
		if ci, ok := i.(*ssa.Call); ok {
			for _, fn := range c.callees(&ci.Call) {
				_, builtin := ci.Call.Value.(*ssa.Builtin)
				handed = handed || fn == nil && !builtin && anyHeld(held, ci.Call.Args...)
			}
		}
		return true
	})
	return !handed && !c.finishedAfter(got.instr)
}

// leak looks for a path on which a key is not Done.
type leak struct {
	*code
	got *call
	// given is what a successful Get returns besides the key: no shutdown, no error.
	given map[ssa.Value]bool
}

func (l *leak) report(pos token.Pos) {
	where := fmt.Sprintf("when the function is left at line %d", l.line(pos))
	if pos == l.got.instr.Pos() {
		where = "when the loop comes back here"
	}
	l.reportf(l.got.instr.Pos(), "key from %s is not Done %s: the queue will not hand it out again", l.got.name, where)
}

// keyOf returns the key among the results of a Get, or nil. It notes in given what the others are.
func (c *code) keyOf(instr *ssa.Call, given map[ssa.Value]bool) (key ssa.Value) {
	for _, user := range *instr.Referrers() {
		x, ok := user.(*ssa.Extract)
		if !ok {
			continue
		}
		switch {
		case x.Index == 0:
			key = x
		case types.Identical(x.Type(), types.Universe.Lookup("error").Type()):
			given[x] = true // nil
		case types.Identical(x.Type(), types.Typ[types.Bool]):
			given[x] = false
		}
	}
	return key
}

// after looks for a path from a Get on which its key is not Done, and returns where it ends.
func (l *leak) after(instr *ssa.Call, key ssa.Value) token.Pos {
	held := holders(instr.Parent(), key)
	return l.search(instr.Block(), indexOf(instr)+1, path{}, held, instr, 0)
}

// search follows a key on the paths from block.Instrs[index], and returns where one ends without a Done. held are
// the values that have the key in them. A path that comes back to start ends there.
func (l *leak) search(block *ssa.BasicBlock, index int, from path, held map[ssa.Value]bool, start ssa.Instruction, depth int) token.Pos {
	var left token.Pos
	s := &search{given: l.given}
	s.visit = func(p *path, instr ssa.Instruction) bool {
		if left.IsValid() {
			return false
		}
		if instr == start {
			if l.got.kind == get {
				left = instr.Pos()
			}
			return false
		}
		if handsOn(instr, held) {
			return false
		}
		switch instr := instr.(type) {
		case *ssa.Return:
			if !p.deferred {
				left = returnPos(instr)
			}
			return false
		case *ssa.Panic:
			return false
		case *ssa.MakeClosure:
			return !l.keepsFinisher(instr, held)
		case *ssa.Defer:
			p.deferred = l.finishes(instr, p, held, depth, &left) || p.deferred
		case ssa.CallInstruction:
			return !l.finishes(instr, p, held, depth, &left)
		}
		return true
	}
	if !s.run(block, index, from) {
		return token.NoPos
	}
	return left
}

// keepsFinisher reports whether mc may finish the key or hand it on, and is kept or passed on, so that it cannot be
// seen when it is called.
func (l *leak) keepsFinisher(mc *ssa.MakeClosure, held map[ssa.Value]bool) bool {
	fn := mc.Fn.(*ssa.Function)
	if !l.effect(l.source(fn)).Done {
		inside := map[ssa.Value]bool{}
		for i, bound := range mc.Bindings {
			if held[bound] && i < len(fn.FreeVars) {
				maps.Copy(inside, holders(fn, fn.FreeVars[i]))
			}
		}
		if !l.handedOnIn(fn, inside, 0) {
			return false
		}
	}
	for _, user := range *mc.Referrers() {
		ci, ok := user.(ssa.CallInstruction)
		if !ok || ci.Common().Value != mc {
			return true
		}
	}
	return false
}

// finishes reports whether instr may finish the key, or hand it on to something that may. If instr calls a function
// of this package that finishes the key on some of its paths only, and nothing does afterwards, it sets left.
func (l *leak) finishes(instr ssa.CallInstruction, p *path, held map[ssa.Value]bool, depth int, left *token.Pos) bool {
	common := instr.Common()
	if q := queueCall(instr); q != nil {
		return (q.kind == done || q.kind == doneAndGet) && mayAlias(identityOf(q.queue), identityOf(l.got.queue))
	}
	if _, ok := common.Value.(*ssa.Builtin); ok {
		return false
	}
	f, _, args := method(common)
	passed := passed(common, args, held)
	if f != nil && f.Name() == "Done" && passed {
		return true // of an interface that is not the queue's own
	}
	if f != nil && f.Pkg() != l.knowledge.pass.Pkg && !common.IsInvoke() {
		return l.of(f).Done || passesQueue(args) || passed && keeps.MatchString(f.Name()) && !l.managedAfter(instr, held)
	}
	if common.IsInvoke() && reads.MatchString(common.Method.Name()) {
		return false
	}
	for _, fn := range l.callees(common) {
		switch {
		case fn == nil:
			// It could be anything. If this function goes on with the key, it is still its own to finish.
			if passesQueue(args) || passed && !l.managedAfter(instr, held) {
				return true
			}
		case l.effect(fn).Done:
			return !l.leaves(instr, fn, p, held, depth, left)
		default:
			if inside, _ := bind(common, fn, held, p.known); l.handedOnIn(fn, inside, depth) {
				return true
			}
		}
	}
	return false
}

// handedOnIn reports whether fn, in which inside are the values that have the key, may hand it on.
func (l *leak) handedOnIn(fn *ssa.Function, inside map[ssa.Value]bool, depth int) bool {
	if len(inside) == 0 {
		return false
	}
	found := depth > 5
	each(fn, func(instr ssa.Instruction) {
		if found {
			return
		}
		if _, ok := instr.(*ssa.Return); !ok && handsOn(instr, inside) {
			found = true
			return
		}
		ci, ok := instr.(ssa.CallInstruction)
		if !ok || queueCall(instr) != nil {
			return
		}
		common := ci.Common()
		f, _, args := method(common)
		if f != nil && f.Pkg() != l.knowledge.pass.Pkg && !common.IsInvoke() {
			found = keeps.MatchString(f.Name()) && passed(common, args, inside)
			return
		}
		for _, callee := range l.callees(common) {
			if callee != nil && callee != fn {
				deeper, _ := bind(common, callee, inside, nil)
				found = found || l.handedOnIn(callee, deeper, depth+1)
			}
		}
	})
	return found
}

// leaves reports whether fn, which finishes a key, leaves this one on some path, and nothing finishes it later.
func (l *leak) leaves(instr ssa.CallInstruction, fn *ssa.Function, p *path, held map[ssa.Value]bool, depth int, left *token.Pos) bool {
	if _, ok := instr.(*ssa.Call); !ok || depth > 3 || len(fn.Blocks) == 0 || p.deferred {
		return false
	}
	inside, known := bind(instr.Common(), fn, held, p.known)
	if len(inside) == 0 || l.finishedAfter(instr) {
		return false
	}
	if pos := l.search(fn.Blocks[0], 0, path{known: known}, inside, nil, depth+1); pos.IsValid() {
		*left = pos
		return true
	}
	return false
}

// managedAfter reports whether a method of a queue is called with the key after instr, before the next Get.
func (l *leak) managedAfter(instr ssa.CallInstruction, held map[ssa.Value]bool) bool {
	found := false
	reach(instr, func(i ssa.Instruction) bool {
		q := queueCall(i)
		found = found || q != nil && anyHeld(held, q.args...)
		return q == nil || q.kind != get
	})
	return found
}

// finishedAfter reports whether something after instr may finish a key, before the next Get.
func (c *code) finishedAfter(instr ssa.CallInstruction) bool {
	found := false
	reach(instr, func(i ssa.Instruction) bool {
		if q := queueCall(i); q != nil && q.kind == get {
			return false
		}
		switch i := i.(type) {
		case *ssa.MakeClosure:
			found = found || c.effect(c.source(i.Fn.(*ssa.Function))).Done
		case ssa.CallInstruction:
			_, _, args := method(i.Common())
			found = found || c.effectOfCall(i.Common()).Done || queueCall(i) == nil && passesQueue(args)
		}
		return true
	})
	return found
}

// reach calls f with every instruction that may run after instr, as long as f returns true.
func reach(instr ssa.Instruction, f func(ssa.Instruction) bool) {
	seen := map[*ssa.BasicBlock]bool{}
	var visit func(b *ssa.BasicBlock, index int)
	visit = func(b *ssa.BasicBlock, index int) {
		for _, i := range b.Instrs[index:] {
			if !f(i) {
				return
			}
		}
		for _, next := range b.Succs {
			if !seen[next] {
				seen[next] = true
				visit(next, 0)
			}
		}
	}
	visit(instr.Block(), indexOf(instr)+1)
}

func anyHeld(held map[ssa.Value]bool, values ...ssa.Value) bool {
	for _, v := range values {
		if held[v] {
			return true
		}
	}
	return false
}

func passesQueue(args []ssa.Value) bool {
	for _, a := range args {
		if isQueue(a.Type()) {
			return true
		}
	}
	return false
}

func indexOf(instr ssa.Instruction) int {
	for i, other := range instr.Block().Instrs {
		if other == instr {
			return i
		}
	}
	return -1
}

// returnPos returns where a return is, also one at the end of a function, which has no position of its own.
func returnPos(r *ssa.Return) token.Pos {
	if r.Pos().IsValid() {
		return r.Pos()
	}
	if syntax := r.Parent().Syntax(); syntax != nil {
		return syntax.End() - 1
	}
	return r.Parent().Pos()
}
