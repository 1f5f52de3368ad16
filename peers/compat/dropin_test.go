package compat

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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
