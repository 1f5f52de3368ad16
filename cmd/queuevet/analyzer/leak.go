package analyzer

import (
	"fmt"
	"go/token"
	"go/types"
	"maps"
	"strings"

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
	if isShutDown(got) {
		return
	}
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

// isShutDown reports whether the function of got has shut the queue down before: then it takes what is left.
func isShutDown(got *call) bool {
	found := false
	each(got.instr.Parent(), func(i ssa.Instruction) {
		ci, ok := i.(*ssa.Call)
		if !ok {
			return
		}
		f, queue, _ := method(&ci.Call)
		found = found || f != nil && inQueuePackage(f) && strings.HasPrefix(f.Name(), "ShutDown") &&
			name(queue) == name(got.queue) && i.Block().Dominates(got.instr.Block())
	})
	return found
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

// maxDepth is how far calls are followed.
const maxDepth = 4

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
			return !l.keepsFinisher(instr, held, depth)
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
func (l *leak) keepsFinisher(mc *ssa.MakeClosure, held map[ssa.Value]bool, depth int) bool {
	called := true
	for _, user := range *mc.Referrers() {
		ci, ok := user.(ssa.CallInstruction)
		called = called && ok && ci.Common().Value == mc
	}
	if called {
		return false
	}
	fn := mc.Fn.(*ssa.Function)
	if l.effect(l.source(fn)).Done {
		return true
	}
	inside := map[ssa.Value]bool{}
	for i, bound := range mc.Bindings {
		if held[bound] && i < len(fn.FreeVars) {
			maps.Copy(inside, holders(fn, fn.FreeVars[i]))
		}
	}
	return l.handedOnIn(fn, inside, depth+1)
}

// finishes reports whether instr may finish the key, or hand it on to something that may. If instr calls a function
// of this package that finishes the key on some of its paths only, and nothing does afterwards, it sets left.
func (l *leak) finishes(instr ssa.CallInstruction, p *path, held map[ssa.Value]bool, depth int, left *token.Pos) bool {
	if q := queueCall(instr); q != nil {
		return (q.kind == done || q.kind == doneAndGet) && mayAlias(identityOf(q.queue), identityOf(l.got.queue))
	}
	common := instr.Common()
	f, _, args := method(common)
	if f != nil && !l.isOwn(f) && !common.IsInvoke() && l.of(f).Done {
		return true
	}
	if f != nil && f.Name() == "Done" && passed(common, args, held) {
		return true // of an interface that stands for the queue
	}
	for _, fn := range l.callees(common) {
		if fn != nil && l.effect(fn).Done && len(fn.Blocks) > 0 {
			return !l.leaves(instr, fn, p, held, depth, left)
		}
	}
	// If this function goes on with the key, it is still its own to finish.
	return passesQueue(args) || l.handsOnByCall(instr, held, depth) && !l.managedAfter(instr, held)
}

// handsOnByCall reports whether a function that instr calls may hand on the key.
func (l *leak) handsOnByCall(instr ssa.CallInstruction, held map[ssa.Value]bool, depth int) bool {
	common := instr.Common()
	f, _, args := method(common)
	takes := passed(common, args, held)
	switch _, builtin := common.Value.(*ssa.Builtin); {
	case builtin:
		return false
	case common.IsInvoke():
		return takes && !reads.MatchString(f.Name())
	case f != nil && !l.isOwn(f):
		return takes && keeps.MatchString(f.Name())
	}
	for _, fn := range l.callees(common) {
		if fn == nil {
			// It could be anything.
			return takes
		}
		if inside, _ := bind(common, fn, held, nil); l.handedOnIn(fn, inside, depth+1) {
			return true
		}
	}
	return false
}

// handedOnIn reports whether fn, in which inside are the values that have the key, may hand it on.
func (l *leak) handedOnIn(fn *ssa.Function, inside map[ssa.Value]bool, depth int) bool {
	if len(inside) == 0 {
		return false
	}
	found := depth > maxDepth
	each(fn, func(instr ssa.Instruction) {
		switch i := instr.(type) {
		case *ssa.Return:
			return // The caller has the key already.
		case *ssa.MakeClosure:
			found = found || l.keepsFinisher(i, inside, depth)
		case ssa.CallInstruction:
			if queueCall(i) == nil {
				_, _, args := method(i.Common())
				found = found || passesQueue(args) || l.handsOnByCall(i, inside, depth)
			}
		}
		found = found || handsOn(instr, inside)
	})
	return found
}

// leaves reports whether fn, which finishes a key, leaves this one on some path, and nothing finishes it later.
func (l *leak) leaves(instr ssa.CallInstruction, fn *ssa.Function, p *path, held map[ssa.Value]bool, depth int, left *token.Pos) bool {
	if _, ok := instr.(*ssa.Call); !ok || depth > maxDepth || p.deferred {
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
