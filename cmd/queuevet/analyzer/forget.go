package analyzer

import (
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// Forget reports queues whose keys are rate-limited after a failure and not forgotten after a success.
var Forget = &analysis.Analyzer{
	Name: "queueforget",
	Doc: `report AddRateLimited on failure without Forget on success

A limiter counts the failures of a key until Forget. Without it the next failure, a day later, waits as if all of
them had come in a row, and the limiter remembers every key that ever failed. Call Forget when the work succeeds
(and when it is given up).`,
	URL:      url + "#queueforget",
	Run:      runForget,
	Requires: []*analysis.Analyzer{functions},
}

// uses has the calls of queues in a package, by what they do.
type uses struct {
	*code
	gets, forgets, limited []*call
	// elsewhere: a function that cannot be seen may forget keys.
	elsewhere bool
	// stateless has the key types of queues whose limiter remembers nothing.
	stateless []types.Type
}

func runForget(pass *analysis.Pass) (any, error) {
	u := &uses{code: pass.ResultOf[functions].(*code).with(pass)}
	for _, fn := range u.functions {
		each(fn, u.note)
	}
	if u.elsewhere {
		return nil, nil
	}
	var reported []identity
	for _, a := range u.limited {
		id := identityOf(a.queue)
		if !u.worked(id) || u.isStateless(id) || u.forgottenOnSuccess(a, id) {
			continue
		}
		seen := false
		for _, r := range reported {
			seen = seen || mayAlias(r, id)
		}
		if !seen && u.wanted(a.instr.Pos()) {
			reported = append(reported, id)
			u.reportf(a.instr.Pos(), "AddRateLimited, but no Forget when the work succeeds: "+
				"the delay of the next failure still counts this one, and the limiter never forgets the key")
		}
	}
	return nil, nil
}

func (u *uses) note(instr ssa.Instruction) {
	if q := queueCall(instr); q != nil {
		switch q.kind {
		case get, getBatch, doneAndGet:
			u.gets = append(u.gets, q)
		case forget:
			u.forgets = append(u.forgets, q)
		case addRateLimited:
			u.limited = append(u.limited, q)
		}
		return
	}
	if mc, ok := instr.(*ssa.MakeClosure); ok {
		// A method value.
		if f, ok := mc.Fn.(*ssa.Function).Object().(*types.Func); ok && kindOf(f) == forget {
			u.elsewhere = true
		}
	}
	ci, ok := instr.(ssa.CallInstruction)
	if !ok {
		return
	}
	f, _, args := method(ci.Common())
	foreign := f == nil || !u.isOwn(f) || ci.Common().IsInvoke()
	switch {
	case f != nil && inQueuePackage(f):
		u.constructor(f, ci.Common())
	case foreign && f != nil && u.of(f).Forget:
		u.elsewhere = true
	case foreign && passesQueue(args):
		for _, fn := range u.callees(ci.Common()) {
			u.elsewhere = u.elsewhere || fn == nil || fn.Pkg == nil || fn.Pkg.Pkg != u.knowledge.pass.Pkg
		}
	case f != nil && f.Name() == "Forget" && foreign:
		u.elsewhere = true
	}
}

// constructor notes the queues that are made with a token bucket alone.
func (u *uses) constructor(f *types.Func, common *ssa.CallCommon) {
	if f.Signature().Recv() != nil || common.Signature().Results().Len() != 1 || len(common.Args) == 0 {
		return
	}
	limiter := common.Args[0]
	if mi, ok := limiter.(*ssa.MakeInterface); ok {
		limiter = mi.X
	}
	t := limiter.Type()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	if ok && inQueuePackage(named.Obj()) && strings.HasSuffix(named.Obj().Name(), "BucketRateLimiter") {
		if key := keyType(common.Signature().Results().At(0).Type()); key != nil {
			u.stateless = append(u.stateless, key)
		}
	}
}

func (u *uses) isStateless(id identity) bool {
	for _, key := range u.stateless {
		if id.key != nil && mayBeEqualTypes(key, id.key) {
			return true
		}
	}
	return false
}

// worked reports whether this package takes keys from the queue.
func (u *uses) worked(id identity) bool {
	for _, g := range u.gets {
		if mayAlias(identityOf(g.queue), id) {
			return true
		}
	}
	return false
}

// forgottenOnSuccess reports whether a key that a limits may be forgotten when its work succeeds. It is false only
// if no Forget is there at all, or if all of them are in the function of a and none is on the way of success.
func (u *uses) forgottenOnSuccess(a *call, id identity) bool {
	fn := a.instr.Parent()
	any := false
	for _, f := range u.forgets {
		if mayAlias(identityOf(f.queue), id) {
			any = true
			if f.instr.Parent() != fn {
				return true
			}
		}
	}
	if !any {
		return false
	}
	success, branch := onSuccess(a.instr.Block())
	if success == nil {
		return true
	}
	for _, f := range u.forgets {
		if f.instr.Block().Dominates(branch) {
			return true
		}
	}
	if len(success.Instrs) == 0 {
		return true
	}
	found := u.mayForget(success.Instrs[0])
	reach(success.Instrs[0], func(i ssa.Instruction) bool {
		if q := queueCall(i); q != nil && (q.kind == get || q.kind == getBatch) {
			return false
		}
		found = found || u.mayForget(i)
		return true
	})
	return found
}

func (u *uses) mayForget(instr ssa.Instruction) bool {
	switch i := instr.(type) {
	case *ssa.MakeClosure:
		return u.effect(u.source(i.Fn.(*ssa.Function))).Forget
	case ssa.CallInstruction:
		if queueCall(i) == nil {
			for _, fn := range u.callees(i.Common()) {
				// Something unknown does not forget, unless it is given the queue.
				if fn != nil && u.effect(fn).Forget {
					return true
				}
			}
		}
		return u.effectOfCall(i.Common()).Forget
	}
	return false
}

// onSuccess returns the block that runs if the error is nil that, not being nil, leads to block. branch is where
// the two ways part.
func onSuccess(block *ssa.BasicBlock) (success, branch *ssa.BasicBlock) {
	for b := block; b.Idom() != nil; b = b.Idom() {
		above := b.Idom()
		cond, ok := above.Instrs[len(above.Instrs)-1].(*ssa.If)
		if !ok {
			continue
		}
		test, ok := cond.Cond.(*ssa.BinOp)
		if !ok || !isNil(test.X) && !isNil(test.Y) || !isError(test.X) && !isError(test.Y) {
			continue
		}
		failure, success := above.Succs[0], above.Succs[1]
		if test.Op == token.EQL {
			failure, success = success, failure
		}
		if failure != success && len(failure.Preds) == 1 && failure.Dominates(block) {
			return success, above
		}
	}
	return nil, nil
}

func isError(v ssa.Value) bool {
	return types.Identical(v.Type(), types.Universe.Lookup("error").Type())
}
