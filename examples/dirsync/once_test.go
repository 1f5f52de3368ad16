package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
)

func TestOnce(t *testing.T) {
	cases := []struct {
		name   string
		setup  func(src, dst tdir)
		except []string // paths that differ on purpose
		counts map[string]int
		check  func(t *testing.T, src, dst tdir, r result)
	}{
		{
			name:   "nothing",
			setup:  func(src, dst tdir) {},
			counts: map[string]int{"paths seen": 1, "copied": 0, "merged": 0},
		}, {
			name: "create",
			setup: func(src, dst tdir) {
				src.file("a", "one")
				src.file("d/e/f/g", "two")
				src.mkdir("empty/too")
				src.age("empty/too", time.Hour)
				src.age("empty", 2*time.Hour)
				src.age("d", 3*time.Hour)
				src.age(".", 4*time.Hour)
			},
			counts: map[string]int{"paths seen": 8, "copied": 2, "directories made": 5, "bytes": 6},
		}, {
			name: "update",
			setup: func(src, dst tdir) {
				src.file("longer", "new content")
				dst.file("longer", "old")
				src.file("same size", "new")
				dst.file("same size", "old")
				dst.age("same size", 2*time.Hour)
			},
			counts: map[string]int{"copied": 0, "updated": 2},
		}, {
			name: "mode alone",
			setup: func(src, dst tdir) {
				src.file("f", "x")
				dst.file("f", "x")
				when := time.Now().Add(-time.Hour)
				src.must(os.Chtimes(src.at("f"), when, when))
				dst.must(os.Chtimes(dst.at("f"), when, when))
				dst.chmod("f", 0o600)
				src.mkdir("d")
				src.chmod("d", 0o700)
				dst.mkdir("d")
			},
			counts: map[string]int{"updated": 1, "bytes": 0},
		}, {
			name: "time alone",
			setup: func(src, dst tdir) {
				src.file("f", "x")
				src.age("f", 1000*time.Hour)
				dst.file("f", "x")
			},
			counts: map[string]int{"updated": 1},
		}, {
			name: "time in the future",
			setup: func(src, dst tdir) {
				src.file("f", "x")
				src.age("f", -1000*time.Hour)
			},
			counts: map[string]int{"copied": 1},
		}, {
			name: "young file",
			setup: func(src, dst tdir) {
				src.file("f", "x")
				src.age("f", 0)
			},
			counts: map[string]int{"copied": 1, "retried": 0},
		}, {
			name: "remove",
			setup: func(src, dst tdir) {
				src.file("keep", "x")
				dst.file("gone", "x")
				dst.file("tree/a/b", "x")
				dst.file("tree/c", "x")
				dst.mkdir("hollow")
				dst.link("link", "keep")
			},
			counts: map[string]int{"removed": 4, "copied": 1},
		}, {
			name: "directory instead of file and link",
			setup: func(src, dst tdir) {
				src.file("was file/f", "x")
				dst.file("was file", "y")
				src.file("was link/f", "x")
				dst.link("was link", "was file")
			},
			counts: map[string]int{"directories made": 2, "copied": 2},
		}, {
			name: "file and link instead of directory",
			setup: func(src, dst tdir) {
				src.file("file", "x")
				dst.file("file/deep/f", "y")
				src.link("link", "file")
				dst.file("link/deep/f", "y")
			},
			counts: map[string]int{"updated": 2},
		}, {
			name: "file and link exchanged",
			setup: func(src, dst tdir) {
				src.file("a", "x")
				dst.link("a", "b")
				src.link("b", "a")
				dst.file("b", "y")
				src.link("c", "a")
				dst.link("c", "b")
			},
			counts: map[string]int{"updated": 3},
		}, {
			name: "odd names",
			setup: func(src, dst tdir) {
				for _, name := range []string{
					" ", "-once", "a\nb", "tab\t", "\\", `"quoted"`, "*?[", "~", "...", ".hidden", "\xff\xfe",
					"Ünïcødé", "U\u0308 decomposed", "日本", "\x1b[31m", strings.Repeat("x", 255),
				} {
					src.file(name, name)
					src.file("dir"+name[:min(len(name), 20)]+"/f", name)
					dst.file("gone"+name[:min(len(name), 20)], name)
				}
			},
			counts: map[string]int{"copied": 32, "removed": 16},
		}, {
			name: "links that stay inside",
			setup: func(src, dst tdir) {
				src.file("d/e/f", "x")
				src.link("to file", "d/e/f")
				src.link("to dir", "d")
				src.link("d/up", "../d/./e//f")
				src.link("d/e/root", "../..")
				src.link("self", ".")
				src.link("dangling", "not/there")
				src.link("loop", "loop")
			},
			counts: map[string]int{"copied": 8, "skipped": 0},
		}, {
			name: "links that lead out",
			setup: func(src, dst tdir) {
				src.file("f", "x")
				src.link("absolute", src.at("f"))
				src.link("out", "../dst")
				src.link("d/out", "../../dst")
				src.link("turn", "d/../../dst")
				src.link("turn inside", "d/../f") // d may become a link one day
				dst.file("out", "left alone")
			},
			except: []string{"absolute", "out", "d/out", "turn", "turn inside"},
			counts: map[string]int{"copied": 1, "skipped": 5, "removed": 0, "failed": 0},
			check: func(t *testing.T, src, dst tdir, r result) {
				if got, _ := os.ReadFile(dst.at("out")); string(got) != "left alone" {
					t.Errorf("what DEST had under a skipped name is now %q", got)
				}
				for _, name := range []string{"absolute", "d/out", "turn", "turn inside"} {
					if _, err := os.Lstat(dst.at(name)); err == nil {
						t.Errorf("%q was made in DEST", name)
					}
				}
			},
		}, {
			name: "links in DEST are not written through",
			setup: func(src, dst tdir) {
				outside := tdir{src.t, filepath.Join(filepath.Dir(src.path), "outside")}
				outside.file("f", "outside")
				outside.file("kept", "outside")
				src.file("dir/f", "inside")
				dst.link("dir", outside.path)
				src.file("file", "inside")
				dst.link("file", outside.at("f"))
				src.file("sub/dir/f", "inside")
				dst.link("sub/dir", "../other")
				dst.file("other/f", "elsewhere in DEST")
				src.file("other/f", "elsewhere in SOURCE")
				dst.link("gone", outside.path)
			},
			check: func(t *testing.T, src, dst tdir, r result) {
				for _, name := range []string{"f", "kept"} {
					got, err := os.ReadFile(filepath.Join(filepath.Dir(src.path), "outside", name))
					if string(got) != "outside" {
						t.Errorf("outside/%s: %q, %v", name, got, err)
					}
				}
			},
		}, {
			name: "read-only",
			setup: func(src, dst tdir) {
				for i := range 50 {
					src.file(fmt.Sprintf("dir/sub/f%d", i), "x")
					src.chmod(fmt.Sprintf("dir/sub/f%d", i), 0o400)
				}
				src.chmod("dir/sub", 0o500)
				src.chmod("dir", 0o555)
				src.file("write only", "x")
				src.chmod("write only", 0o644)
				dst.file("write only", "other")
				dst.chmod("write only", 0o400)
			},
			counts: map[string]int{"copied": 50, "updated": 1, "retried": 0},
		}, {
			name: "set-user-ID is not copied, and taken away",
			setup: func(src, dst tdir) {
				src.file("f", "x")
				src.chmod("f", 0o755|os.ModeSetuid)
				when := time.Now().Add(-time.Hour)
				for _, d := range []tdir{src, dst} {
					d.file("g", "x")
					d.must(os.Chtimes(d.at("g"), when, when))
				}
				dst.chmod("g", 0o644|os.ModeSetuid)
			},
			except: []string{"f"},
			check: func(t *testing.T, src, dst tdir, r result) {
				if info, err := os.Stat(dst.at("f")); err != nil || info.Mode() != 0o755 {
					t.Errorf("got %v, %v", info.Mode(), err)
				}
			},
		}, {
			name: "many files",
			setup: func(src, dst tdir) {
				for i := range 1500 {
					src.file(fmt.Sprintf("d%d/e%d/f%d", i%7, i%30, i), fmt.Sprint(i))
				}
				for i := range 300 {
					dst.file(fmt.Sprintf("d%d/e%d/g%d", i%7, i%30, i), fmt.Sprint(i))
				}
			},
			counts: map[string]int{"copied": 1500, "removed": 300, "retried": 0, "failed": 0},
		}, {
			name: "temporary files",
			setup: func(src, dst tdir) {
				src.file("d/f", "x")
				src.file("d/.dirsync-OTHER-1.tmp", "of a dirsync that writes into our SOURCE")
				dst.file("d/.dirsync-DEAD-1.tmp", "left behind")
				dst.file(".dirsync-DEAD-2.tmp/strange", "left behind")
			},
			except: []string{"d/.dirsync-OTHER-1.tmp"},
			counts: map[string]int{"copied": 1},
			check: func(t *testing.T, src, dst tdir, r result) {
				if _, err := os.Lstat(dst.at("d/.dirsync-OTHER-1.tmp")); err == nil {
					t.Error("a temporary file was copied")
				}
			},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			checkGoroutines(t)
			src, dst := newDirs(t)
			c.setup(src, dst)
			t.Cleanup(func() { // os.RemoveAll, unlike removeTree, needs writable directories
				for _, d := range []tdir{src, dst} {
					os.Chmod(d.at("dir"), 0o755)
					os.Chmod(d.at("dir/sub"), 0o755)
				}
			})
			r := once(t, src, dst)
			wantCode(t, r, 0)
			wantEqual(t, src, dst, c.except...)
			for name, n := range c.counts {
				if got := r.count(t, name); got != n {
					t.Errorf("%s: %d, want %d", name, got, n)
				}
			}
			if c.check != nil {
				c.check(t, src, dst, r)
			}

			again := once(t, src, dst)
			wantCode(t, again, 0)
			wantEqual(t, src, dst, c.except...)
			for _, name := range []string{"copied", "updated", "removed", "directories made", "bytes"} {
				if n := again.count(t, name); n != 0 {
					t.Errorf("second run: %s: %d, want none", name, n)
				}
			}
		})
	}
}

func TestOnceCreatesDest(t *testing.T) {
	src, dst := newDirs(t)
	src.file("f", "x")
	dst.path = dst.at("not/yet")
	wantCode(t, once(t, src, dst), 0)
	wantEqual(t, src, dst)
}

// A link on the way to either directory is the user's own and is followed.
func TestOnceThroughLinks(t *testing.T) {
	src, dst := newDirs(t)
	src.file("f", "x")
	dst.file("old", "x")
	base := tdir{t, filepath.Dir(src.path)}
	base.link("to src", "src")
	base.link("to dst", "dst")
	r := once(t, tdir{t, base.at("to src")}, tdir{t, base.at("to dst")})
	wantCode(t, r, 0)
	wantEqual(t, src, dst)
}

// Ctrl-C ends -once at once. It reports what is left, and the next run does it.
func TestOnceStopped(t *testing.T) {
	checkGoroutines(t)
	src, dst := newDirs(t)
	const files = 1000
	for i := range files {
		src.file(fmt.Sprintf("d/%d", i), "x")
	}
	src.mkdir("e/f")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout locked.Buffer
	stderr := interrupter{cancel: cancel}
	r := result{code: run(ctx, []string{"-once", "-v", src.path, dst.path}, &stdout, &stderr)}
	r.stdout, r.stderr = stdout.String(), stderr.String()
	wantCode(t, r, 1)
	if n := r.count(t, "copied"); n > files/2 {
		t.Errorf("%d of %d files were copied nevertheless", n, files)
	}
	for _, want := range []string{" paths are left for the next run, \"", "stopped before everything was looked at"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("%q is missing in:\n%s", want, r.stderr)
		}
	}
	r = once(t, src, dst)
	wantCode(t, r, 0)
	wantEqual(t, src, dst)
}

// An interrupter types Ctrl-C when 20 files are copied. It does so within a copy, and no worker starts another one after it.
type interrupter struct {
	locked.Buffer
	cancel context.CancelFunc
	copied int // dirsync reports one at a time
}

func (i *interrupter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), ": copied ") {
		if i.copied++; i.copied == 20 {
			i.cancel()
		}
	}
	return i.Buffer.Write(p)
}

// A run that is stopped before it has begun has work left. (With this file it would take an hour: it is too young.)
func TestOnceStoppedAtOnce(t *testing.T) {
	checkGoroutines(t)
	src, dst := newDirs(t)
	src.file("f", "x")
	src.age("f", 0)
	ctx, cancel := contextDone()
	defer cancel()
	r := runMain(ctx, "-once", "-settle", "1h", src.path, dst.path)
	wantCode(t, r, 1)
	if !strings.Contains(r.stderr, "stopped before everything was looked at") {
		t.Errorf("standard error:\n%s", r.stderr)
	}
}
