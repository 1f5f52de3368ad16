package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keyedqueue/workqueue/examples/internal/readme"
)

// README.md shows what the program prints, but for the order of what workers do at the same time, for how often a
// directory was merged and for the time that it took.
func TestREADME(t *testing.T) {
	base := t.TempDir()
	const setUp = "mkdir -p /tmp/notes/drafts && echo milk >/tmp/notes/list && echo Dear >/tmp/notes/drafts/letter"
	if shown := readme.Output(t, setUp); shown != "\n" {
		t.Errorf("the first command prints nothing, README.md shows %q", shown)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(setUp, "/tmp", base)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := runMain(t.Context(), "-once", "-v", filepath.Join(base, "notes"), filepath.Join(base, "copy"))
	wantCode(t, r, 0)
	varies := regexp.MustCompile(`(?m)^(merged|elapsed) +.*`)
	lines := func(s string) []string { return slices.Sorted(strings.Lines(varies.ReplaceAllString(s, "$1"))) }
	got := lines(r.stderr + r.stdout)
	if want := lines(readme.Output(t, "go run ./examples/dirsync -once -v /tmp/notes /tmp/copy")); !slices.Equal(got, want) {
		t.Errorf("printed:\n%s%s\nREADME.md shows otherwise:\n%s", r.stderr, r.stdout, strings.Join(want, ""))
	}
}
