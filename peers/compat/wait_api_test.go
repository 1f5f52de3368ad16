package compat

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	peer "k8s.io/apimachinery/pkg/util/wait"

	"github.com/keyedqueue/workqueue/wait"
)

const (
	waitPath     = "github.com/keyedqueue/workqueue/wait"
	waitPeerPath = "k8s.io/apimachinery/pkg/util/wait"
)

// The two Backoff types convert into each other: same fields, same order.
var _ = peer.Backoff(wait.Backoff{})

// TestWaitAPI finds each exported name of the peer, but for its deprecated polling
// functions, with the identical signature.
func TestWaitAPI(t *testing.T) {
	packages := importWaitPackages(t, waitPath, waitPeerPath)
	ours, theirs := packages[waitPath].Scope(), packages[waitPeerPath].Scope()
	found := 0
	for _, name := range theirs.Names() {
		want := theirs.Lookup(name)
		if !want.Exported() || deprecatedWaitPoll(name) {
			continue
		}
		got := ours.Lookup(name)
		if got == nil {
			t.Errorf("%s is missing", name)
			continue
		}
		found++
		got1, want1 := describeWaitObject(got), describeWaitObject(want)
		if got1 != want1 {
			t.Errorf("%s:\n\t%s\nwant\n\t%s", name, got1, want1)
		}
	}
	if found < 30 { // v0.37 has that many
		t.Errorf("compared only %d names", found)
	}
}

func deprecatedWaitPoll(name string) bool {
	return strings.HasPrefix(name, "Poll") &&
		name != "PollUntilContextCancel" && name != "PollUntilContextTimeout"
}

// importWaitPackages returns the packages' types, from what the compiler has exported.
func importWaitPackages(t *testing.T, paths ...string) map[string]*types.Package {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(files[path])
	})
	packages := make(map[string]*types.Package)
	for _, path := range paths {
		if packages[path], err = imports.Import(path); err != nil {
			t.Fatalf("import %s: %v", path, err)
		}
	}
	return packages
}

// describeWaitObject writes down what of an exported object its users depend on: the same
// text for both packages if they may be exchanged.
func describeWaitObject(object types.Object) string {
	names := func(p *types.Package) string {
		if p.Path() == waitPath || p.Path() == waitPeerPath {
			return "wait"
		}
		return p.Path()
	}
	kind := strings.TrimPrefix(fmt.Sprintf("%T", object), "*types.")
	text := kind + " " + types.TypeString(withoutWaitParameterNames(object.Type()), names)
	if _, isType := object.(*types.TypeName); !isType {
		return text
	}
	switch under := object.Type().Underlying().(type) {
	case *types.Struct:
		for field := range under.Fields() {
			if field.Exported() {
				text += fmt.Sprintf("; field %s %s", field.Name(), types.TypeString(field.Type(), names))
			}
		}
	case *types.Signature:
		text += "; " + types.TypeString(withoutWaitParameterNames(under), names)
	case *types.Interface:
	default:
		text += "; " + types.TypeString(under, names)
	}
	for _, of := range []types.Type{object.Type(), types.NewPointer(object.Type())} {
		for method := range types.NewMethodSet(of).Methods() {
			if method.Obj().Exported() {
				text += fmt.Sprintf("; method %s.%s%s", types.TypeString(of, names), method.Obj().Name(),
					types.TypeString(withoutWaitParameterNames(method.Obj().Type()), names))
			}
		}
	}
	return text
}

// withoutWaitParameterNames strips a signature of the names that are no part of its type.
func withoutWaitParameterNames(t types.Type) types.Type {
	signature, ok := t.(*types.Signature)
	if !ok {
		return t
	}
	strip := func(tuple *types.Tuple) *types.Tuple {
		var variables []*types.Var
		for v := range tuple.Variables() {
			variables = append(variables, types.NewParam(token.NoPos, nil, "", withoutWaitParameterNames(v.Type())))
		}
		return types.NewTuple(variables...)
	}
	return types.NewSignatureType(nil, nil, nil, strip(signature.Params()), strip(signature.Results()), signature.Variadic())
}
