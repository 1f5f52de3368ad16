package analyzer

import (
	"go/types"
	"regexp"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// AfterDone reports what must not happen to a key after its Done.
var AfterDone = &analysis.Analyzer{
	Name: "queueafterdone",
	Doc: `report keys that are Done twice, or processed after their Done

After Done another worker may hold the key. A second Done then takes it from that worker: in client-go the key is
queued twice, and two workers hold it. Processing after Done runs beside the other worker's. (Add, AddAfter,
AddRateLimited, Forget and NumRequeues are fine after Done.)`,
	URL:      url + "#queueafterdone",
	Run:      runAfterDone,
	Requires: []*analysis.Analyzer{functions},
}

func runAfterDone(pass *analysis.Pass) (any, error) {
	c := pass.ResultOf[functions].(*code).with(pass)
	for _, fn := range c.functions {
		each(fn, func(instr ssa.Instruction) {
			if q := queueCall(instr); q != nil && q.kind == done && c.wanted(instr.Pos()) {
				if _, ok := instr.(*ssa.Go); !ok {
					c.checkDone(q)
				}
			}
		})
	}
	return nil, nil
}

// processes matches the names of functions that do a key's work, and not those that deal with its errors.
var processes = regexp.MustCompile(`^(?i)(do)?(sync|reconcile|process|handle|work)($|[^e]|e[^r])`)

func (c *code) checkDone(q *call) {
	if !single(q.key()) {
		return
	}
	key, queue := name(q.key()), name(q.queue)
	_, deferred := q.instr.(*ssa.Defer)
	start := q.instr
	said := false
	s := &search{}
	s.visit = func(_ *path, instr ssa.Instruction) bool {
		if said || redefines(instr, q.key()) || instr == root(q.queue) {
			return false
		}
		if next := queueCall(instr); next != nil {
			switch next.kind {
			case get, getBatch:
				return false
			case done, doneAndGet:
				if _, ok := instr.(*ssa.Go); !ok && name(next.key()) == key && name(next.queue) == queue {
					said = true
					c.reportf(instr.Pos(), "second Done of this key (the first is in line %d): "+
						"by now another worker may hold it", c.line(start.Pos()))
				}
				return next.kind == done
			}
			return true
		}
		if ci, ok := instr.(ssa.CallInstruction); ok && !deferred && c.processesKey(ci, key) {
			said = true
			c.reportf(instr.Pos(), "key is processed after its Done in line %d: "+
				"another worker may process it at the same time", c.line(start.Pos()))
		}
		return true
	}
	s.run(q.instr.Block(), indexOf(q.instr)+1, path{known: conditionsAt(q.instr.Block())})
}

// single reports whether key is one key: what Get returned, or a parameter.
func single(key ssa.Value) bool {
	switch k := origin(key).(type) {
	case *ssa.Parameter:
		return true
	case *ssa.Extract:
		call, ok := k.Tuple.(*ssa.Call)
		if !ok || k.Index != 0 {
			return false
		}
		q := queueCall(call)
		return q != nil && (q.kind == get || q.kind == doneAndGet)
	}
	return false
}

// origin returns what v is a conversion of.
func origin(v ssa.Value) ssa.Value {
	for {
		switch x := v.(type) {
		case *ssa.MakeInterface:
			v = x.X
		case *ssa.ChangeInterface:
			v = x.X
		case *ssa.ChangeType:
			v = x.X
		case *ssa.TypeAssert:
			v = x.X
		case *ssa.Extract:
			t, ok := x.Tuple.(*ssa.TypeAssert)
			if !ok {
				return v
			}
			v = t.X
		case *ssa.UnOp:
			// A variable that is assigned once.
			alloc, ok := x.X.(*ssa.Alloc)
			if !ok {
				return v
			}
			var stored []ssa.Value
			for _, user := range *alloc.Referrers() {
				if store, ok := user.(*ssa.Store); ok && store.Addr == alloc {
					stored = append(stored, store.Val)
				}
			}
			if len(stored) != 1 {
				return v
			}
			v = stored[0]
		default:
			return v
		}
	}
}

// redefines reports whether instr gives key a new value.
func redefines(instr ssa.Instruction, key ssa.Value) bool {
	if v, ok := instr.(ssa.Value); ok && v == origin(key) {
		return true
	}
	store, ok := instr.(*ssa.Store)
	return ok && "*"+name(store.Addr) == name(key)
}

// root returns what has queue in it: an instruction that, run again, may mean another queue.
func root(queue ssa.Value) ssa.Instruction {
	for {
		switch x := queue.(type) {
		case *ssa.UnOp:
			queue = x.X
		case *ssa.FieldAddr:
			queue = x.X
		case *ssa.Field:
			queue = x.X
		case *ssa.MakeInterface:
			queue = x.X
		case *ssa.ChangeInterface:
			queue = x.X
		default:
			instr, _ := queue.(ssa.Instruction)
			return instr
		}
	}
}

// processesKey reports whether ci passes the key on to a function that does its work.
func (c *code) processesKey(ci ssa.CallInstruction, key string) bool {
	common := ci.Common()
	f, _, args := method(common)
	passed := false
	for _, a := range args {
		passed = passed || name(a) == key
	}
	if !passed {
		return false
	}
	called := ""
	if f != nil {
		called = f.Name()
	} else if load, ok := common.Value.(*ssa.UnOp); ok {
		if v := variable(load.X); v != nil {
			called = v.Name()
		}
	} else if p, ok := common.Value.(*ssa.Parameter); ok {
		called = p.Name()
	}
	return processes.MatchString(called) && !c.takesError(common.Signature())
}

// takesError reports whether a function of this signature is given an error: then the work is over.
func (c *code) takesError(s *types.Signature) bool {
	for p := range s.Params().Variables() {
		if types.Identical(p.Type(), types.Universe.Lookup("error").Type()) {
			return true
		}
	}
	return false
}
