package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// results are what benchmarks have printed.
type results struct {
	header map[string]string
	// rows are what each benchmark was run with (key=string/keys=1), in order, and impls who.
	rows  map[string][]string
	impls map[string][]string
	// values are the values of all rounds, sorted.
	values map[cell][]float64
}

// cell is a figure of a table.
type cell struct{ bench, row, impl, unit string }

// line is what is parsed of a benchmark's name: Benchmark, name, parameters, implementation, GOMAXPROCS.
var line = regexp.MustCompile(`^Benchmark(\w+?)((?:/[^/]+)*?)/impl=(.+?)(?:-\d+)?$`)

func parse(raw io.Reader) (*results, error) {
	r := &results{
		header: map[string]string{}, rows: map[string][]string{}, impls: map[string][]string{},
		values: map[cell][]float64{},
	}
	lines := bufio.NewScanner(raw)
	for n := 1; lines.Scan(); n++ {
		if err := r.parseLine(lines.Text()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	for _, v := range r.values {
		slices.Sort(v)
	}
	return r, lines.Err()
}

func (r *results) parseLine(text string) error {
	if key, value, ok := strings.Cut(text, ": "); ok {
		r.header[key] = value
		return nil
	}
	fields := strings.Fields(text)
	if len(fields) < 4 || len(fields)%2 != 0 {
		return fmt.Errorf("%q is not the line of a benchmark", text)
	}
	name := line.FindStringSubmatch(fields[0])
	if name == nil {
		return fmt.Errorf("%q is not a benchmark of an implementation", fields[0])
	}
	c := cell{bench: name[1], row: strings.TrimPrefix(name[2], "/"), impl: name[3]}
	r.rows[c.bench] = include(r.rows[c.bench], c.row)
	r.impls[c.bench] = include(r.impls[c.bench], c.impl)
	for i := 2; i < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return err
		}
		c.unit = fields[i+1]
		r.values[c] = append(r.values[c], value)
	}
	return nil
}

func include(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

// median returns the median of all rounds, NaN without rounds.
func (r *results) median(c cell) float64 { return r.quantile(c, 0.5) }

func (r *results) quantile(c cell, part float64) float64 {
	v := r.values[c]
	if len(v) == 0 {
		return math.NaN()
	}
	at := part * float64(len(v)-1)
	below, above := v[int(math.Floor(at))], v[int(math.Ceil(at))]
	return below + (above-below)*(at-math.Floor(at))
}

// spreads returns for each time that was measured the distance of the quartiles in relation to the median,
// sorted.
func (r *results) spreads() []float64 {
	var all []float64
	for c := range r.values {
		if m := r.median(c); strings.HasPrefix(c.unit, "ns/") && m > 0 {
			all = append(all, (r.quantile(c, 0.75)-r.quantile(c, 0.25))/m)
		}
	}
	slices.Sort(all)
	return all
}

// parameter is one of those that a row is made of.
type parameter struct{ name, value string }

func parameters(row string) []parameter {
	var all []parameter
	for p := range strings.SplitSeq(row, "/") {
		if name, value, ok := strings.Cut(p, "="); ok {
			all = append(all, parameter{name, value})
		}
	}
	return all
}

// split returns the number of keys of a row, and the other parameters. It returns 0 if no number is given.
func split(row string) (keys int, others []parameter) {
	for _, p := range parameters(row) {
		if p.name == "keys" {
			keys, _ = strconv.Atoi(p.value)
		} else {
			others = append(others, p)
		}
	}
	return keys, others
}
