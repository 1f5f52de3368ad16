package analyzer

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Keys reports queues of this project, of client-go and of controller-runtime whose keys are pointers. Tests
// are not checked.
var Keys = &analysis.Analyzer{
	Name: "queuekeys",
	Doc: `report queues whose keys are pointers

Two pointers to equal values are two keys: adds do not merge, two workers handle the same thing at once,
and failures are counted apart. A key is what names the thing: a string, or a struct of strings.`,
	URL: "https://github.com/keyedqueue/workqueue/tree/main/cmd/queuevet",
	Run: runKeys,
}

// hasQueues reports whether path is a package whose queues have keys.
func hasQueues(path string) bool {
	return isOurs(path) || path == clientGoPath ||
		path == "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
}

func runKeys(pass *analysis.Pass) (any, error) {
	files := withoutTests(pass)
	isTesting := func(spec *ast.ImportSpec) bool { return spec.Path.Value == `"testing"` }
	importsTesting := func(file *ast.File) bool { return slices.ContainsFunc(file.Imports, isTesting) }
	if hasQueues(pass.Pkg.Path()) || slices.ContainsFunc(files, importsTesting) { // It has what tests share.
		return nil, nil
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if key := keyOf(pass, call); isPointer(key) {
				name := types.TypeString(key, types.RelativeTo(pass.Pkg))
				pass.Reportf(call.Pos(), "keys of type %s do not merge: two pointers to equal values are two keys; "+
					"use what names the value, such as a string or a struct of strings", name)
			}
			return true
		})
	}
	return nil, nil
}

// withoutTests returns the files that are not tests: go vet has a package and its tests in one pass.
func withoutTests(pass *analysis.Pass) []*ast.File {
	return slices.DeleteFunc(slices.Clone(pass.Files), func(file *ast.File) bool {
		return strings.HasSuffix(pass.Fset.Position(file.FileStart).Filename, "_test.go")
	})
}

func isPointer(key types.Type) bool {
	if key == nil {
		return false
	}
	_, is := key.Underlying().(*types.Pointer)
	return is
}

// keyOf returns the type of a queue's keys if the call makes a queue of them, or adds one to a queue of any
// keys. Of several that it adds, it returns that of a pointer.
func keyOf(pass *analysis.Pass, call *ast.CallExpr) types.Type {
	f, _ := calleeOf(pass, call).(*types.Func)
	if f == nil || f.Pkg() == nil || !hasQueues(f.Pkg().Path()) {
		return nil
	}
	made, ok := types.Unalias(pass.TypesInfo.TypeOf(call)).(*types.Named)
	if pointer, is := pass.TypesInfo.TypeOf(call).(*types.Pointer); is {
		made, ok = types.Unalias(pointer.Elem()).(*types.Named)
	}
	if ok && made.TypeArgs().Len() > 0 && handsOutKeys(made) {
		return made.TypeArgs().At(0)
	}
	if f.Signature().Recv() == nil || !strings.HasPrefix(f.Name(), "Add") {
		return nil
	}
	params := f.Signature().Params()
	for i, arg := range call.Args {
		param := params.At(min(i, params.Len()-1)).Type()
		if slice, ok := param.(*types.Slice); ok && f.Signature().Variadic() {
			param = slice.Elem()
		}
		isContext := types.TypeString(param, nil) == "context.Context"
		if given := pass.TypesInfo.TypeOf(arg); types.IsInterface(param) && !isContext && isPointer(given) {
			return given
		}
	}
	return nil
}

// calleeOf returns what is called.
func calleeOf(pass *analysis.Pass, call *ast.CallExpr) types.Object {
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return pass.TypesInfo.Uses[fun]
	case *ast.SelectorExpr:
		return pass.TypesInfo.Uses[fun.Sel]
	case *ast.IndexExpr: // f[T]
		return calleeOf(pass, &ast.CallExpr{Fun: fun.X})
	}
	return nil
}

// handsOutKeys reports whether a type is a queue, and not a limiter.
func handsOutKeys(t types.Type) bool {
	get, _, _ := types.LookupFieldOrMethod(t, true, nil, "Get")
	return get != nil
}
