package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/exp/apidiff"
)

var day = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestChangelog(t *testing.T) {
	const first = "# Changelog\n\n## Unreleased\n\n- A queue.\n"
	if last := changelog(first).last(); last != "" {
		t.Errorf("the last release is %q before the first one", last)
	}
	got, err := changelog(first).release("v0.1.0", day)
	if want := "# Changelog\n\n## Unreleased\n\n## v0.1.0 (2026-11-30)\n\n- A queue.\n"; got != want || err != nil {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
	if last := changelog(got).last(); last != "v0.1.0" {
		t.Errorf("the last release is %q, want v0.1.0", last)
	}
	if _, err := changelog(got).release("v0.2.0", day); err == nil {
		t.Error("a release without a line in the changelog")
	}
	if _, err := changelog("# Changelog\n").release("v0.2.0", day); err == nil {
		t.Error("a release without anything unreleased")
	}
}

func TestNext(t *testing.T) {
	for last, want := range map[string]string{"": "v0.1.0", "v0.1.0": "v0.2.0", "v0.9.3": "v0.10.0", "v1.0.0": "v1.1.0"} {
		if got := nextMinor(last); got != want {
			t.Errorf("after %q comes %s, want %s", last, got, want)
		}
	}
	r := repository{dir: t.TempDir()}
	writeFile(t, r.dir, "CHANGELOG.md", "## Unreleased\n\n## v0.3.1 (2026-11-30)\n")
	for version, ok := range map[string]bool{
		"v0.3.2": true, "v0.4.0": true, "v1.0.0": true,
		"v0.3.1": false, "v0.3.0": false, "0.4.0": false, "v0.4": false, "v0.4.0-rc.1": false, "v2.0.0": false,
	} {
		if got, err := r.next([]string{version}); (err == nil) != ok || ok && got != version {
			t.Errorf("%s after v0.3.1: %s, %v", version, got, err)
		}
	}
}

// The order is that of go mod tidy: go1.10 sorts before go1.9 in paths, but v1.9.0 before v1.10.0.
func TestCompareSums(t *testing.T) {
	want := []string{
		"a.example/x v1.9.0 h1:", "a.example/x v1.9.0/go.mod h1:", "a.example/x v1.10.0/go.mod h1:",
		"a.example/x/y v1.0.0 h1:", "b.example v0.0.1 h1:",
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compareSums)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// cut is tried by tools/release-check.sh too, with the real modules; here it is what must not be released.
func TestCut(t *testing.T) {
	r := newRepository(t)
	if err := r.cut("v0.1.0", day); err != nil {
		t.Fatal(err)
	}
	for revision, want := range map[string]bool{"main": true, "v0.1.0": false, "nested/v0.1.0": false} {
		gomod := git(t, r, "show", revision+":nested/go.mod")
		if !strings.Contains(gomod, rootPath+" v0.1.0") || strings.Contains(gomod, "replace") != want {
			t.Errorf("nested/go.mod of %s:\n%s", revision, gomod)
		}
		if sums := git(t, r, "ls-tree", "--name-only", revision, "nested/go.sum"); (sums == "") != want {
			t.Errorf("nested/go.sum of %s: %q", revision, sums)
		}
	}
	if peers := git(t, r, "show", "v0.1.0:peers/go.mod"); !strings.Contains(peers, rootPath+" v0.1.0") || !strings.Contains(peers, "replace") {
		t.Errorf("peers/go.mod, which is not published:\n%s", peers)
	}
	if tags := git(t, r, "tag"); tags != "nested/v0.1.0\nv0.1.0" {
		t.Errorf("the tags are %q", tags)
	}
	if branch := git(t, r, "symbolic-ref", "--short", "HEAD"); branch != "main" || git(t, r, "status", "--porcelain") != "" {
		t.Errorf("on branch %s:\n%s", branch, git(t, r, "status"))
	}

	if err := r.cut("v0.2.0", day); err == nil {
		t.Error("a second release with nothing in the changelog")
	}
	writeFile(t, r.dir, "new.go", "package workqueue\n")
	if err := r.cut("v0.2.0", day); err == nil || !strings.Contains(err.Error(), "new.go") {
		t.Errorf("a release with uncommitted files: %v", err)
	}
	git(t, r, "checkout", "--quiet", "--detach")
	if err := r.cut("v0.2.0", day); err == nil || !strings.Contains(err.Error(), "from a branch") {
		t.Errorf("a release from no branch: %v", err)
	}
}

func TestForeignReplace(t *testing.T) {
	r := newRepository(t)
	writeFile(t, r.dir, "nested/go.mod", git(t, r, "show", "main:nested/go.mod")+"\nreplace example.com/x => ../x\n")
	git(t, r, "commit", "--quiet", "--all", "--message", "replace")
	if err := r.cut("v0.1.0", day); err == nil || !strings.Contains(err.Error(), "replaces example.com/x") {
		t.Errorf("a published module that replaces another project's: %v", err)
	}
	if branch := git(t, r, "symbolic-ref", "--short", "HEAD"); branch != "main" || git(t, r, "tag") != "" {
		t.Errorf("the failure left us on %s, with tags %q", branch, git(t, r, "tag"))
	}
}

func TestCompareModules(t *testing.T) {
	old, current := t.TempDir(), t.TempDir()
	for name, dir := range map[string]string{"Old": old, "Current": current} {
		writeFile(t, dir, "go.mod", "module example.com/m\n\ngo 1.25\n")
		// Neither of these can be imported.
		writeFile(t, dir, "internal/x/x.go", "package x\n\nvar "+name+" int\n")
		writeFile(t, dir, "cmd/main.go", "package main\n\nvar "+name+" int\n\nfunc main() {}\n")
	}
	writeFile(t, old, "m.go", "package m\n\nfunc Kept() {}\nfunc Changed(int) {}\nfunc Gone() {}\n")
	writeFile(t, current, "m.go", "package m\n\nfunc Kept() {}\nfunc Changed(string) {}\nfunc New() {}\n")
	report, err := compareModules("example.com/m", old, current)
	if err != nil {
		t.Fatal(err)
	}
	want := "\tincompatible: Changed: changed from func(int) to func(string)\n\tincompatible: Gone: removed\n\tcompatible: New: added\n"
	if got := describe(report); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := describe(apidiff.Report{}); got != "\tno changes\n" {
		t.Errorf("no changes are described as %q", got)
	}
}

// newRepository returns one with a root module, a nested one, and one that is not published.
func newRepository(t *testing.T) *repository {
	t.Helper()
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+who+"_NAME", "test")
		t.Setenv("GIT_"+who+"_EMAIL", "test")
	}
	dir := t.TempDir()
	require := "\n\ngo 1.25\n\nrequire " + rootPath + " v0.0.0\n\nreplace " + rootPath + " => ../\n"
	writeFile(t, dir, "go.mod", "module "+rootPath+"\n\ngo 1.25\n")
	writeFile(t, dir, "LICENSE", "yes\n")
	writeFile(t, dir, "CHANGELOG.md", "## Unreleased\n\n- A queue.\n")
	writeFile(t, dir, "queue.go", "package workqueue\n")
	writeFile(t, dir, "nested/go.mod", "module "+rootPath+"/nested"+require)
	writeFile(t, dir, "peers/go.mod", "module "+rootPath+"/peers"+require)
	init := &repository{dir: dir}
	git(t, init, "init", "--quiet", "--initial-branch=main")
	git(t, init, "add", "--all")
	git(t, init, "commit", "--quiet", "--message", "first")
	r, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func git(t *testing.T, r *repository, args ...string) string {
	t.Helper()
	out, err := r.git(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func writeFile(t *testing.T, dir, name, content string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
