package analyzer

import (
	"go/ast"
	"go/types"
	"reflect"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/ssa"
)

// functions has the functions of a package in a form in which paths can be followed.
var functions = &analysis.Analyzer{
	Name:       "queuefunctions",
	Doc:        "find the functions of a package that uses queues, and what its function values may be",
	URL:        url,
	Run:        runFunctions,
	Requires:   []*analysis.Analyzer{facts, ctrlflow.Analyzer},
	ResultType: reflect.TypeFor[*code](),
}

// code is the functions of a package, without those of test files.
type code struct {
	*knowledge
	*reporter
	functions []*ssa.Function
	// values has what is stored in a field or a variable that holds a function. Nil among them stands for what
	// cannot be seen.
	values map[*types.Var][]*ssa.Function
	// ends caches what a function may do with keys.
	ends map[*ssa.Function]callsQueue
}

// runFunctions returns no functions for a package without queues, for one that helps tests, and for the queues' own.
func runFunctions(pass *analysis.Pass) (any, error) {
	c := &code{
		knowledge: pass.ResultOf[facts].(*knowledge),
		reporter:  newReporter(pass),
		values:    map[*types.Var][]*ssa.Function{},
		ends:      map[*ssa.Function]callsQueue{},
	}
	if !c.mentions || c.helps {
		return c, nil
	}
	for _, fn := range build(pass) {
		// The body of a range over a function is left by returns that are none.
		if strings.Contains(fn.Synthetic, "range-over-func") || len(fn.Blocks) == 0 {
			continue
		}
		if f := pass.Fset.File(fn.Pos()); f != nil && !isTest(f) {
			c.functions = append(c.functions, fn)
		}
	}
	for _, fn := range c.functions {
		each(fn, func(instr ssa.Instruction) {
			if store, ok := instr.(*ssa.Store); ok {
				c.assign(store)
			}
		})
	}
	return c, nil
}

// build returns the functions of a package, those in other functions included. It does what package buildssa does,
// which would do it for every package of the program.
func build(pass *analysis.Pass) (all []*ssa.Function) {
	program := ssa.NewProgram(pass.Fset, 0)
	program.SetNoReturn(pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs).NoReturn)
	for _, imported := range pass.Pkg.Imports() {
		program.CreatePackage(imported, nil, nil, true)
	}
	pkg := program.CreatePackage(pass.Pkg, pass.Files, pass.TypesInfo, false)
	pkg.Build()
	var add func(fn *ssa.Function)
	add = func(fn *ssa.Function) {
		all = append(all, fn)
		for _, inner := range fn.AnonFuncs {
			add(inner)
		}
	}
	for _, inner := range pkg.Func("init").AnonFuncs {
		add(inner) // in variables of the package
	}
	for _, file := range pass.Files {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				add(program.FuncValue(pass.TypesInfo.Defs[d.Name].(*types.Func)))
			}
		}
	}
	return all
}

// each calls f with every instruction of fn.
func each(fn *ssa.Function, f func(ssa.Instruction)) {
	for _, b := range fn.Blocks {
		for _, instr := range b.Instrs {
			f(instr)
		}
	}
}

// assign notes a function that is stored in a field or in a variable of the package.
func (c *code) assign(store *ssa.Store) {
	if _, ok := store.Val.Type().Underlying().(*types.Signature); !ok {
		return
	}
	if v := variable(store.Addr); v != nil {
		c.values[v] = append(c.values[v], c.targets(store.Val, 0)...)
	}
}

// variable returns the field or the variable of the package that addr is the address of.
func variable(addr ssa.Value) *types.Var {
	switch a := addr.(type) {
	case *ssa.FieldAddr:
		return identity{}.field(a.X.Type(), a.Field).variable
	case *ssa.Global:
		v, _ := a.Object().(*types.Var)
		return v
	}
	return nil
}

// targets returns the functions that v may be, with a nil if there may be others.
func (c *code) targets(v ssa.Value, depth int) []*ssa.Function {
	if depth > 4 {
		return []*ssa.Function{nil}
	}
	switch v := v.(type) {
	case *ssa.Function:
		return []*ssa.Function{c.source(v)}
	case *ssa.MakeClosure:
		return []*ssa.Function{c.source(v.Fn.(*ssa.Function))}
	case *ssa.ChangeType:
		return c.targets(v.X, depth+1)
	case *ssa.Phi:
		var all []*ssa.Function
		for _, edge := range v.Edges {
			all = append(all, c.targets(edge, depth+1)...)
		}
		return all
	case *ssa.Const: // nil
		return []*ssa.Function{}
	case *ssa.UnOp:
		if x := variable(v.X); x != nil {
			if known, ok := c.values[x]; ok {
				return known
			}
		}
		if alloc := allocOf(v.X); alloc != nil {
			return c.stored(alloc, depth)
		}
	}
	return []*ssa.Function{nil}
}

// stored returns the functions that the local variable alloc may be.
func (c *code) stored(alloc *ssa.Alloc, depth int) []*ssa.Function {
	var all []*ssa.Function
	for _, user := range *alloc.Referrers() {
		if store, ok := user.(*ssa.Store); ok && store.Addr == alloc {
			all = append(all, c.targets(store.Val, depth+1)...)
		}
	}
	if len(all) == 0 {
		return []*ssa.Function{nil}
	}
	return all
}

// allocOf returns the local variable that addr is the address of, in its own function or in a closure.
func allocOf(addr ssa.Value) *ssa.Alloc {
	switch a := addr.(type) {
	case *ssa.Alloc:
		return a
	case *ssa.FreeVar:
		if bound := binding(a); bound != nil {
			return allocOf(bound)
		}
	}
	return nil
}

// binding returns what v is bound to where its closure is made.
func binding(v *ssa.FreeVar) ssa.Value {
	fn := v.Parent()
	if fn.Parent() == nil {
		return nil
	}
	var found ssa.Value
	each(fn.Parent(), func(instr ssa.Instruction) {
		if mc, ok := instr.(*ssa.MakeClosure); ok && mc.Fn == fn {
			for i, free := range fn.FreeVars {
				if free == v {
					found = mc.Bindings[i]
				}
			}
		}
	})
	return found
}

// source returns the function as it was written, for an instance of it or a method value.
func (c *code) source(fn *ssa.Function) *ssa.Function {
	if o := fn.Origin(); o != nil {
		fn = o
	}
	if fn.Synthetic != "" {
		if f, ok := fn.Object().(*types.Func); ok {
			if declared := fn.Prog.FuncValue(f.Origin()); declared != nil {
				return declared
			}
		}
	}
	return fn
}

// callees returns the functions that a call may reach, with a nil if there may be others.
func (c *code) callees(common *ssa.CallCommon) []*ssa.Function {
	if common.IsInvoke() {
		return []*ssa.Function{nil}
	}
	if fn := common.StaticCallee(); fn != nil {
		return []*ssa.Function{c.source(fn)}
	}
	return c.targets(common.Value, 0)
}

// effect returns what fn may do with keys.
func (c *code) effect(fn *ssa.Function) callsQueue {
	if f := objectOf(fn); f != nil {
		return c.of(f)
	}
	if e, ok := c.ends[fn]; ok {
		return e
	}
	c.ends[fn] = callsQueue{} // for a function that calls itself
	var e callsQueue
	each(fn, func(instr ssa.Instruction) {
		if ci, ok := instr.(ssa.CallInstruction); ok {
			e = e.or(c.effectOfCall(ci.Common()))
		}
		for _, operand := range instr.Operands(nil) {
			// Functions that are passed on or stored.
			switch v := (*operand).(type) {
			case *ssa.Function:
				e = e.or(c.effect(c.source(v)))
			case *ssa.MakeClosure:
				e = e.or(c.effect(c.source(v.Fn.(*ssa.Function))))
			}
		}
	})
	for _, anon := range fn.AnonFuncs {
		e = e.or(c.effect(anon))
	}
	c.ends[fn] = e
	return e
}

// effectOfCall returns what is known of the functions that a call may reach.
func (c *code) effectOfCall(common *ssa.CallCommon) (e callsQueue) {
	if f, _, _ := method(common); f != nil {
		return c.of(f)
	}
	for _, fn := range c.callees(common) {
		if fn != nil {
			e = e.or(c.effect(fn))
		}
	}
	return e
}
