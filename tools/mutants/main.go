// Command mutants checks whether a test fails when an operator is broken. It compiles a package's tests once, with all
// broken operators in the package (mutants), and runs them for each mutant, which an environment variable activates.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

const usage = `Usage: mutants [-only regexp] [-jobs n] package

Runs the tests of a package once for each mutant. Environment variables are passed on to the tests.
`

func main() {
	only := flag.String("only", "", "try only mutants whose line in the report, file.go:12:3: + to -, matches this `regexp`")
	jobs := flag.Int("jobs", 2, "how many mutants run at the same time")
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage); flag.PrintDefaults() }
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err == nil && flag.NArg() == 1 {
		err = run(os.Stdout, flag.Arg(0), pattern, *jobs)
	} else if err == nil {
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, path string, only *regexp.Regexp, jobs int) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m, err := build(path, dir)
	if err != nil {
		return err
	}
	tests := &tests{binary: filepath.Join(dir, "test"), dir: m.Dir}
	if err := tests.measure(filepath.Join(dir, "reached")); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: %d mutants, %d covered, %d do not compile\n", m.PkgPath, len(m.mutants)-1, len(tests.reach), len(m.omit))

	fates := make([]fate, len(m.mutants))
	next := make(chan int)
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(func() {
			for n := range next {
				fates[n] = tests.try(n)
				if fates[n] != killed {
					fmt.Fprintf(os.Stderr, "%v %s\n", m.mutants[n], fates[n])
				}
			}
		})
	}
	for n, mutant := range m.mutants[1:] {
		if n++; !only.MatchString(mutant.String()) {
			fates[n] = omitted
		} else if len(tests.reach[n]) > 0 {
			next <- n
		}
	}
	close(next)
	workers.Wait()
	report(w, m, fates)
	return nil
}

// report prints the mutants that lived or were not covered, and a line of numbers.
func report(w io.Writer, m *mutator, fates []fate) {
	count := make(map[fate]int)
	for n, mutant := range m.mutants {
		if n == 0 {
			continue
		}
		count[fates[n]]++
		if f := fates[n]; f == lived || f == notCovered {
			fmt.Fprintln(w, mutant, f)
		}
	}
	dead := count[killed] + count[timedOut]
	fmt.Fprintf(w, "%s: %d killed, %d timed out, %d lived, %d not covered: %.1f %% of the covered ones\n",
		m.PkgPath, count[killed], count[timedOut], count[lived], count[notCovered],
		100*float64(dead)/float64(max(1, dead+count[lived])))
}

// build compiles the tests of a package into dir/test, with all mutants of the package that compile. It leaves out those
// that do not, and tries again until the rest compiles.
func build(path, dir string) (*mutator, error) {
	omit := make(map[mutant]bool)
	for {
		m, err := load(path, omit)
		if err != nil {
			return nil, err
		}
		overlay := make(map[string]string)
		texts := make(map[string][]string) // the lines of each file, by its base name
		write := func(name string, text []byte) error {
			base := filepath.Base(name)
			overlay[name] = filepath.Join(dir, base)
			texts[base] = strings.Split(string(text), "\n")
			return os.WriteFile(overlay[name], text, 0o600)
		}
		for i, file := range m.Syntax {
			text, err := m.rewrite(file)
			if err == nil {
				err = write(m.GoFiles[i], text)
			}
			if err != nil {
				return nil, err
			}
		}
		if err := write(filepath.Join(m.Dir, "mutants_helpers.go"), m.helperSource()); err != nil {
			return nil, err
		}
		config, err := json.Marshal(map[string]any{"Replace": overlay})
		if err != nil {
			return nil, err
		}
		overlayFile := filepath.Join(dir, "overlay.json")
		if err := os.WriteFile(overlayFile, config, 0o600); err != nil {
			return nil, err
		}
		out, err := exec.Command("go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", overlayFile,
			"-o", filepath.Join(dir, "test"), path).CombinedOutput()
		if err == nil {
			return m, nil
		}
		fmt.Fprintf(os.Stderr, "%s: leaving out what does not compile\n", m.PkgPath)
		if !m.omitBroken(string(out), texts) {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
	}
}

func load(path string, omit map[mutant]bool) (*mutator, error) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			return parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
		},
	}, path)
	if err == nil && (len(loaded) != 1 || len(loaded[0].Errors) > 0) {
		err = errors.New(path + " is not one package without errors")
	}
	if err != nil {
		return nil, err
	}
	return &mutator{Package: loaded[0], omit: omit, mutants: make([]mutant, 1)}, nil
}

var (
	errorLine    = regexp.MustCompile(`(?m)^[^ \n:]*?([^/\n:]+\.go):(\d+):(\d+): `)
	mutantNumber = regexp.MustCompile(`\bmutant[A-Z]\w*(?:\[[^]]*\])?\((\d+)(?:, (\d+))?`)
)

// omitBroken adds the mutants that the compiler complains about to m.omit: those that are nearest to the error in its
// line, or else in the nearest line before it. It returns false if there are none.
func (m *mutator) omitBroken(out string, texts map[string][]string) (found bool) {
	for _, e := range errorLine.FindAllStringSubmatch(out, -1) {
		lines := texts[e[1]]
		line, _ := strconv.Atoi(e[2])
		column, _ := strconv.Atoi(e[3])
		for line = min(line, len(lines)); line > 0; line-- {
			text := lines[line-1]
			nearest, distance := []string(nil), len(text)+column
			for _, at := range mutantNumber.FindAllStringSubmatchIndex(text, -1) {
				if d := max(at[0]-column, column-at[0]); d < distance {
					nearest, distance = mutantNumber.FindStringSubmatch(text[at[0]:]), d
				}
			}
			if nearest != nil {
				for _, number := range nearest[1:] {
					if n, err := strconv.Atoi(number); err == nil && n < len(m.mutants) {
						m.omit[m.mutants[n]] = true
						found = true
					}
				}
				break
			}
		}
	}
	return found
}
