package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"
)

// A reader of a file that is replaced over and over sees old content or new, never part of either.
func TestNeverHalfAFile(t *testing.T) {
	src, dst := newDirs(t)
	s := newTestSyncer(t, src, dst)
	const size = 1 << 20
	put := func(version int) {
		src.must(os.WriteFile(src.at("f"), bytes.Repeat([]byte{byte(version)}, size), 0o644))
		src.age("f", time.Hour-time.Duration(version)*time.Second)
		if again, err := s.syncKey(t.Context(), "f"); err != nil || again != 0 {
			t.Fatalf("version %d: %v, %v", version, again, err)
		}
	}
	put(1)
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		reads := 0
		defer func() { stopped <- reads }()
		for ; ; reads++ {
			select {
			case <-stop:
				return
			default:
			}
			got, err := os.ReadFile(dst.at("f"))
			if err != nil || len(got) != size || bytes.Count(got, got[:1]) != size {
				t.Errorf("read %d bytes, not all the same: %v", len(got), err)
				return
			}
		}
	}()
	for version := 2; version < 60; version++ {
		put(version)
	}
	close(stop)
	if reads := <-stopped; reads == 0 {
		t.Error("nothing was read meanwhile")
	}
}

func TestStillBeingWritten(t *testing.T) {
	src, dst := newDirs(t)
	s := newTestSyncer(t, src, dst)
	s.settle = time.Hour
	src.file("f", "half")
	src.age("f", 10*time.Minute)
	again, err := s.syncKey(t.Context(), "f")
	if err != nil || again <= 45*time.Minute || again > 50*time.Minute {
		t.Errorf("look again after %v, %v", again, err)
	}
	if _, err := os.Lstat(dst.at("f")); err == nil {
		t.Error("it was copied")
	}
	src.age("f", 2*time.Hour)
	if again, err := s.syncKey(t.Context(), "f"); err != nil || again != 0 {
		t.Errorf("%v, %v", again, err)
	}
	wantEqual(t, src, dst, ".")
}

// The file grows between the look and the copy.
func TestChangedWhileCopied(t *testing.T) {
	src, dst := newDirs(t)
	s := newTestSyncer(t, src, dst)
	src.file("f", "old")
	from, err := s.src.at("f")
	src.must(err)
	defer from.close()
	to, err := s.dst.at("f")
	dst.must(err)
	defer to.close()
	src.must(os.Link(src.at("f"), src.at("kept"))) // or a new file might get the old one's number
	lookalike := func(name string) {
		src.file(name, "old")
		src.must(os.Chtimes(src.at(name), from.info.ModTime(), from.info.ModTime()))
	}
	for _, c := range []struct {
		name   string
		change func()
	}{
		{"written", func() { src.must(os.WriteFile(src.at("f"), []byte("newer"), 0o644)) }},
		{"touched", func() { src.must(os.WriteFile(src.at("f"), []byte("old"), 0o644)) }},
		{"replaced", func() { lookalike("g"); src.rename("g", "f") }},
		{"a link", func() { lookalike("g"); src.remove("f"); src.link("f", "g") }},
	} {
		c.change()
		if err := s.copyFile(t.Context(), from, to); err != errChanged {
			t.Errorf("%s: got %v", c.name, err)
		}
		if entries, _ := os.ReadDir(dst.path); len(entries) > 0 {
			t.Errorf("%s: left in DEST: %v", c.name, entries)
		}
	}
}

// A file that comes back within the settle time is never removed.
func TestRemovalWaits(t *testing.T) {
	src, dst := newDirs(t)
	s := newTestSyncer(t, src, dst)
	s.settle = time.Hour
	dst.file("f", "x")
	again, err := s.syncKey(t.Context(), "f")
	if err != nil || again <= 0 || again > time.Hour {
		t.Fatalf("look again after %v, %v", again, err)
	}
	if _, err := os.Lstat(dst.at("f")); err != nil {
		t.Fatal(err)
	}
	s.missing["f"] = time.Now().Add(-2 * time.Hour)
	src.must(os.Rename(src.path, src.path+".old"))
	if _, err := s.syncKey(t.Context(), "f"); err == nil {
		t.Error("no error without SOURCE")
	}
	if _, err := os.Lstat(dst.at("f")); err != nil {
		t.Fatal(err)
	}
	src.must(os.Rename(src.path+".old", src.path))
	if again, err := s.syncKey(t.Context(), "f"); err != nil || again != 0 {
		t.Errorf("%v, %v", again, err)
	}
	wantEqual(t, src, dst, ".")
}

// A path whose directory is not there yet asks for the directory, and fails for now.
func TestChildBeforeParent(t *testing.T) {
	src, dst := newDirs(t)
	s := newTestSyncer(t, src, dst)
	var asked []string
	s.add = func(key string) { asked = append(asked, key) }
	src.file("a/b/c", "x")
	if _, err := s.syncKey(t.Context(), "a/b/c"); err == nil {
		t.Error("no error")
	}
	if fmt.Sprint(asked) != "[a/b]" {
		t.Errorf("asked for %q", asked)
	}
}

// No path leads through a link, be it to a directory of the same tree.
func TestNoPathThroughLinks(t *testing.T) {
	src, dst := newDirs(t)
	s := newTestSyncer(t, src, dst)
	src.file("real/f", "x")
	src.link("link", "real")
	src.link("real/self", ".")
	src.file("file", "x")
	for key, want := range map[string]error{
		"real/f": nil, "real/none": nil, "link": nil, "none": nil,
		"link/f": errNoParent, "real/self/f": errNoParent, "file/f": errNoParent, "none/f": errNoParent,
	} {
		p, err := s.src.at(key)
		p.close()
		if err != want {
			t.Errorf("%s: %v", key, err)
		}
	}
	p, err := s.src.at("link")
	src.must(err)
	defer p.close()
	if _, err := p.list(); err != errNotDir {
		t.Errorf("a link was listed: %v", err)
	}
}

// Directories that were waiting for their last look when the queue was shut down get it.
func TestFinishDirs(t *testing.T) {
	src, dst := newDirs(t)
	s := newTestSyncer(t, src, dst)
	for _, d := range []tdir{src, dst} {
		d.mkdir("d")
		d.mkdir("to be listed")
	}
	src.age("d", time.Hour)
	src.chmod("d", 0o500)
	src.file("file", "x")
	src.mkdir("new")
	s.unlist("to be listed")
	rest := s.finishDirs([]string{"d", "file", "gone", "new", "to be listed"})
	if fmt.Sprint(rest) != "[file gone new to be listed]" {
		t.Errorf("left: %q", rest)
	}
	wantEqual(t, src, dst, ".", "file", "new", "to be listed")
}

// A path that SOURCE loses while it is put into DEST is looked at again, though no event tells of it:
// the directory above was renamed, and the look at it came too early to find the path in DEST.
func TestLostWhileCopied(t *testing.T) {
	src, dst := newDirs(t)
	s := newTestSyncer(t, src, dst)
	var asked []string
	s.add = func(key string) { asked = append(asked, key) }
	src.file("d/f", "x")
	dst.mkdir("d")
	from, err := s.src.at("d/f")
	src.must(err)
	defer from.close()
	to, err := s.dst.at("d/f")
	dst.must(err)
	defer to.close()
	for _, want := range []string{"[d]", "[d/f d]"} {
		asked = nil
		dst.must(s.change("d/f", from, to, func() error { return s.copyFile(t.Context(), from, to) }))
		if fmt.Sprint(asked) != want {
			t.Errorf("asked for %v, want %s", asked, want)
		}
		if want == "[d]" { // the second copy reads from the directory that it has open
			src.rename("d", "e")
		}
		dst.remove("d/f")
		src.mkdir("d")
	}
}

// A directory's time changes after the look at it, and before it is watched, so that no event tells.
func TestTimeChangesBeforeTheWatch(t *testing.T) {
	src, dst := newDirs(t)
	src.mkdir("d")
	dst.mkdir("d")
	s := newTestSyncer(t, src, dst)
	asked := []string{"d"}
	s.add = func(key string) { asked = append(asked, key) }
	s.watch = func(string) { src.age("d", time.Hour) }
	s.unlist("d")
	for looks := 0; len(asked) > 0; looks++ {
		key := asked[0]
		asked = asked[1:]
		if again, err := s.syncKey(t.Context(), key); err != nil || again != 0 {
			t.Fatalf("%q: %v, %v", key, again, err)
		}
		if looks > 10 {
			t.Fatal("there is no end to the looks")
		}
	}
	wantEqual(t, src, dst, ".")
}

// newTestSyncer returns a syncer without a queue: the test calls syncKey.
func newTestSyncer(t *testing.T, src, dst tdir) *syncer {
	t.Helper()
	a, err := openTree(src.path)
	src.must(err)
	b, err := openTree(dst.path)
	dst.must(err)
	t.Cleanup(func() {
		a.close()
		b.close()
	})
	return newSyncer(a, b, 10*time.Millisecond, newReport(t.Output()), func(string) {})
}
