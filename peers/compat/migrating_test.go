package compat_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMigratingCompiles builds the code in docs/migrating.md, each block by itself.
func TestMigratingCompiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "migrating.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 4 {
		t.Errorf("%d blocks of code, want 4", len(blocks))
	}
	for i, block := range blocks {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("block%d.go", i))
		if err := os.WriteFile(file, []byte(wholeFile(string(block[1]))), 0o600); err != nil {
			t.Fatal(err)
		}
		// Vet compiles, and also finds what compiles and is wrong. The module is the one of this test.
		if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
			t.Errorf("block %d: %v\n%s", i+1, err, out)
		}
	}
}

// The command in docs/migrating.md changes the import of client-go's own example, which then compiles.
func TestMigratingCommand(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "migrating.md"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^gofmt -r .*$`).Find(text)
	if command == nil {
		t.Fatal("docs/migrating.md has no command any more")
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go")
	clientGo, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	folder := strings.TrimSpace(string(clientGo))
	before, err := os.ReadFile(filepath.Join(folder, "examples", "workqueue", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "controller.go")
	if err := os.WriteFile(file, before, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", string(command))
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(after), "client-go/util/workqueue") ||
		!strings.Contains(string(after), `"github.com/keyedqueue/workqueue"`) {
		t.Errorf("the command makes\n%s", after)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// sampleController has the names that a block takes from sample-controller.
const sampleController = `
type controller struct {
	workqueue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
	syncHandler func(context.Context, cache.ObjectName) error
}

func _(ctx context.Context, c *controller, workers int, logger logr.Logger) error {
`

// wholeFile makes a file of statements, and returns what is a file already.
func wholeFile(code string) string {
	if strings.HasPrefix(code, "package ") {
		return code
	}
	body := "\nfunc _() error {\n" + code + "return nil\n}\n"
	if strings.Contains(code, "c.syncHandler") {
		body = sampleController + code + "}\n"
	}
	var imports strings.Builder
	for name, path := range map[string]string{
		"cache":          "k8s.io/client-go/tools/cache",
		"context":        "context",
		"legacyregistry": "k8s.io/component-base/metrics/legacyregistry",
		"logr":           "github.com/go-logr/logr",
		"metrics":        "sigs.k8s.io/controller-runtime/pkg/metrics",
		"prom":           "github.com/keyedqueue/workqueue/prom",
		"prometheus":     "github.com/prometheus/client_golang/prometheus",
		"slog":           "log/slog",
		"worker":         "github.com/keyedqueue/workqueue/worker",
		"workqueue":      "github.com/keyedqueue/workqueue",
	} {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(body) {
			fmt.Fprintf(&imports, "import %q\n", path)
		}
	}
	return "package p\n\n" + imports.String() + body
}
