package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommand runs the command as users do, on a module with the dependencies of the analyzers' tests.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	queuevet := filepath.Join(dir, "queuevet")
	run(t, ".", 0, "go", "build", "-o", queuevet, ".")
	app := newModule(t, dir)
	write(t, filepath.Join(app, "main_test.go"), "package main\n\nimport _ \"testing\"\n")

	const found = "main.go:1:9: metrics of the queues that app makes are not registered: app sets client-go's provider alone"
	for _, command := range [][]string{
		{"go", "vet", "-vettool=" + queuevet, "./..."},
		{queuevet, "./..."},
	} {
		out := run(t, app, -1, command...)
		if !strings.Contains(out, found) || strings.Count(out, ".go:") != 1 {
			t.Errorf("%v printed\n%swant only\n%s", command, out, found)
		}
	}
	if out := run(t, app, 0, "go", "vet", "-vettool="+queuevet, "-queuemetrics=false", "./..."); out != "" {
		t.Errorf("without queuemetrics it printed\n%s", out)
	}
}

// newModule makes a module in dir, with the analyzers' fake dependencies as modules beside it.
func newModule(t *testing.T, dir string) (app string) {
	if err := os.CopyFS(dir, os.DirFS("analyzer/testdata/src")); err != nil {
		t.Fatal(err)
	}
	app = filepath.Join(dir, "app")
	if err := os.CopyFS(app, os.DirFS("analyzer/testdata/src/metricsnamed")); err != nil {
		t.Fatal(err)
	}
	mod := "module app\n\ngo 1.25\n"
	for _, module := range []string{"k8s.io/client-go", "github.com/keyedqueue/workqueue"} {
		write(t, filepath.Join(dir, module, "go.mod"), "module "+module+"\n\ngo 1.25\n")
		mod += "require " + module + " v0.0.0\nreplace " + module + " => ../" + module + "\n"
	}
	write(t, filepath.Join(app, "go.mod"), mod)
	return app
}

func write(t *testing.T, file, content string) {
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run runs a command and returns what it prints. It must end with the exit code; -1 stands for any but 0.
func run(t *testing.T, dir string, code int, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	if dir != "." {
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -trimpath", "GOPROXY=off")
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code && (code != -1 || got == 0) {
		t.Errorf("%v ended with %d, want %d:\n%s", command, got, code, out)
	}
	return string(out)
}
