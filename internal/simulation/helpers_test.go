// Package simulation is tests alone: they simulate what becomes of failing and of periodic keys, and write
// the tables and figures of docs/backoff.md.
package simulation

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// This file is what the simulations have in common.

var update = flag.Bool("update", false, "write the figures and the tables of docs/backoff.md anew")

// setRandom makes the random delays of a limiter of NewTypedItemBackoffRateLimiter come from random, so that
// a simulation has the same result on every machine. The limiter keeps its source to itself.
func setRandom(limiter any, random func(n uint64) uint64) {
	field := reflect.ValueOf(limiter).Elem().FieldByName("random")
	*(*func(uint64) uint64)(field.Addr().UnsafePointer()) = random
}

// goldenPart asserts that the part of a file of docs that belongs to the test t is text, or makes it so if
// the flag says so.
func goldenPart(t *testing.T, name, text string) {
	t.Helper()
	golden(t, name, func(page string) string {
		begin, end := "<!-- "+t.Name()+" writes from here -->\n", "<!-- to here -->\n"
		before, rest, found := strings.Cut(page, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no place for what %s writes", name, t.Name())
		}
		return before + begin + text + end + after
	})
}

// golden asserts that a file of docs is what want makes of it, or makes it so if the flag says so.
func golden(t *testing.T, name string, want func(is string) string) {
	t.Helper()
	name = filepath.Join("../../docs", name)
	is, err := os.ReadFile(name)
	if err != nil && !*update {
		t.Fatal(err)
	}
	should := want(string(is))
	if string(is) == should {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the simulation says: go test -run '^%s$' ./internal/simulation -update",
			name, t.Name())
	}
	if err := os.WriteFile(name, []byte(should), 0o644); err != nil {
		t.Fatal(err)
	}
}

// figureBars draws a bar for each of so many seconds that has requests. x is the place of a second, and the
// rest that of figureY.
func figureBars(seconds, height int, most float64, x func(second int) float64,
	requests func(second int) int) string {
	var b strings.Builder
	for s := range seconds {
		if n := requests(s); n > 0 {
			// The scale begins a little below 1, so that a single request is seen.
			fmt.Fprintf(&b, "M%.1f %dV%.1f", x(s)+(x(1)-x(0))/2, height, figureY(n, height, most))
		}
	}
	return b.String()
}

// figureY returns how far from the top of a panel of that height a number of requests is, on a logarithmic
// scale up to most.
func figureY(requests, height int, most float64) float64 {
	return float64(height-4) * (1 - math.Log10(float64(requests))/math.Log10(most))
}
