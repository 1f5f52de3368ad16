package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The README has the program as it is here, and says what it prints.
func TestREADME(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(source), "\n") // without the package's comment
	if !strings.Contains(string(page), "```go\n"+program+"```\n") {
		t.Error("README.md has another program than main.go")
	}
	if runtime.GOOS == "windows" {
		t.Skip("no process can send Ctrl-C to another one on Windows")
	}
	binary := filepath.Join(t.TempDir(), "first")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	command := exec.Command(binary)
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var printed []string
	for lines := bufio.NewScanner(stdout); len(printed) < 2 && lines.Scan(); {
		printed = append(printed, lines.Text())
	}
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if slices.Sort(printed); !slices.Equal(printed, []string{"reconciled default/db",
		"reconciled default/web"}) {
		t.Errorf("printed %q", printed)
	}
	for _, line := range printed {
		if !strings.Contains(string(page), "\n"+line+"\n") {
			t.Errorf("README.md does not say that it prints %q", line)
		}
	}
}
