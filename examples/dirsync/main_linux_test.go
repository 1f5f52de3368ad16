// The tests need named pipes and mounts as Linux has them. (The program runs elsewhere.)

package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
	"github.com/keyedqueue/workqueue/examples/internal/readme"
)

// dirs is SOURCE and DEST of a test, and what dirsync has printed.
type dirs struct {
	*testing.T
	src, dst       string
	stdout, stderr locked.Buffer
}

func newDirs(t *testing.T) *dirs {
	t.Parallel()
	d := &dirs{T: t, src: filepath.Join(t.TempDir(), "src"), dst: filepath.Join(t.TempDir(), "dst")}
	d.do(os.Mkdir(d.src, 0o755))
	return d
}

func (d *dirs) do(errs ...error) {
	d.Helper()
	for _, err := range errs {
		if err != nil {
			d.Fatal(err)
		}
	}
}

func (d *dirs) write(dir, name, content string) {
	d.Helper()
	d.do(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755),
		os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
}

// run runs dirsync and checks its exit code and a part of what it prints.
func (d *dirs) run(ctx context.Context, code int, prints string, flags ...string) {
	d.Helper()
	got := run(ctx, append(flags, d.src, d.dst), &d.stdout, &d.stderr)
	if out := d.stdout.Take() + d.stderr.Take(); got != code || !strings.Contains(out, prints) {
		d.Fatalf("exit code %d, want %d and %q:\n%s", got, code, prints, out)
	}
}

// differ describes how two directories differ.
func (d *dirs) differ() string {
	list := func(root string) (lines []string) {
		filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(root, p)
			content, _ := os.ReadFile(p)
			target, _ := os.Readlink(p)
			if info, err := os.Lstat(p); err == nil && info.Mode().IsRegular() {
				target = info.ModTime().String()
			}
			lines = append(lines, fmt.Sprintf("%s %v %s %q", rel, err, target, content))
			return nil
		})
		return lines
	}
	if a, b := list(d.src), list(d.dst); !slices.Equal(a, b) {
		return fmt.Sprintf("%s\n--\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	return ""
}

func (d *dirs) wantEqual() {
	d.Helper()
	if diff := d.differ(); diff != "" {
		d.Fatalf("SOURCE and DEST differ:\n%s", diff)
	}
}

// eventually waits for what dirsync does by itself. The limit is for busy machines.
func (d *dirs) eventually(what string, done func() bool) {
	d.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			d.Fatalf("never: %s\n%s\n%s", what, d.stderr.String(), d.differ())
		}
	}
}

// start runs dirsync until stop, which checks its exit code.
func (d *dirs) start() (stop func(code int, prints string)) {
	ctx, cancel := context.WithCancel(d.Context())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{d.src, d.dst}, &d.stdout, &d.stderr) }()
	d.eventually("the first pass", func() bool { return strings.Contains(d.stderr.String(), "first pass done") })
	return func(code int, prints string) {
		d.Helper()
		cancel()
		if got := <-ended; got != code || !strings.Contains(d.stderr.String(), prints) {
			d.Fatalf("exit code %d, want %d and %q:\n%s", got, code, prints, d.stderr.String())
		}
	}
}

func TestOnce(t *testing.T) {
	d := newDirs(t)
	for i := range 300 {
		d.write(d.src, fmt.Sprintf("a/%d/file", i%7*1000+i), strings.Repeat("x", i))
	}
	d.write(d.src, "was a directory", "now a file")
	d.write(d.src, "was a file/file", "in a directory")
	d.write(d.src, "same size", "new")
	d.do(os.Symlink("../nowhere", filepath.Join(d.src, "a/link")),
		os.Mkdir(filepath.Join(d.src, "empty"), 0o555))
	d.do(syscall.Mkfifo(filepath.Join(d.src, "pipe"), 0o644))
	d.write(d.dst, "was a directory/file", "x")
	d.write(d.dst, "was a file", "x")
	d.write(d.dst, "same size", "old")
	d.write(d.dst, "extra/deep/file", "x")
	d.write(d.dst, tempPrefix+"1-1", "left behind")
	d.run(t.Context(), 0, " 0 failed", "-once")
	d.do(os.Remove(filepath.Join(d.src, "pipe")))
	d.wantEqual()
	d.run(t.Context(), 0, " 0 copied, 0 updated, 0 directories made, 0 removed", "-once")
	d.do(os.Chmod(filepath.Join(d.src, "same size"), 0o600))
	d.run(t.Context(), 0, "dirsync: updated \"same size\"\n", "-once", "-v")
	if info, err := os.Stat(filepath.Join(d.dst, "same size")); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestWatch(t *testing.T) {
	d := newDirs(t)
	d.write(d.src, "dir/sub/file", "1")
	d.write(d.src, "gone", "1")
	stop := d.start()
	at := func(name string) string { return filepath.Join(d.src, name) }
	for _, change := range []func(){
		func() { d.write(d.src, "new/deep/file", "2") },
		func() { d.write(d.src, "dir/sub/file", "changed") },
		func() { d.do(os.Remove(at("gone"))) },
		func() { d.do(os.Rename(at("dir"), at("moved"))) },
		func() { d.write(d.src, "moved/sub/file", "changed where it was moved to") },
		func() { d.do(os.Rename(at("moved/sub/file"), at("new/file"))) },
		func() { d.do(os.RemoveAll(at("new")), os.Symlink("moved", at("new"))) },
	} {
		change()
		d.eventually("equal", func() bool { return d.differ() == "" })
	}
	stop(0, "finishing what is queued")
}

// A file that cannot be written fails until it can be: a directory that DEST's user may not enter is in the
// way.
func TestFailure(t *testing.T) {
	d := newDirs(t)
	d.write(d.src, "ok", "1")
	d.write(d.src, "file", "1")
	d.write(d.dst, "file/kept", "1")
	if err := syscall.Mount("tmpfs", filepath.Join(d.dst, "file"), "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no busy directory without mount(2): %v", err)
	}
	d.run(t.Context(), 1, `gave up on "file": `, "-once")
	d.do(syscall.Unmount(filepath.Join(d.dst, "file"), 0))
	d.run(t.Context(), 0, " 1 updated", "-once")
	d.wantEqual()
}

func TestCtrlCOnce(t *testing.T) {
	d := newDirs(t)
	d.write(d.src, "dir/file", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d.run(ctx, 1, "dirsync: 1 paths, and what is below them, are left for the next run", "-once")
	d.run(ctx, 1, " 0 merged", "-once")
	d.run(t.Context(), 0, " 0 failed", "-once")
}

func TestSourceDisappears(t *testing.T) {
	d := newDirs(t)
	d.write(d.src, "file", "1")
	stop := d.start()
	d.do(os.Rename(d.src, d.src+" away"), os.Mkdir(d.src, 0o755))
	d.write(d.src+" away", "new", "1")
	d.eventually("noticed", func() bool {
		return strings.Contains(d.stderr.String(), "is no longer the directory")
	})
	stop(1, "put it back and start again")
	_, err := os.Stat(filepath.Join(d.dst, "file"))
	d.do(err)
}

func TestRefused(t *testing.T) {
	d := newDirs(t)
	d.write(d.dst, "file", "1")
	for prints, args := range map[string][]string{
		"SOURCE is empty":                {d.src, d.dst},
		"it would be copied into itself": {d.dst, d.dst + "/new"},
		"it would be removed":            {d.dst, filepath.Dir(d.dst)},
		"no such file":                   {d.src + "/none", d.dst},
		"not a directory":                {d.dst + "/file", d.dst},
		"want two arguments":             {d.src},
		"not defined":                    {"-none", d.src, d.dst},
	} {
		if code := run(t.Context(), args, &d.stdout, &d.stderr); code != 2 ||
			!strings.Contains(d.stderr.Take(), prints) {
			t.Errorf("%q: exit code %d, want 2 and %q", args, code, prints)
		}
	}
	d.run(t.Context(), 2, "SOURCE is empty")
	if code := run(t.Context(), []string{"-h"}, &d.stdout, &d.stderr); code != 0 ||
		!strings.Contains(d.stderr.String(), "Exit codes") {
		t.Errorf("-h: exit code %d", code)
	}
}

// README.md shows what the program prints, but for the order of what workers do at a time, and for the time.
func TestREADME(t *testing.T) {
	base := t.TempDir()
	const setUp = "mkdir -p /tmp/notes/drafts && echo milk >/tmp/notes/list && echo Dear >/tmp/notes/drafts/letter"
	readme.Output(t, setUp)
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(setUp, "/tmp",
		base)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var out locked.Buffer
	run(t.Context(), []string{"-once", "-v", base + "/notes", base + "/copy"}, &out, &out)
	elapsed := regexp.MustCompile(`failed, .*`)
	lines := func(s string) []string { return slices.Sorted(strings.Lines(elapsed.ReplaceAllString(s, ""))) }
	if want := lines(readme.Output(t, "go run ./examples/dirsync -once -v /tmp/notes /tmp/copy")); !slices.Equal(
		lines(out.String()), want) {
		t.Errorf("printed:\n%s\nREADME.md shows otherwise:\n%s", out.String(), strings.Join(want, ""))
	}
}
