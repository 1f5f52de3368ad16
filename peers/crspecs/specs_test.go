package crspecs

import (
	"bytes"
	"encoding/json"
	"fmt"
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
)

// leftOut are the tests that are about how controller-runtime's queue is made, and why.
var leftOut = map[string]string{
	"TestHighPriorityItemThatBecameReadyIsReturnedBeforeLowPriorityItem": "it waits until the queue asks for a tick; what it checks besides is in TestSpecs of module controllerruntime",
	"TestItemCloneCopiesAllFields":                                       "it is about a struct that our queue does not have",
	"TestItemCloneDoesNotShareMemoryWithOriginal":                        "it is about a struct that our queue does not have",
	"TestPriorityQueueLogStateDoesNotRaceOnReadyAt":                      "it is about a log that our queue does not have",
}

// Controller-runtime's tests of its priority queue pass with ours: all 16 specs, and the tests beside them, without
// those that are left out.
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
	out, err := exec.Command("go", "test", "-count=1", "-timeout=5m", "-v", "-overlay", file, "-run", run, ".").CombinedOutput()
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
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue").Output()
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
	if err := os.WriteFile(file, bytes.Replace(src, []byte("\npackage priorityqueue\n"), []byte("\npackage crspecs\n"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// copyTests writes the specs and tests in the file from to the file to. What they call stays behind: adapter_test.go
// has it for our queue. It returns the names of the tests, and the number of the specs.
func copyTests(t *testing.T, from, to string) (names []string, specs int) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, from, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var decls []ast.Decl
	missing := maps.Clone(leftOut)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil || !strings.HasPrefix(d.Name.Name, "Test") {
				continue
			}
			if _, ok := leftOut[d.Name.Name]; ok {
				delete(missing, d.Name.Name)
				continue
			}
			names = append(names, d.Name.Name)
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
		}
		decls = append(decls, d)
	}
	if len(missing) > 0 {
		t.Errorf("tests that are left out do not exist: %v", slices.Collect(maps.Keys(missing)))
	}
	var body bytes.Buffer
	for _, d := range decls {
		if err := format.Node(&body, fset, d); err != nil {
			t.Fatal(err)
		}
		body.WriteString("\n\n")
	}
	var src bytes.Buffer
	fmt.Fprintln(&src, "package crspecs")
	for _, i := range f.Imports {
		if used(i, body.Bytes()) {
			fmt.Fprintln(&src, "import", importOf(i))
		}
	}
	src.Write(body.Bytes())
	if err := os.WriteFile(to, src.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return names, len(regexp.MustCompile(`\bIt\(`).FindAll(body.Bytes(), -1))
}

// used reports whether body uses the package that i imports.
func used(i *ast.ImportSpec, body []byte) bool {
	path := strings.Trim(i.Path.Value, `"`)
	name := path[strings.LastIndex(path, "/")+1:]
	switch {
	case strings.HasSuffix(path, "/v2") && i.Name == nil:
		name = filepath.Base(filepath.Dir(path))
	case i.Name != nil && i.Name.Name == ".":
		return true
	case i.Name != nil:
		name = i.Name.Name
	}
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\.`).Match(body)
}

func importOf(i *ast.ImportSpec) string {
	if i.Name != nil {
		return i.Name.Name + " " + i.Path.Value
	}
	return i.Path.Value
}
