package analyzer

import (
	"go/types"
	"strings"

	"golang.org/x/tools/go/ssa"
)

const (
	clientGoPath = "k8s.io/client-go/util/workqueue"
	crPath       = "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	oursPath     = "github.com/keyedqueue/workqueue"
)

// isOurs reports whether path is a package that has one of our queues.
func isOurs(path string) bool {
	switch path {
	case oursPath, oursPath + "/priorityqueue", oursPath + "/redisqueue", oursPath + "/controllerruntime":
		return true
	}
	return false
}

// isQueuePackage reports whether path is a package that has queues.
func isQueuePackage(path string) bool {
	return path == clientGoPath || path == crPath || isOurs(path)
}

// inQueuePackage reports whether obj is declared in a package that has queues.
func inQueuePackage(obj types.Object) bool {
	return obj != nil && obj.Pkg() != nil && isQueuePackage(obj.Pkg().Path())
}

// kind says what a method of a queue does with a key.
type kind int

const (
	other kind = iota
	get        // hands out a key
	getBatch
	done
	doneAndGet
	forget
	addRateLimited
	add
)

var kinds = map[string]kind{
	"Get": get, "GetWithPriority": get, "GetContext": get, "GetBatch": getBatch,
	"Done": done, "DoneAndGet": doneAndGet,
	"Forget": forget, "AddRateLimited": addRateLimited,
	"Add": add, "AddAfter": add, "AddWithOpts": add, "AddAll": add,
}

// kindOf returns what the method f of a queue does; it is other for every other function.
func kindOf(f *types.Func) kind {
	if f == nil || !inQueuePackage(f) || f.Signature().Recv() == nil {
		return other
	}
	return kinds[f.Name()]
}

// finishes reports whether f is a method of a queue that finishes a key.
func finishes(f *types.Func) bool {
	k := kindOf(f)
	return k == done || k == doneAndGet
}

// call is a call of a method of a queue.
type call struct {
	kind  kind
	name  string
	instr ssa.CallInstruction
	queue ssa.Value
	args  []ssa.Value // without the queue
}

// key returns the key that is passed to Done, Forget and the like.
func (c *call) key() ssa.Value {
	if c.kind == doneAndGet {
		return c.args[1]
	}
	return c.args[0]
}

// method returns the function that c calls, if it is known by name, its receiver and its arguments.
func method(c *ssa.CallCommon) (f *types.Func, receiver ssa.Value, args []ssa.Value) {
	if c.IsInvoke() {
		return c.Method, c.Value, c.Args
	}
	callee := c.StaticCallee()
	if callee == nil {
		return nil, nil, c.Args
	}
	f = objectOf(callee)
	if f != nil && f.Signature().Recv() != nil && len(c.Args) > 0 {
		return f, c.Args[0], c.Args[1:]
	}
	return f, nil, c.Args
}

// objectOf returns the declared function that fn is, an instance of, or a wrapper around.
func objectOf(fn *ssa.Function) *types.Func {
	if fn.Origin() != nil {
		fn = fn.Origin()
	}
	f, _ := fn.Object().(*types.Func)
	if f != nil {
		f = f.Origin()
	}
	return f
}

// queueCall returns instr as a call of a queue's method, or nil.
func queueCall(instr ssa.Instruction) *call {
	ci, ok := instr.(ssa.CallInstruction)
	if !ok {
		return nil
	}
	f, receiver, args := method(ci.Common())
	k := kindOf(f)
	if k == other || len(args) == 0 && k != get && k != getBatch || len(args) < 2 && k == doneAndGet {
		return nil
	}
	return &call{k, f.Name(), ci, receiver, args}
}

// keyType returns the type of the keys of a queue of type t, or nil.
func keyType(t types.Type) types.Type {
	obj, _, _ := types.LookupFieldOrMethod(t, true, nil, "Done")
	f, ok := obj.(*types.Func)
	if !ok || !inQueuePackage(f) || f.Signature().Params().Len() != 1 {
		return nil
	}
	return f.Signature().Params().At(0).Type()
}

// isQueue reports whether t is a queue, or something that embeds one.
func isQueue(t types.Type) bool { return keyType(t) != nil }

// identity says which queue a value is: a field, a variable of the package, or unknown.
type identity struct {
	variable *types.Var
	owner    types.Type // of a field
	key      types.Type
}

func identityOf(v ssa.Value) identity {
	id := identity{key: keyType(v.Type())}
	for {
		switch x := v.(type) {
		case *ssa.UnOp:
			v = x.X
		case *ssa.ChangeInterface:
			v = x.X
		case *ssa.MakeInterface:
			v = x.X
		case *ssa.ChangeType:
			v = x.X
		case *ssa.FieldAddr:
			return id.field(x.X.Type(), x.Field)
		case *ssa.Field:
			return id.field(x.X.Type(), x.Field)
		case *ssa.Global:
			id.variable, _ = x.Object().(*types.Var)
			return id
		default:
			return id
		}
	}
}

func (id identity) field(owner types.Type, field int) identity {
	if p, ok := owner.Underlying().(*types.Pointer); ok {
		owner = p.Elem()
	}
	if s, ok := owner.Underlying().(*types.Struct); ok {
		id.variable, id.owner = s.Field(field).Origin(), owner
	}
	return id
}

// mayAlias reports whether a and b may be the same queue. Two fields of one struct are different queues, as are two
// variables of the package.
func mayAlias(a, b identity) bool {
	if a.variable != nil && b.variable != nil && a.variable != b.variable {
		if a.owner == nil && b.owner == nil {
			return false
		}
		if a.owner != nil && b.owner != nil && types.Identical(a.owner, b.owner) {
			return false
		}
	}
	return a.key == nil || b.key == nil || mayBeEqualTypes(a.key, b.key)
}

func mayBeEqualTypes(a, b types.Type) bool {
	return types.Identical(a, b) || types.IsInterface(a) || types.IsInterface(b) || isTypeParam(a) || isTypeParam(b)
}

func isTypeParam(t types.Type) bool {
	_, ok := types.Unalias(t).(*types.TypeParam)
	return ok
}

// within reports whether path is pkg or below it.
func within(path, pkg string) bool { return path == pkg || strings.HasPrefix(path, pkg+"/") }
