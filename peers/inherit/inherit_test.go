package inherit

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of README.md instead of comparing it")

const (
	page  = "README.md"
	begin = "<!-- TestInherit writes from here -->\n"
	end   = "<!-- to here -->\n"
)

// programs are the rows of the table. A release is tried with ours.
var programs = []struct{ name, what, ours, theirs string }{
	{"root", "a rate-limiting queue", "the root package", "client-go"},
	{"worker", "a worker that retries", "`worker`", "client-go, apimachinery"},
	{"prom", "a queue with Prometheus metrics", "`prom`", "client-go, component-base"},
	{"priorityqueue", "a priority queue", "`priorityqueue`", "controller-runtime"},
	{"controllerruntime", "a controller's priority queue", "`controllerruntime`", "controller-runtime"},
}

// cost is what a program inherits.
type cost struct {
	required, linked int
	size             float64 // MB of the stripped program.
}

const head = `
client-go CLIENT, component-base COMPONENT, controller-runtime RUNTIME.

| program | on | modules required | modules linked | size |
|---|---|---|---|---|
`

func TestInherit(t *testing.T) {
	var rows []string
	for _, p := range programs {
		for _, side := range []struct{ on, dir string }{
			{p.ours, "../../tools/testdata/consumers"}, {p.theirs, "testdata"},
		} {
			c := measure(t, filepath.Join(side.dir, p.name), p.name)
			rows = append(rows, fmt.Sprintf("| %s | %s | %d | %d | %.1f MB |\n", p.what, side.on, c.required,
				c.linked, c.size))
		}
	}
	want := strings.NewReplacer("CLIENT", version(t, "k8s.io/client-go"), "COMPONENT",
		version(t, "k8s.io/component-base"),
		"RUNTIME", version(t, "sigs.k8s.io/controller-runtime")).Replace(head) + strings.Join(rows, "") + "\n"
	file, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(file), begin)
	got, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatal("README.md has no place for the table")
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !similar(got, want) {
		t.Errorf("README.md is out of date (go test ./inherit -update). It should have\n%s", want)
	}
}

var size = regexp.MustCompile(`[0-9.]+ MB`)

// similar compares two tables, the sizes in them by and large: they vary with the version of Go.
func similar(got, want string) bool {
	gotSizes, wantSizes := size.FindAllString(got, -1), size.FindAllString(want, -1)
	for i := range min(len(gotSizes), len(wantSizes)) {
		var a, b float64
		fmt.Sscan(gotSizes[i], &a)
		fmt.Sscan(wantSizes[i], &b)
		if math.Abs(a-b) > b/10 {
			return false
		}
	}
	return size.ReplaceAllString(got, "") == size.ReplaceAllString(want, "")
}

// measure builds the program of a directory in a module of its own, runs it, and counts.
func measure(t *testing.T, dir, output string) cost {
	t.Helper()
	module := t.TempDir()
	source, err := os.ReadFile(filepath.Join(dir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(module, "main.go"), source, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, module, "go", "mod", "init", "example.com/program")
	for _, path := range []string{"k8s.io/client-go", "k8s.io/component-base",
		"sigs.k8s.io/controller-runtime"} {
		if bytes.Contains(source, []byte(path)) {
			run(t, module, "go", "mod", "edit", "-require="+path+"@"+version(t, path))
		}
	}
	const root = "github.com/keyedqueue/workqueue"
	for path, at := range map[string]string{
		root: "../..", root + "/controllerruntime": "../../controllerruntime", root + "/sharding": "../../sharding",
	} {
		absolute, err := filepath.Abs(at)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(source, []byte(`"`+root)) {
			run(t, module, "go", "mod", "edit", "-replace="+path+"="+absolute)
		}
	}
	run(t, module, "go", "mod", "tidy")
	run(t, module, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", "built", ".")
	if got := run(t, module, "./built"); !strings.HasSuffix(got, output+"\n") {
		t.Fatalf("%s printed %q", dir, got)
	}
	info, err := os.Stat(filepath.Join(module, "built"))
	if err != nil {
		t.Fatal(err)
	}
	// The first module is the program's own.
	required := strings.Count(run(t, module, "go", "list", "-m", "all"), "\n") - 1
	linked := strings.Count(run(t, module, "go", "version", "-m", "built"), "\n\tdep\t")
	return cost{required, linked, float64(info.Size()) / 1e6}
}

// version returns the version of a module that package peers compares with.
func version(t *testing.T, path string) string {
	t.Helper()
	return strings.TrimSpace(run(t, ".", "go", "list", "-m", "-f", "{{.Version}}", path))
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false -trimpath")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out)
}
