package main

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// printVersions prints what the results depend on.
func printVersions(ctx context.Context) error {
	var versions []string
	for _, module := range []string{kubernetesModule, "k8s.io/client-go", "sigs.k8s.io/controller-runtime",
		"k8s.io/sample-controller"} {
		v, err := version(ctx, module)
		if err != nil {
			return err
		}
		versions = append(versions, module+" "+v)
	}
	etcd := "no etcd"
	if out, err := exec.CommandContext(ctx, "etcd", "--version").Output(); err == nil {
		first, _, _ := strings.Cut(string(out), "\n")
		etcd = strings.Replace(first, "etcd Version:", "etcd", 1)
	}
	fmt.Printf("Versions: %s; %s; %s on %d CPUs\n", strings.Join(versions, ", "), etcd, runtime.Version(),
		runtime.NumCPU())
	return nil
}

// printTable prints a column for every run, and the median of each variant.
func printTable(all []*observation) {
	var variants []variant
	header := []string{""}
	for _, o := range all {
		if !slices.Contains(variants, o.variant) {
			variants = append(variants, o.variant)
		}
		header = append(header, o.variant.name)
	}
	for _, v := range variants {
		header = append(header, v.name+", median")
	}
	fmt.Println()
	printRow(header)
	printRow(slices.Concat([]string{"---"}, slices.Repeat([]string{"---:"}, len(header)-1)))
	row := func(name string, format func(float64) string, figure func(*observation) float64) {
		cells := []string{name}
		for _, o := range all {
			cells = append(cells, format(figure(o)))
		}
		for _, v := range variants {
			var figures []float64
			for _, o := range all {
				if o.variant == v {
					figures = append(figures, figure(o))
				}
			}
			cells = append(cells, format(median(figures)))
		}
		printRow(cells)
	}
	for _, program := range []struct {
		name  string
		costs func(*observation) *costs
	}{
		{kubeManager, func(o *observation) *costs { return &o.manager }},
		{apiServer, func(o *observation) *costs { return &o.server }},
	} {
		row(program.name+": CPU, s", decimal(1), func(o *observation) float64 { return program.costs(o).cpu })
		row(program.name+": peak memory, MiB", decimal(0),
			func(o *observation) float64 { return float64(program.costs(o).peak) / (1 << 20) })
		row(program.name+": goroutines", decimal(0),
			func(o *observation) float64 { return program.costs(o).goroutines })
	}
	row("all converged after, s", decimal(1), func(o *observation) float64 { return o.converged.Seconds() })
	row("the namespace was gone after, s", decimal(1),
		func(o *observation) float64 { return o.deleted.Seconds() })
	row("all queues: keys", decimal(0), func(o *observation) float64 { return float64(o.latency.keys) })
	row("all queues: mean wait", duration, func(o *observation) float64 { return o.latency.mean })
	fmt.Println()
}

func printRow(cells []string) { fmt.Printf("| %s |\n", strings.Join(cells, " | ")) }

func decimal(digits int) func(float64) string {
	return func(f float64) string { return fmt.Sprintf("%.*f", digits, f) }
}

// duration formats seconds with a unit and three significant digits.
func duration(seconds float64) string {
	switch {
	case math.IsNaN(seconds):
		return "–"
	case seconds < 1e-3:
		return fmt.Sprintf("%.3g µs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	default:
		return fmt.Sprintf("%.3g s", seconds)
	}
}

func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// compareObjects compares each run's objects with those of the first.
func compareObjects(all []*observation) error {
	if len(all) == 0 {
		return nil
	}
	first := all[0]
	fmt.Printf("Objects when all had converged: %d, with %d different descriptions\n", first.busy.total(),
		len(first.busy))
	for _, line := range first.busy.states() {
		fmt.Println("\t" + line)
	}
	fmt.Printf("Objects when the namespace was gone: %d\n", first.gone.total())
	same := true
	for i, o := range all[1:] {
		for _, phase := range []struct {
			name string
			a, b inventory
		}{{"converged", first.busy, o.busy}, {"namespace gone", first.gone, o.gone}} {
			differences := phase.a.differences(phase.b)
			if len(differences) == 0 {
				continue
			}
			same = false
			fmt.Printf("Run 1 (%s) and run %d (%s) differ, %s:\n", first.variant, i+2, o.variant, phase.name)
			for _, line := range differences {
				fmt.Println("\t" + line)
			}
		}
	}
	if !same {
		return errDiffer
	}
	if len(all) > 1 {
		fmt.Printf("All %d runs have the same objects, in both phases.\n", len(all))
	}
	return nil
}
