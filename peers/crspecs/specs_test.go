package crspecs

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/ast/astutil"
)

// leftOut are the tests that are about how controller-runtime's queue is made, and why.
var leftOut = map[string]string{
	"TestHighPriorityItemThatBecameReadyIsReturnedBeforeLowPriorityItem": "it waits until the queue asks for a tick; what it checks besides is in TestAgainstModel of package priorityqueue",
	"TestItemCloneCopiesAllFields":                                       "it is about a struct that our queue does not have",
	"TestItemCloneDoesNotShareMemoryWithOriginal":                        "it is about a struct that our queue does not have",
	"TestPriorityQueueLogStateDoesNotRaceOnReadyAt":                      "it is about a log that our queue does not have",
}

// Controller-runtime's tests of its priority queue pass with ours: all 16 specs, and the tests beside them,
// without those that are left out.
func TestControllerRuntimesOwnTests(t *testing.T) {
	dir := packageDir(t)
	tests := filepath.Join(t.TempDir(), "tests.go")
	names, n := copyTests(t, filepath.Join(dir, "priorityqueue_test.go"), tests)
	if n != 16 {
		t.Errorf("there are %d specs, and not 16: has controller-runtime more?", n)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// An overlay puts the files into this package without writing them there.
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(here, "copied_test.go"):       tests,
		filepath.Join(here, "copied_suite_test.go"): suite(t, dir),
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	run := "^(" + strings.Join(append(names, "TestControllerWorkqueue"), "|") + ")$"
	out, err := exec.Command("go", "test", "-count=1", "-timeout=5m", "-v", "-overlay", file, "-run", run,
		".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !regexp.MustCompile(`16 Passed.*0 Failed.*0 Pending.*0 Skipped`).Match(out) {
		t.Errorf("not all specs have run:\n%s", out)
	}
	for _, name := range names {
		if !bytes.Contains(out, []byte("--- PASS: "+name+" ")) {
			t.Errorf("%s has not run", name)
		}
	}
}

// packageDir returns the folder of controller-runtime's queue.
func packageDir(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}",
		"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// suite returns a file with the function that runs the specs.
func suite(t *testing.T, dir string) string {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(dir, "priorityqueue_suite_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "suite.go")
	if err := os.WriteFile(file, bytes.Replace(src, []byte("\npackage priorityqueue\n"),
		[]byte("\npackage crspecs\n"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// copyTests writes the specs and tests in the file from to the file to. What they call stays behind:
// adapter_test.go has it for our queue. It returns the names of the tests, and the number of the specs.
func copyTests(t *testing.T, from, to string) (names []string, specs int) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, from, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	missing := maps.Clone(leftOut)
	f.Name.Name = "crspecs"
	f.Decls = slices.DeleteFunc(f.Decls, func(d ast.Decl) bool {
		switch d := d.(type) {
		case *ast.GenDecl:
			return d.Tok != token.VAR && d.Tok != token.IMPORT
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil || !strings.HasPrefix(name, "Test") {
				return true
			}
			if _, ok := leftOut[name]; ok {
				delete(missing, name)
				return true
			}
			names = append(names, name)
		}
		return false
	})
	if len(missing) > 0 {
		t.Errorf("tests that are left out do not exist: %v", slices.Collect(maps.Keys(missing)))
	}
	for _, i := range slices.Clone(f.Imports) {
		path, name := strings.Trim(i.Path.Value, `"`), ""
		if before, ok := strings.CutSuffix(path, "/v2"); ok && i.Name == nil {
			i.Name = ast.NewIdent(filepath.Base(before)) // UsesImport would take it for v2.
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		if !astutil.UsesImport(f, path) {
			astutil.DeleteNamedImport(fset, f, name, path)
		}
	}
	var src bytes.Buffer
	if err := format.Node(&src, fset, f); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, src.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return names, len(regexp.MustCompile(`\bIt\(`).FindAll(src.Bytes(), -1))
}
