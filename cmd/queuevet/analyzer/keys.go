package analyzer

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Key reports queues whose keys are compared by address.
var Key = &analysis.Analyzer{
	Name: "queuekey",
	Doc: `report keys that are, or hold, pointers or channels

A queue compares keys with ==. Two pointers to equal objects are two keys, so adds are not merged, two workers
process one object at a time, and its backoff begins anew with each pointer. What a pointer refers to may also
change while the key is queued. Add a name, or a struct of names.

Pointers from a table of the same package (a map whose values they are) are not reported: there is one for each
object. Nor are events that hold objects, if every Add makes a new one and none is retried: such a queue is meant
to be a plain list.`,
	URL:      url + "#queuekey",
	Run:      runKey,
	Requires: []*analysis.Analyzer{facts},
}

type keyCheck struct {
	*reporter
	info *types.Info
	// tables has the types that are values of maps.
	tables []types.Type
}

func runKey(pass *analysis.Pass) (any, error) {
	if !pass.ResultOf[facts].(*knowledge).program.UsesQueues || isQueuePackage(pass.Pkg.Path()) {
		return nil, nil
	}
	c := &keyCheck{reporter: newReporter(pass), info: pass.TypesInfo}
	c.findTables()
	for _, file := range pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				c.constructor(call)
				c.add(call)
			}
			return true
		})
	}
	return nil, nil
}

func (c *keyCheck) findTables() {
	for _, t := range c.info.Types {
		if m, ok := t.Type.(*types.Map); ok && t.IsType() {
			c.tables = append(c.tables, types.Unalias(m.Elem()))
		}
	}
}

// constructor checks a call that makes a queue.
func (c *keyCheck) constructor(call *ast.CallExpr) {
	f := c.callee(call)
	if f == nil || !inQueuePackage(f) || f.Signature().Recv() != nil || !strings.HasPrefix(f.Name(), "New") {
		return
	}
	if tuple := f.Signature().Results(); tuple.Len() == 0 || !isQueue(tuple.At(0).Type()) {
		return
	}
	queue := c.info.TypeOf(call)
	if tuple, ok := queue.(*types.Tuple); ok {
		queue = tuple.At(0).Type()
	}
	key := keyType(queue)
	if key == nil || types.IsInterface(key) || isTypeParam(key) || c.areEvents(key) {
		return
	}
	c.check(call.Pos(), key, "keys of this queue are")
}

// add checks what is added to a queue of interfaces.
func (c *keyCheck) add(call *ast.CallExpr) {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	f := c.callee(call)
	if !ok || f == nil || kindOf(f) != add && kindOf(f) != addRateLimited || len(call.Args) == 0 {
		return
	}
	receiver := c.info.TypeOf(sel.X)
	if s := c.info.Selections[sel]; s != nil {
		receiver = s.Recv()
	}
	key := keyType(receiver)
	if key == nil || !types.IsInterface(key) || isTypeParam(key) {
		return
	}
	keys := call.Args[:1]
	if f.Name() == "AddWithOpts" {
		keys = call.Args[1:]
	}
	for _, k := range keys {
		if t := c.info.TypeOf(k); t != nil && !types.IsInterface(t) && !isTypeParam(t) {
			c.check(k.Pos(), t, "this key is")
		}
	}
}

func (c *keyCheck) callee(call *ast.CallExpr) *types.Func {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) {
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	var id *ast.Ident
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		id = f.Sel
	case *ast.Ident:
		id = f
	default:
		return nil
	}
	f, _ := c.info.Uses[id].(*types.Func)
	return f
}

func (c *keyCheck) check(pos token.Pos, key types.Type, subject string) {
	what, path := c.address(key, "", 0)
	if what == "" {
		return
	}
	if path != "" {
		what = fmt.Sprintf("structs whose field %s is %s", path, what)
	}
	c.reportf(pos, "%s %s, which are compared by address: equal objects are not merged, "+
		"and can be processed at the same time; use a name, or a struct of names, as the key", subject, what)
}

// address describes what in a key of type t is compared by address, and the field it is in. It is "" if there is
// nothing.
func (c *keyCheck) address(t types.Type, path string, depth int) (what, field string) {
	if depth > 8 || c.inTable(t) || knownIdentity(t) {
		return "", ""
	}
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		if path == "" {
			return fmt.Sprintf("pointers (%s)", types.TypeString(t, c.qualifier)), ""
		}
		return fmt.Sprintf("a pointer (%s)", types.TypeString(t, c.qualifier)), path
	case *types.Chan:
		if path == "" {
			return "channels", ""
		}
		return "a channel", path
	case *types.Basic:
		if u.Kind() == types.UnsafePointer {
			return "an unsafe.Pointer", path
		}
	case *types.Array:
		return c.address(u.Elem(), path+"[]", depth+1)
	case *types.Struct:
		for f := range u.Fields() {
			name := f.Name()
			if path != "" {
				name = path + "." + name
			}
			if what, field := c.address(f.Type(), name, depth+1); what != "" {
				return what, field
			}
		}
	}
	return "", ""
}

// knownIdentity reports whether pointers in values of type t stand for the values: package unique keeps one for
// each, and so do netip's zones and time's locations.
func knownIdentity(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return false
	}
	switch named.Obj().Pkg().Path() + "." + named.Obj().Name() {
	case "unique.Handle", "net/netip.Addr", "net/netip.AddrPort", "net/netip.Prefix", "reflect.Type":
		return true
	}
	return false
}

// inTable reports whether this package keeps values of type t in a map. An object of Kubernetes' API does not
// count: informers replace the pointer with each change.
func (c *keyCheck) inTable(t types.Type) bool {
	if p, ok := t.Underlying().(*types.Pointer); !ok || isAPIObject(p) {
		return false
	}
	for _, table := range c.tables {
		if types.Identical(table, t) {
			return true
		}
	}
	return false
}

func isAPIObject(t types.Type) bool {
	obj, _, _ := types.LookupFieldOrMethod(t, true, nil, "DeepCopyObject")
	return obj != nil
}

func (c *keyCheck) qualifier(p *types.Package) string {
	if p == c.pass.Pkg {
		return ""
	}
	return p.Name()
}
