// Command report makes docs/performance.md and its figure of peers/bench/performance.txt, the raw output of
// the benchmarks, which it first makes anew with -run. It is run from the root of the repository:
//
//	go run ./peers/bench/report        # tables and figure
//	go run ./peers/bench/report -run   # benchmarks, tables and figure
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// The raw output is no part of the root module, which everyone downloads. The rest is in the directory docs.
const (
	rawFile    = "../peers/bench/performance.txt"
	pageFile   = "performance.md"
	figureFile = "performance.svg"
)

func main() {
	var m measurement
	run := flag.Bool("run", false, "run the benchmarks first, which takes an hour, and needs a quiet machine")
	flag.IntVar(&m.rounds, "rounds", 11,
		"with -run: `times` that every benchmark is run, in turn with the others")
	flag.StringVar(&m.benchtime, "benchtime", "200ms", "with -run: how long each is run, or how often (`10x`)")
	flag.BoolVar(&m.short, "short", false, "with -run: leave out the sizes that take seconds")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(),
			"Usage, in the root of the repository: go run ./peers/bench/report [flags]\n\n"+
				"Writes docs/performance.md and docs/performance.svg from peers/bench/performance.txt.\n\nFlags:")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := report("docs", *run, m); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func report(docs string, run bool, m measurement) error {
	if run {
		if err := m.write(filepath.Join(docs, rawFile), "peers"); err != nil {
			return err
		}
	}
	files, err := generate(docs)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(docs, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns what the page and the figure must be, by name.
func generate(docs string) (map[string]string, error) {
	raw, err := os.Open(filepath.Join(docs, rawFile))
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	r, err := parse(raw)
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(filepath.Join(docs, pageFile))
	if err != nil {
		return nil, err
	}
	filled, err := fill(string(page), r)
	if err != nil {
		return nil, err
	}
	return map[string]string{pageFile: filled, figureFile: figure(r)}, nil
}
