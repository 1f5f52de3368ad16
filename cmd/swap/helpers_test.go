package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// inRepository is the queue's checkout that these tests use.
var inRepository = func() queueModule {
	dir, err := checkout(filepath.Join("..", ".."))
	if err != nil {
		panic(err)
	}
	return queueModule{dir: dir}
}()

// write writes the files of an archive to a new directory and returns the directory of its go.mod. Words in
// it are replaced like the arguments of strings.NewReplacer.
func write(t *testing.T, archive string, replace ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "program")
	for _, file := range txtar.Parse([]byte(strings.NewReplacer(replace...).Replace(archive))).Files {
		name := filepath.Join(dir, file.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, file.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// read returns an archive of testdata.
func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// shell runs a command line in dir, as a user does, and returns what it prints.
func shell(t *testing.T, dir, line string) string {
	t.Helper()
	out, err := tryShell(dir, line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

func tryShell(dir, line string) (string, error) {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// swapIn swaps the program in dir.
func swapIn(t *testing.T, dir string) *result {
	t.Helper()
	r, err := trySwap(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func trySwap(dir string) (*result, error) {
	p, err := findProgram(dir)
	if err != nil {
		return nil, err
	}
	return p.swap(inRepository)
}

// tree returns the checksums of all files below dir, except what swap writes.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var lines strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && entry.Name() == dirName {
			return fs.SkipDir
		}
		if entry.IsDir() || entry.Name() == modName || entry.Name() == sumName {
			return nil
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&lines, "%x %s\n", sha256.Sum256(data), path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines.String()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Fatalf("the error is %v, want %q in it", err, words)
		}
	}
}
