package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// table is a table of the page: the figures of a benchmark in some units.
type table struct {
	name, bench string
	units       []string
}

var tables = []table{
	{"cycle", "Cycle", []string{"ns/key"}},
	{"cycle-metrics", "CycleMetrics", []string{"ns/key"}},
	{"duplicate", "DuplicateAdd", []string{"ns/key"}},
	{"contended", "Contended", []string{"ns/op"}},
	{"wake-up", "WakeUp", []string{"p50-ns", "ns/op"}},
	{"add-after", "AddAfter", []string{"ns/key"}},
	{"add-after-waiting", "AddAfterWaiting", []string{"ns/key"}},
	{"due-storm", "DueStorm", []string{"ns/key"}},
	{"requeue", "Requeue", []string{"ns/key"}},
	{"priorities", "Priorities", []string{"ns/key"}},
	{"bytes", "Bytes", []string{"B/key"}},
	{"kept", "Kept", []string{"B/kept"}},
	{"idle", "Idle", []string{"B/queue", "goroutines/queue"}},
	{"scrape", "Scrape", []string{"ns/queue"}},
}

// The implementations, in the order of the columns.
const (
	fifo      = "keyedqueue"
	priority  = "keyedqueue-priority"
	clientGo  = "client-go"
	runtimePQ = "controller-runtime"
)

var columns = []string{fifo, priority, clientGo, runtimePQ}

// comparison is of a peer with what ours takes the place of.
type comparison struct{ peer, ours string }

var comparisons = []comparison{{clientGo, fifo}, {runtimePQ, priority}}

func comparisonsAmong(impls []string) []comparison {
	return slices.DeleteFunc(slices.Clone(comparisons), func(c comparison) bool {
		return !slices.Contains(impls, c.peer) || !slices.Contains(impls, c.ours)
	})
}

// markdown returns a table with a row for each combination of parameters and unit, a column for each
// implementation, and the ratios of the peers to ours. Parameters that are always the same are left out.
func (t table) markdown(r *results) string {
	impls := r.columns(t.bench)
	compared := comparisonsAmong(impls)
	several := r.varying(t.bench)
	var head []string
	for _, p := range several(r.rows[t.bench][0]) {
		head = append(head, p.name)
	}
	if len(t.units) > 1 {
		head = append(head, "")
	}
	left := len(head)
	head = append(head, impls...)
	for _, c := range compared {
		head = append(head, c.peer+" ÷ "+c.ours)
	}
	var b strings.Builder
	writeRow(&b, head)
	b.WriteString("|" + strings.Repeat("---|", left) + strings.Repeat("--:|", len(head)-left) + "\n")
	for _, row := range r.rows[t.bench] {
		for _, unit := range t.units {
			var cells []string
			for _, p := range several(row) {
				cells = append(cells, thousands(p.value))
			}
			if len(t.units) > 1 {
				cells = append(cells, unit)
			}
			value := func(impl string) float64 { return r.median(cell{t.bench, row, impl, unit}) }
			for _, impl := range impls {
				cells = append(cells, number(value(impl)))
			}
			for _, c := range compared {
				cells = append(cells, ratio(value(c.peer), value(c.ours)))
			}
			writeRow(&b, cells)
		}
	}
	return b.String()
}

// columns returns who took part in a benchmark, in the order of the columns.
func (r *results) columns(bench string) []string {
	return slices.DeleteFunc(slices.Clone(columns), func(impl string) bool {
		return !slices.Contains(r.impls[bench], impl)
	})
}

// varying returns a function that returns those parameters of a row that are not the same in all rows.
func (r *results) varying(bench string) func(row string) []parameter {
	values := map[string][]string{}
	for _, row := range r.rows[bench] {
		for _, p := range parameters(row) {
			values[p.name] = include(values[p.name], p.value)
		}
	}
	return func(row string) []parameter {
		return slices.DeleteFunc(parameters(row), func(p parameter) bool { return len(values[p.name]) == 1 })
	}
}

// machine says where and how the figures were measured.
func machine(r *results) string {
	h := r.header
	spreads := r.spreads()
	at := func(part float64) float64 { return 100 * spreads[int(part*float64(len(spreads)-1))] }
	return fmt.Sprintf(`%s with %s CPUs, %s/%s, %s. This library at %s, client-go %s, controller-runtime %s, client_golang %s.
Every figure is the median of %s rounds of %s each. In half of the cells of times the middle half of the rounds lies
within %.0f %% of the median, in nine tenths of them within %.0f %%.
`, h["cpu"], h["cpus"], h["goos"], h["goarch"], h["go"], h["keyedqueue"], h["k8s.io/client-go"],
		h["sigs.k8s.io/controller-runtime"], h["github.com/prometheus/client_golang"], h["rounds"], h["benchtime"],
		at(0.5), at(0.9))
}

func writeRow(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// number returns x with three digits, or all that are before the point.
func number(x float64) string {
	switch {
	case math.IsNaN(x):
		return ""
	case x < 0.005:
		return "0"
	case x < 100:
		return fmt.Sprintf("%.3g", x)
	}
	return thousands(fmt.Sprintf("%.0f", x))
}

// ratio returns how many times b is in a.
func ratio(a, b float64) string {
	if x := a / b; !math.IsNaN(x) && !math.IsInf(x, 0) {
		if x < 10 {
			return fmt.Sprintf("%.1f×", x)
		}
		return thousands(fmt.Sprintf("%.0f", x)) + "×"
	}
	return ""
}

// thousands returns a number with separators, and all else as it is.
func thousands(s string) string {
	if _, err := strconv.Atoi(s); err != nil {
		return s
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
