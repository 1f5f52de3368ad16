package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// results are the outcomes of a package's tests, by name: pass, fail or skip. They include subtests, Ginkgo's
// specs, and the package itself as wholePackage.
type results map[string]string

const (
	wholePackage = "(package)"
	missing      = "missing"
)

// readResults reads the output of go test -json for one package.
func readResults(r io.Reader) (results, error) {
	found := results{}
	decoder := json.NewDecoder(r)
	for {
		var event struct{ Action, Test string }
		if err := decoder.Decode(&event); err == io.EOF {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("go test -json: %w", err)
		}
		switch event.Action {
		case "pass", "fail", "skip":
			if event.Test == "" {
				event.Test = wholePackage
			}
			found[event.Test] = event.Action
		}
	}
}

// addSpecs adds the specs of a Ginkgo suite, from its report in file. A suite without a report has failed
// early, which the package's own result shows.
func (r results) addSpecs(file string) error {
	data, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			if spec.LeafNodeType != "It" {
				continue // Something that runs before or after specs: if it fails, so do they.
			}
			name := "spec: " + strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " / ")
			unique := name
			for n := 2; r[unique] != ""; n++ {
				unique = fmt.Sprintf("%s #%d", name, n)
			}
			switch spec.State {
			case "passed":
				r[unique] = "pass"
			case "pending", "skipped":
				r[unique] = "skip"
			default:
				r[unique] = "fail"
			}
		}
	}
	return nil
}

// A difference is a test whose outcome was not the same in both variants.
type difference struct {
	test           string
	stock, swapped []string // The outcomes seen, without repetitions.
}

// differences returns the tests whose outcome is not the same in both, in order of their names.
func (r results) differences(swapped results) (list []difference) {
	all := maps.Clone(r)
	maps.Copy(all, swapped)
	for _, test := range slices.Sorted(maps.Keys(all)) {
		if r[test] != swapped[test] {
			list = append(list, difference{test, []string{r.outcome(test)}, []string{swapped.outcome(test)}})
		}
	}
	return list
}

func (r results) outcome(test string) string {
	if outcome, ok := r[test]; ok {
		return outcome
	}
	return missing
}

// see adds a rerun's outcomes.
func (d *difference) see(stock, swapped results) {
	add := func(seen *[]string, outcome string) {
		if !slices.Contains(*seen, outcome) {
			*seen = append(*seen, outcome)
		}
	}
	add(&d.stock, stock.outcome(d.test))
	add(&d.swapped, swapped.outcome(d.test))
}

// flaky reports whether both variants have had the same outcome at least once: then it is not the queue that
// decides.
func (d *difference) flaky() bool {
	return slices.ContainsFunc(d.stock, func(outcome string) bool { return slices.Contains(d.swapped, outcome) })
}

func (d *difference) String() string {
	return fmt.Sprintf("%s: stock %s, swapped %s", d.test, strings.Join(d.stock, " and "),
		strings.Join(d.swapped, " and "))
}

// rerunPattern returns the -run pattern for the top-level tests with differences. It is that for all tests if
// a spec differs, because the report lacks the name of the test that runs the suite, or if only the package
// itself does.
func rerunPattern(list []difference) string {
	names := map[string]bool{}
	for _, d := range list {
		switch {
		case strings.HasPrefix(d.test, "spec: "):
			return "."
		case d.test != wholePackage:
			top, _, _ := strings.Cut(d.test, "/")
			names[top] = true
		}
	}
	if len(names) == 0 {
		return "."
	}
	return "^(" + strings.Join(slices.Sorted(maps.Keys(names)), "|") + ")$"
}

// count returns how many tests had the outcome, without the package itself.
func (r results) count(outcome string) (n int) {
	for test, o := range r {
		if test != wholePackage && o == outcome {
			n++
		}
	}
	return n
}
