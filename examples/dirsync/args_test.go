package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
)

func contextDone() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx, cancel
}

func TestBadArguments(t *testing.T) {
	src, dst := newDirs(t)
	base := tdir{t, filepath.Dir(src.path)}
	src.mkdir("sub/sub")
	base.mkdir("empty")
	dst.file("precious", "x")
	base.file("file", "x")
	base.link("to src", "src")
	base.link("to nothing", "nothing")
	base.link("to sub", "src/sub/sub")

	cases := []struct {
		want string
		args []string
	}{
		{"got 0", nil},
		{"got 1", []string{src.path}},
		{"got 3", []string{src.path, dst.path, "-once"}},
		{"not defined: -nonsense", []string{"-nonsense", src.path, dst.path}},
		{"-workers 0", []string{"-workers", "0", src.path, dst.path}},
		{"-workers", []string{"-workers", "many", src.path, dst.path}},
		{"-settle 1ms", []string{"-settle", "1ms", src.path, dst.path}},
		{"-rescan -1s", []string{"-rescan", "-1s", src.path, dst.path}},
		{"-max-retries -1", []string{"-max-retries", "-1", src.path, dst.path}},
		{"-drain-timeout 0s", []string{"-drain-timeout", "0", src.path, dst.path}},
		{"SOURCE: empty path", []string{"", dst.path}},
		{"DEST: empty path", []string{src.path, ""}},
		{"SOURCE: ", []string{base.at("missing"), dst.path}},
		{"SOURCE: ", []string{base.at("file"), dst.path}},
		{"DEST: ", []string{src.path, base.at("file")}},
		{"DEST: ", []string{src.path, base.at("file/below")}},
		{"link to nothing", []string{src.path, base.at("to nothing")}},
		{"link to nothing", []string{src.path, base.at("to nothing/below")}},
		{"same directory", []string{src.path, src.path}},
		{"same directory", []string{src.path, base.at("to src")}},
		{"inside SOURCE", []string{src.path, src.at("sub")}},
		{"inside SOURCE", []string{src.path, src.at("not/yet")}},
		{"inside SOURCE", []string{src.path, base.at("to src/sub/new")}},
		{"inside SOURCE", []string{src.path, base.path + "/to sub/../new"}},
		{"inside DEST", []string{src.at("sub"), src.path}},
		{"inside DEST", []string{src.at("sub"), base.path}},
		{"inside DEST", []string{base.at("to sub"), base.at("to src")}},
		{"SOURCE is empty", []string{base.at("empty"), dst.path}},
	}
	before, err := snapshot(base.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		// Should one not be refused, it ends at once.
		ctx, cancel := contextDone()
		defer cancel()
		r := runMain(ctx, c.args...)
		if r.code != 2 || !strings.Contains(r.stderr, c.want) || r.stdout != "" {
			t.Errorf("%q: exit code %d, want 2 and %q\n%s%s", c.args, r.code, c.want, r.stdout, r.stderr)
		}
	}
	after, err := snapshot(base.path)
	if err != nil {
		t.Fatal(err)
	}
	for key := range before {
		if before[key] != after[key] {
			t.Errorf("%q was changed", key)
		}
	}
	if len(before) != len(after) {
		t.Error("something was created or removed")
	}
}

// A path in an error is as short as it can be.
func TestPathsInErrors(t *testing.T) {
	src, _ := newDirs(t)
	src.file("d/f", "x")
	tree, err := openTree(src.path)
	src.must(err)
	defer tree.close()
	p, err := tree.at("d/f")
	src.must(err)
	defer p.close()
	f, err := p.dir.Open(p.name)
	src.must(err)
	src.must(f.Close())
	_, err = f.Read(make([]byte, 1))
	if want := "read " + src.at("d/f") + ": file already closed"; shortPaths(err).Error() != want {
		t.Errorf("got  %v\nwant %v", err, want)
	}
}

// Neighbours whose names begin alike lie apart.
func TestApart(t *testing.T) {
	src, dst := newDirs(t)
	dst.path = src.path + "2"
	src.file("f", "x")
	wantCode(t, once(t, src, dst), 0)
	wantEqual(t, src, dst)
}

func TestHelp(t *testing.T) {
	r := runMain(t.Context(), "-h")
	wantCode(t, r, 0)
	for _, want := range []string{"SOURCE", "REMOVED", "-once", "-workers", "-rescan", "-settle", "-max-retries", "-drain-timeout", "-http"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("-h does not mention %s", want)
		}
	}
	if r.stderr != "" {
		t.Errorf("on standard error: %s", r.stderr)
	}
}

func TestStaysInside(t *testing.T) {
	for _, c := range []struct {
		key, target string
		want        bool
	}{
		{"l", "a", true}, {"l", "a/b", true}, {"l", ".", true}, {"l", "./a", true}, {"l", "a/", true},
		{"l", "..", false}, {"l", "../a", false}, {"l", "/", false}, {"l", "/a", false}, {"l", "", false},
		{"d/l", "..", true}, {"d/l", "../a", true}, {"d/l", "./../a", true}, {"d/l", "../..", false},
		{"d/e/l", "../../a/b", true}, {"d/e/l", "../../../a", false},
		{"l", "a/..", false}, {"d/l", "a/../..", false}, {"d/l", "../a/../b", false}, {"l", "...", true},
	} {
		if got := staysInside(c.key, c.target); got != c.want {
			t.Errorf("link %q to %q: %v", c.key, c.target, got)
		}
	}
}

// The report never sends a file's name to the terminal as it is.
func TestReportIsPrintable(t *testing.T) {
	var out locked.Buffer
	rep := newReport(&out)
	rep.skip("a\nb\x1b[2J", "why")
	rep.settled("c\rd", &os.PathError{Op: "open", Path: "c\rd", Err: os.ErrPermission})
	rep.summary(&out)
	if s := out.String(); strings.ContainsAny(s, "\r\x1b") || strings.Contains(s, "a\nb") {
		t.Errorf("%q", s)
	}
}
