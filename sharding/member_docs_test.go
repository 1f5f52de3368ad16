package sharding

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program in docs/sharding.md compiles, and its two replicas divide the keys.
func TestProgramOfDocs(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles a program")
	}
	doc, err := os.ReadFile("../docs/sharding.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(doc), "```go\n")
	program, _, _ = strings.Cut(program, "```\n")
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "run", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first, second := strings.Count(string(out), "pod-1 handles team-"),
		strings.Count(string(out), "pod-2 handles team-")
	if first == 0 || second == 0 || first+second < 20 {
		t.Errorf("%d and %d keys were handled:\n%s", first, second, out)
	}
}
