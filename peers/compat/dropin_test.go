package compat

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// dropinDir has a program that was written for client-go.
var dropinDir = filepath.Join("testdata", "dropin")

// dropin returns the program's files by name, with path in the place of client-go's workqueue.
func dropin(t *testing.T, path string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dropinDir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatal("no program: ", err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = bytes.ReplaceAll(source, []byte(strconv.Quote(peerPath)), []byte(strconv.Quote(path)))
	}
	return files
}

// byPath imports packages that are loaded already.
type byPath map[string]*types.Package

func (b byPath) Import(path string) (*types.Package, error) { return b[path], nil }

// checkDropin type-checks the program with path in the place of client-go's workqueue. It returns that
// package and the objects that the program names, instances of generic ones as what they are made of.
func checkDropin(t *testing.T, path string) (used map[types.Object]bool, workqueue *types.Package) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	imports := map[string]bool{}
	for name, source := range dropin(t, path) {
		file, err := parser.ParseFile(fset, name, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			imports[imported] = true
		}
	}
	packages := loadTypes(t, slices.Sorted(maps.Keys(imports))...)
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{
		Importer: byPath(packages),
		Error:    func(err error) { t.Error(err) },
	}
	config.Check("dropin", fset, files, info)
	used = map[types.Object]bool{}
	for _, object := range info.Uses {
		switch o := object.(type) {
		case *types.Var:
			object = o.Origin()
		case *types.Func:
			object = o.Origin()
		}
		used[object] = true
	}
	return used, packages[path]
}

// TestDropinIsComplete finds every exported name of client-go in the program, and every exported
// field and method of them.
func TestDropinIsComplete(t *testing.T) {
	used, peer := checkDropin(t, peerPath)
	for _, name := range exportedNames(peer) {
		object := peer.Scope().Lookup(name)
		if !used[object] {
			t.Errorf("the program does not use %s", name)
		}
		if _, ok := object.(*types.TypeName); !ok {
			continue
		}
		for _, member := range members(object.Type()) {
			if member.Pkg() == peer && !used[member] {
				t.Errorf("the program does not use %s.%s", name, member.Name())
			}
		}
	}
}

// members returns the exported fields of a struct, and the exported methods of any type. Those of an
// alias are those of the type behind it, with any type arguments.
func members(typ types.Type) []types.Object {
	named := types.Unalias(typ).(*types.Named).Origin()
	var found []types.Object
	if s, ok := named.Underlying().(*types.Struct); ok {
		for field := range s.Fields() {
			if field.Exported() {
				found = append(found, field.Origin())
			}
		}
	}
	var methods *types.MethodSet
	if types.IsInterface(named) {
		methods = types.NewMethodSet(named)
	} else {
		methods = types.NewMethodSet(types.NewPointer(named))
	}
	for m := range methods.Methods() {
		if m.Obj().Exported() {
			found = append(found, m.Obj().(*types.Func).Origin())
		}
	}
	return found
}

// TestDropinRuns builds and runs the program with either package. It prints the same.
func TestDropinRuns(t *testing.T) {
	want := runDropin(t, peerPath)
	if lines := strings.Count(want, "\n"); lines < 50 {
		t.Fatalf("the program printed only %d lines:\n%s", lines, want)
	}
	if got := runDropin(t, ourPath); got != want {
		t.Errorf("with %s the program printed\n%s\nwant\n%s", ourPath, got, want)
	}
}

func runDropin(t *testing.T, path string) string {
	t.Helper()
	// An overlay lets the go command see other files than there are, in the module where they are.
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	dir := t.TempDir()
	for name, source := range dropin(t, path) {
		original, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		overlay.Replace[original] = filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(overlay.Replace[original], source, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	description, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, description, 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "run", "-overlay", overlayFile,
		"./"+filepath.ToSlash(dropinDir))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("with %s: %v\n%s", path, err, &stderr)
	}
	return stdout.String()
}
