// Command report fills the tables of docs/performance.md and peers/bench/tables.md, and draws the figure, from
// peers/bench/performance.txt: the raw output of the benchmarks, which -run makes anew. Run it in the root of
// the repository:
//
//	go run ./peers/bench/report        # tables and figure
//	go run ./peers/bench/report -run   # benchmarks, tables and figure
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// The raw output is no part of the root module, which everyone downloads. The rest is in the directory docs.
const (
	rawFile    = "../peers/bench/performance.txt"
	pageFile   = "performance.md"
	tablesFile = "../peers/bench/tables.md"
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
				"Fills docs/performance.md and peers/bench/tables.md and writes docs/performance.svg, from\n"+
				"peers/bench/performance.txt.\n\nFlags:")
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

// generate returns what the pages and the figure must be, by name.
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
	files := make(map[string]string)
	for _, name := range []string{pageFile, tablesFile} {
		page, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil {
			return nil, err
		}
		files[name] = string(page)
	}
	if err := fill(files, r); err != nil {
		return nil, err
	}
	files[figureFile] = figure(r)
	return files, nil
}

var place = regexp.MustCompile(`(?s)(<!-- report: (\S+) -->\n).*?(<!-- end -->\n)`)

// fill fills each place of the pages. Every benchmark must have a table, and every table one place.
func fill(pages map[string]string, r *results) error {
	for bench := range r.rows {
		if !slices.ContainsFunc(tables, func(t table) bool { return t.bench == bench }) {
			return fmt.Errorf("there is no table for %s", bench)
		}
	}
	parts := map[string]string{"machine": machine(r)}
	for _, t := range tables {
		if len(r.rows[t.bench]) == 0 {
			return fmt.Errorf("there are no results of %s", t.bench)
		}
		parts[t.name] = t.markdown(r)
	}
	var err error
	for name, page := range pages {
		pages[name] = place.ReplaceAllStringFunc(page, func(old string) string {
			m := place.FindStringSubmatch(old)
			content, ok := parts[m[2]]
			if !ok {
				err = fmt.Errorf("%s has a place for %q, which does not exist or has a place already", name, m[2])
			}
			delete(parts, m[2])
			return m[1] + content + m[3]
		})
	}
	for name := range parts {
		err = fmt.Errorf("no page has a place for %q", name)
	}
	return err
}
