package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
)

// TestMain lets a test run the program as a process of its own, see runProcess.
func TestMain(m *testing.M) {
	if os.Getenv("DIRSYNC_TEST_MAIN") != "" {
		becomeTestUser()
		main()
		return
	}
	os.Exit(m.Run())
}

// becomeTestUser gives up root's rights where a test asks for it, see unix_test.go.
var becomeTestUser = func() {}

// A tdir is a directory of a test. Its methods end the test when they fail.
type tdir struct {
	t    *testing.T
	path string
}

func newDirs(t *testing.T) (src, dst tdir) {
	t.Helper()
	base := t.TempDir()
	src, dst = tdir{t, filepath.Join(base, "src")}, tdir{t, filepath.Join(base, "dst")}
	src.mkdir(".")
	dst.mkdir(".")
	return src, dst
}

func (d tdir) at(name string) string { return filepath.Join(d.path, name) }

func (d tdir) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d tdir) mkdir(name string) {
	d.t.Helper()
	d.must(os.MkdirAll(d.at(name), 0o755))
}

// file writes a file with a time in the past, so that it counts as settled.
func (d tdir) file(name, content string) {
	d.t.Helper()
	d.mkdir(filepath.Dir(name))
	d.must(os.WriteFile(d.at(name), []byte(content), 0o644))
	d.age(name, time.Hour)
}

func (d tdir) age(name string, age time.Duration) {
	d.t.Helper()
	when := time.Now().Add(-age)
	d.must(os.Chtimes(d.at(name), when, when))
}

func (d tdir) chmod(name string, mode fs.FileMode) {
	d.t.Helper()
	d.must(os.Chmod(d.at(name), mode))
}

func (d tdir) link(name, target string) {
	d.t.Helper()
	d.mkdir(filepath.Dir(name))
	d.must(os.Symlink(target, d.at(name)))
}

func (d tdir) remove(name string) {
	d.t.Helper()
	d.must(os.RemoveAll(d.at(name)))
}

func (d tdir) rename(from, to string) {
	d.t.Helper()
	d.must(os.Rename(d.at(from), d.at(to)))
}

// snapshot describes all that a directory holds: kinds, permissions, times and contents.
func snapshot(root string) (map[string]string, error) {
	found := make(map[string]string)
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		key, _ := filepath.Rel(root, p)
		switch mode := info.Mode(); {
		case mode.IsRegular():
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			found[key] = fmt.Sprintf("%v %d %q", mode, info.ModTime().UnixNano(), content)
		case mode.Type() == fs.ModeSymlink:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			found[key] = "-> " + target
		default:
			found[key] = fmt.Sprintf("%v %d", mode, info.ModTime().UnixNano())
		}
		return nil
	})
	return found, err
}

// differences compares two directories, apart from the names in except.
func differences(a, b string, except ...string) string {
	inA, err := snapshot(a)
	if err != nil {
		return err.Error()
	}
	inB, err := snapshot(b)
	if err != nil {
		return err.Error()
	}
	for _, key := range except {
		delete(inA, key)
		delete(inB, key)
	}
	var diff strings.Builder
	for key, is := range inA {
		if inB[key] != is {
			fmt.Fprintf(&diff, "%q: %.100s | %.100s\n", key, is, inB[key])
		}
	}
	for key, is := range inB {
		if _, ok := inA[key]; !ok {
			fmt.Fprintf(&diff, "%q: nothing | %.100s\n", key, is)
		}
	}
	return diff.String()
}

func wantEqual(t *testing.T, src, dst tdir, except ...string) {
	t.Helper()
	if diff := differences(src.path, dst.path, except...); diff != "" {
		t.Errorf("SOURCE and DEST differ:\n%s", diff)
	}
}

// A result is what a run of the program came to.
type result struct {
	code           int
	stdout, stderr string
}

// count returns a line of the summary.
func (r result) count(t *testing.T, name string) (n int) {
	t.Helper()
	for line := range strings.Lines(r.stdout) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				return n
			}
		}
	}
	t.Fatalf("no %q in the summary:\n%s", name, r.stdout)
	return 0
}

// once runs the program with -once.
func once(t *testing.T, src, dst tdir, flags ...string) result {
	t.Helper()
	args := append([]string{"-once", "-settle", "10ms", "-max-retries", "3"}, flags...)
	return runMain(t.Context(), append(args, src.path, dst.path)...)
}

func runMain(ctx context.Context, args ...string) result {
	var stdout, stderr locked.Buffer
	code := run(ctx, args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

func wantCode(t *testing.T, r result, code int) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.stdout, r.stderr)
	}
}

// eventually waits until cond holds. What it waits for usually takes milliseconds; the limit is
// for machines that have much else to do.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// checkGoroutines fails the test if goroutines of the program are still there at its end.
func checkGoroutines(t *testing.T) {
	t.Cleanup(func() {
		var left []string
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			left = nil
			buf := make([]byte, 1<<20)
			buf = buf[:runtime.Stack(buf, true)]
			for g := range strings.SplitSeq(string(buf), "\n\n") {
				ours := strings.Contains(g, "/dirsync.") || strings.Contains(g, "fsnotify") || strings.Contains(g, "workqueue.")
				if ours && !strings.Contains(g, "testing.tRunner") {
					left = append(left, g)
				}
			}
			if len(left) == 0 {
				return
			}
		}
		t.Errorf("goroutines left:\n%s", strings.Join(left, "\n\n"))
	})
}
