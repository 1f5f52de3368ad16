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

// A watching is a run of the program in watch mode.
type watching struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan result
	stderr *locked.Buffer
}

// startWatching runs the program in watch mode, from its first pass on.
func startWatching(t *testing.T, src, dst tdir, flags ...string) *watching {
	t.Helper()
	checkGoroutines(t)
	ctx, cancel := context.WithCancel(context.Background())
	var stdout, stderr locked.Buffer
	w := &watching{t, cancel, make(chan result, 1), &stderr}
	args := append([]string{"-v", "-settle", "20ms", "-rescan", "0"}, flags...)
	args = append(args, src.path, dst.path)
	go func() {
		code := run(ctx, args, &stdout, &stderr)
		w.done <- result{code, stdout.String(), stderr.String()}
	}()
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			t.Logf("standard error:\n%s", stderr.String())
		}
	})
	eventually(t, "the first pass", func() bool { return strings.Contains(stderr.String(), "first pass done") })
	return w
}

// end does what Ctrl-C does.
func (w *watching) end() result {
	w.t.Helper()
	w.cancel()
	return w.wait()
}

func (w *watching) wait() result {
	w.t.Helper()
	select {
	case r := <-w.done:
		return r
	case <-time.After(30 * time.Second):
		w.t.Fatal("the program does not end")
		panic("unreachable")
	}
}

func waitEqual(t *testing.T, src, dst tdir, after string) {
	t.Helper()
	equal := false
	defer func() {
		if !equal {
			t.Logf("after %s:\n%s", after, differences(src.path, dst.path))
		}
	}()
	eventually(t, "equal after "+after, func() bool { return differences(src.path, dst.path) == "" })
	equal = true
}

func TestWatch(t *testing.T) {
	src, dst := newDirs(t)
	src.file("a/b/c", "one")
	src.file("a/link target", "one")
	w := startWatching(t, src, dst)
	waitEqual(t, src, dst, "the first pass")

	for _, step := range []struct {
		name string
		do   func()
	}{
		{"a new file", func() { src.file("new", "x") }},
		{"an update", func() { src.must(os.WriteFile(src.at("a/b/c"), []byte("two"), 0o644)) }},
		{"an append", func() {
			f, err := os.OpenFile(src.at("new"), os.O_APPEND|os.O_WRONLY, 0)
			src.must(err)
			for i := range 50 {
				fmt.Fprintln(f, i)
			}
			src.must(f.Close())
		}},
		{"a mode", func() { src.chmod("new", 0o600) }},
		{"a directory's mode", func() { src.chmod("a/b", 0o700) }},
		{"a time", func() { src.age("new", 50*time.Hour) }},
		{"a link", func() { src.link("link", "a/link target") }},
		{"a deep tree at once", func() { src.file("p/q/r/s/t/u", "x") }},
		{"a file in the deep tree", func() { src.file("p/q/r/s/t/v", "x") }},
		{"a renamed file", func() { src.rename("new", "newer") }},
		{"a save by way of rename", func() {
			src.file("newer~", "saved")
			src.rename("newer~", "newer")
		}},
		{"a renamed tree", func() { src.rename("p", "a/p2") }},
		{"a file in the renamed tree", func() { src.file("a/p2/q/r/s/t/w", "x") }},
		{"its old name taken again", func() { src.file("p/q/r/other", "x") }},
		{"a file under the old name", func() { src.file("p/q/r/another", "x") }},
		{"a tree renamed and removed in part", func() {
			src.rename("a/p2", "p3")
			src.remove("p3/q/r/s")
			src.file("p3/q/r/s2/f", "x")
		}},
		{"a directory instead of a file", func() {
			src.remove("newer")
			src.file("newer/f", "x")
		}},
		{"a file instead of a directory", func() {
			src.remove("p")
			src.file("p", "x")
		}},
		{"a tree removed and made again", func() {
			src.remove("p3")
			src.file("p3/q/r", "other")
		}},
		{"a file in the tree that was made again", func() { src.file("p3/q/s", "x") }},
		{"two files exchanged", func() {
			src.file("x1", "1")
			src.file("x2", "2")
			src.rename("x1", "x3")
			src.rename("x2", "x1")
			src.rename("x3", "x2")
		}},
		{"everything removed", func() {
			entries, err := os.ReadDir(src.path)
			src.must(err)
			for _, e := range entries {
				src.remove(e.Name())
			}
		}},
	} {
		step.do()
		waitEqual(t, src, dst, step.name)
	}
	r := w.end()
	wantCode(t, r, 0)
	if r.count(t, "events") == 0 || r.count(t, "failed") != 0 {
		t.Errorf("summary:\n%s", r.stdout)
	}
}

// Events are not everything: nobody reports what happens in DEST.
func TestRescan(t *testing.T) {
	src, dst := newDirs(t)
	src.file("a/b", "x")
	w := startWatching(t, src, dst, "-rescan", "30ms")
	waitEqual(t, src, dst, "the first pass")
	dst.file("a/b", "damaged")
	dst.file("../more", "x")
	dst.rename("../more", "more") // at once: it may be removed before it has its time
	waitEqual(t, src, dst, "damage")
	dst.rename("a", "../lost") // at once: a removal file by file would race with the repair
	waitEqual(t, src, dst, "loss")
	wantCode(t, w.end(), 0)
}

// Many goroutines of a program change many files, now and then the same ones.
func TestWatchStorm(t *testing.T) {
	src, dst := newDirs(t)
	w := startWatching(t, src, dst)
	done := make(chan struct{})
	const writers = 4
	for g := range writers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range 150 {
				dir := src.at(fmt.Sprintf("d%d", i%5))
				file := filepath.Join(dir, fmt.Sprintf("e%d", i%3), fmt.Sprint(i%11))
				os.MkdirAll(filepath.Dir(file), 0o755)
				// Every content has a length of its own: dirsync may take two files of the
				// same size and time for the same one.
				os.WriteFile(file, make([]byte, i*writers+g), 0o644)
				switch i % 13 {
				case 5:
					os.Remove(file)
				case 7:
					os.RemoveAll(dir)
				case 11:
					os.Rename(dir, src.at(fmt.Sprintf("d%d", (i+1)%5)))
				}
			}
		}()
	}
	for range writers {
		<-done
	}
	waitEqual(t, src, dst, "the storm")
	r := w.end()
	wantCode(t, r, 0)
	if r.count(t, "merged") == 0 {
		t.Error("not one event was merged")
	}
}

// SOURCE itself vanishing is not the same as everything in it being deleted.
func TestSourceDisappears(t *testing.T) {
	for name, vanish := range map[string]func(src tdir){
		"renamed":  func(src tdir) { src.must(os.Rename(src.path, src.path+".old")) },
		"removed":  func(src tdir) { src.must(os.RemoveAll(src.path)) },
		"replaced": func(src tdir) { src.must(os.Rename(src.path, src.path+".old")); src.mkdir(".") },
	} {
		t.Run(name, func(t *testing.T) {
			src, dst := newDirs(t)
			for i := range 20 {
				src.file(fmt.Sprintf("d%d/f", i), "x")
			}
			w := startWatching(t, src, dst, "-rescan", "50ms", "-settle", "2s")
			before, err := snapshot(dst.path)
			if err != nil {
				t.Fatal(err)
			}
			vanish(src)
			r := w.wait()
			wantCode(t, r, 1)
			if !strings.Contains(r.stderr, "no longer the directory") {
				t.Errorf("standard error:\n%s", r.stderr)
			}
			after, err := snapshot(dst.path)
			if err != nil {
				t.Fatal(err)
			}
			if len(before) != len(after) {
				t.Errorf("DEST had %d paths and has %d", len(before), len(after))
			}
		})
	}
}

// Nor does dirsync go on without DEST.
func TestDestDisappears(t *testing.T) {
	src, dst := newDirs(t)
	src.file("f", "x")
	w := startWatching(t, src, dst)
	dst.must(os.Rename(dst.path, dst.path+".old"))
	dst.remove("../dst.old/f")
	dst.must(os.Remove(dst.path + ".old"))
	src.file("g", "x")
	r := w.wait()
	wantCode(t, r, 1)
	if _, err := os.Lstat(dst.path); err == nil {
		t.Error("DEST was made again")
	}
}
