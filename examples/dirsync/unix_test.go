//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
)

// Root may read and write everything. Tests of what may not be run the program as another user.
const otherUser = 65534

func init() {
	becomeTestUser = func() {
		id, _ := strconv.Atoi(os.Getenv("DIRSYNC_TEST_USER"))
		if id == 0 {
			return
		}
		for _, err := range []error{syscall.Setgroups(nil), syscall.Setgid(id), syscall.Setuid(id)} {
			if err != nil {
				panic(err)
			}
		}
	}
}

// A process is the program run as a process of its own.
type process struct {
	*exec.Cmd
	stdout, stderr locked.Buffer
}

// startProcess runs the program as a user who is not root. The directories are handed to that user.
func startProcess(t *testing.T, src, dst tdir, flags ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	src.must(err)
	p := &process{Cmd: exec.CommandContext(t.Context(), exe, append(flags, src.path, dst.path)...)}
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	p.Env = append(os.Environ(), "DIRSYNC_TEST_MAIN=1")
	if os.Geteuid() == 0 {
		p.Env = append(p.Env, "DIRSYNC_TEST_USER="+strconv.Itoa(otherUser))
		base := filepath.Dir(src.path)
		src.must(os.Chmod(filepath.Dir(base), 0o711)) // made by t.TempDir, for root alone
		for dir := base; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if info, err := os.Stat(dir); err != nil || info.Mode()&1 == 0 {
				t.Skipf("another user cannot reach %s", base)
			}
		}
		src.must(filepath.Walk(base, func(name string, info os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(name, otherUser, otherUser)
		}))
	}
	src.must(p.Start())
	return p
}

func (p *process) wait() result {
	p.Wait()
	return result{p.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String()}
}

func TestSpecialFiles(t *testing.T) {
	src, dst := newDirs(t)
	src.file("f", "x")
	src.must(syscall.Mkfifo(src.at("pipe"), 0o644))
	dst.must(syscall.Mkfifo(dst.at("f"), 0o644))
	dst.must(syscall.Mkfifo(dst.at("gone"), 0o644))
	r := once(t, src, dst)
	wantCode(t, r, 0)
	wantEqual(t, src, dst, "pipe")
	if r.count(t, "skipped") != 1 || !strings.Contains(r.stderr, `skipped "pipe"`) {
		t.Errorf("%s%s", r.stdout, r.stderr)
	}
}

// A pipe that takes a file's place between the look and the copy must not block the worker.
func TestPipeInsteadOfFile(t *testing.T) {
	src, dst := newDirs(t)
	s := newTestSyncer(t, src, dst)
	src.file("f", "x")
	from, err := s.src.at("f")
	src.must(err)
	defer from.close()
	to, err := s.dst.at("f")
	dst.must(err)
	defer to.close()
	src.remove("f")
	src.must(syscall.Mkfifo(src.at("f"), 0o644))
	if err := s.copyFile(t.Context(), from, to); err != errChanged {
		t.Errorf("got %v", err)
	}
}

// Read-only directories are filled, and emptied, by a user for whom they are read-only.
func TestReadOnlyDirectories(t *testing.T) {
	src, dst := newDirs(t)
	t.Cleanup(func() {
		for _, d := range []tdir{src, dst} {
			for _, name := range []string{"", "a", "a/b"} {
				os.Chmod(d.at(name), 0o755)
			}
		}
	})
	for i := range 100 {
		src.file("a/b/"+strconv.Itoa(i), "x")
	}
	src.link("a/b/link", "1")
	dst.file("old/tree/f", "x")
	dst.chmod("old/tree", 0o500)
	dst.chmod("old", 0o500)
	src.chmod("a/b", 0o555)
	src.chmod("a", 0o500)
	src.chmod(".", 0o555)
	r := startProcess(t, src, dst, "-once", "-settle", "10ms").wait()
	wantCode(t, r, 0)
	wantEqual(t, src, dst)
	if n := r.count(t, "retried"); n != 0 {
		t.Errorf("%d retries", n)
	}
}

// What cannot be read is an error, and no reason to remove what DEST has of it.
func TestUnreadable(t *testing.T) {
	src, dst := newDirs(t)
	src.file("ok", "x")
	src.file("file", "x")
	src.file("dir/f", "x")
	src.chmod("file", 0)
	src.chmod("dir", 0)
	t.Cleanup(func() { os.Chmod(src.at("dir"), 0o755) })
	dst.file("dir/f", "old")
	dst.file("dir/g", "old")
	r := startProcess(t, src, dst, "-once", "-settle", "10ms", "-max-retries", "2").wait()
	wantCode(t, r, 1)
	if r.count(t, "failed") != 2 || r.count(t, "retried") != 4 || r.count(t, "copied") != 1 {
		t.Errorf("%s", r.stdout)
	}
	for _, want := range []string{`failed: "file": `, `failed: "dir": `} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%q is missing in:\n%s", want, r.stderr)
		}
	}
	dst.chmod("dir", 0o755)
	for _, name := range []string{"dir/f", "dir/g"} {
		if got, err := os.ReadFile(dst.at(name)); string(got) != "old" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// The cause of the failures goes away while the retries last.
func TestErrorHeals(t *testing.T) {
	src, dst := newDirs(t)
	src.file("file", "x")
	src.file("dir/a/b", "x")
	src.chmod("file", 0)
	src.chmod("dir", 0)
	t.Cleanup(func() { os.Chmod(src.at("dir"), 0o755) })
	p := startProcess(t, src, dst, "-once", "-v", "-settle", "10ms", "-max-retries", "11")
	eventually(t, "two failures", func() bool {
		s := p.stderr.String()
		return strings.Contains(s, `will retry "file"`) && strings.Contains(s, `will retry "dir"`)
	})
	src.chmod("file", 0o644)
	src.chmod("dir", 0o755)
	r := p.wait()
	wantCode(t, r, 0)
	wantEqual(t, src, dst)
	if r.count(t, "retried") < 2 || r.count(t, "failed") != 0 {
		t.Errorf("%s", r.stdout)
	}
}

// Ctrl-C, the real one.
func TestSignal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			src, dst := newDirs(t)
			src.file("d/f", "x")
			p := startProcess(t, src, dst)
			eventually(t, "the first pass", func() bool { return strings.Contains(p.stderr.String(), "first pass done") })
			src.must(p.Process.Signal(sig))
			done := make(chan result, 1)
			go func() { done <- p.wait() }()
			select {
			case r := <-done:
				wantCode(t, r, 0)
				r.count(t, "copied")
			case <-time.After(30 * time.Second):
				t.Error("it does not end")
			}
			wantEqual(t, src, dst)
		})
	}
}
