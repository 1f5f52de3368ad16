// Command brokenrules breaks the rules of package sharding's protocol one at a time, and runs the package's
// tests. For each broken rule a test, or the simulation, must fail:
//
//	go run ./peers/sharding/brokenrules                          # with 300 simulated histories each: an hour
//	go run ./peers/sharding/brokenrules -histories 0             # the tests alone
//	go run ./peers/sharding/brokenrules -histories 3000 -run 'turn|margin'
//	go run ./peers/sharding/brokenrules -check                   # whether each change still fits the source
//
// The simulation finds most within ten histories, and some in a few hundred or thousand. It belongs to the
// change of a rule to look at this list. The rule that validity needs the table is not in it: a new table
// waits for all that follow another one, so it takes two broken rules to do harm.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// rule is broken by changes of the source.
type rule struct {
	name    string
	changes []change
}

// change replaces the only old text of a file.
type change struct{ file, old, new string }

func main() {
	dir := flag.String("dir", "sharding", "the package's directory")
	histories := flag.Int("histories", 300, "how many histories are simulated if no other test fails")
	only := flag.String("run", "", "break only the rules that match this `regexp`")
	check := flag.Bool("check", false, "run nothing, but check that each change fits the source")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	failed := 0
	for _, r := range rules {
		if !pattern.MatchString(r.name) {
			continue
		}
		found, err := r.tryOn(*dir, *histories, *check)
		if err != nil {
			failed++
			found = fmt.Sprint("FAIL: ", err)
		}
		fmt.Printf("%-70s %s\n", r.name, found)
	}
	if failed > 0 {
		fmt.Fprintf(os.Stderr, "%d of %d rules can be broken unnoticed, or have changed\n", failed, len(rules))
		os.Exit(1)
	}
}

// tryOn breaks the rule and returns what has found that.
func (r rule) tryOn(dir string, histories int, checkOnly bool) (found string, err error) {
	temp, err := os.MkdirTemp("", "brokenrules")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	overlay, err := r.overlay(dir, temp)
	if err != nil || checkOnly {
		return "fits", err
	}
	binary := filepath.Join(temp, "sharding.test")
	build := exec.Command("go", "test", "-vet=off", "-c", "-o", binary, "-overlay", overlay, ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	// The simulation comes last: it takes longest. The tests that are skipped say nothing of the protocol.
	tests := []string{"-test.skip=^(TestSimulation|TestHundredMembers|TestHash.*|Test.*Conformance)$"}
	if histories > 0 {
		tests = append(tests, "-test.run=^TestSimulation$")
	}
	for _, which := range tests {
		command := exec.Command(binary, "-test.timeout=20m", "-test.short", "-test.failfast", "-test.v", which)
		command.Dir = dir
		command.Env = append(os.Environ(), fmt.Sprint("SHARDING_HISTORIES=", histories))
		out, err := command.CombinedOutput()
		if err == nil {
			continue
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "--- FAIL: Test") || strings.Contains(line, "test timed out") {
				return strings.TrimSpace(line), nil
			}
		}
		return "", fmt.Errorf("%w: %s", err, out[max(0, len(out)-2000):])
	}
	return "", fmt.Errorf("nothing has found it")
}

// overlay writes the changed files to temp, and returns a file for go's -overlay that replaces the others.
func (r rule) overlay(dir, temp string) (file string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	sources := make(map[string]string)
	for _, c := range r.changes {
		if sources[c.file] == "" {
			source, err := os.ReadFile(filepath.Join(dir, c.file))
			if err != nil {
				return "", err
			}
			sources[c.file] = string(source)
		}
		if n := strings.Count(sources[c.file], c.old); n != 1 {
			return "", fmt.Errorf("%s has %d times %q", c.file, n, c.old)
		}
		sources[c.file] = strings.Replace(sources[c.file], c.old, c.new, 1)
	}
	replace := make(map[string]string)
	for name, source := range sources {
		replace[filepath.Join(dir, name)] = filepath.Join(temp, name)
		if err := os.WriteFile(filepath.Join(temp, name), []byte(source), 0o600); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(temp, "overlay.json")
	return file, os.WriteFile(file, data, 0o600)
}
