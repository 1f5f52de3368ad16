// Package readme reads what the examples' README.md files show, for tests that compare it with what the
// programs print.
package readme

import (
	"os"
	"strings"
	"testing"
)

// Output returns what README.md in the current directory shows below the line "$ command", up to the next
// command or the end of the block.
func Output(t *testing.T, command string) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n$ "+command+"\n")
	if !found {
		t.Fatalf("README.md does not show the command %q", command)
	}
	below, _, _ = strings.Cut(below, "```")
	below, _, _ = strings.Cut("\n"+below, "\n$ ")
	return strings.Trim(below, "\n") + "\n"
}
