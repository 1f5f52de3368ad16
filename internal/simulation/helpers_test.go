// Package simulation is tests alone: they simulate what becomes of failing keys, and write the tables of
// docs/backoff.md.
package simulation

import (
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
)

// This file is what the simulations have in common.

var update = flag.Bool("update", false, "write the tables of docs/backoff.md anew")

// setRandom makes the random delays of a limiter of NewTypedItemBackoffRateLimiter come from random, so that
// a simulation has the same result on every machine. The limiter keeps its source to itself.
func setRandom(limiter any, random func(n uint64) uint64) {
	field := reflect.ValueOf(limiter).Elem().FieldByName("random")
	*(*func(uint64) uint64)(field.Addr().UnsafePointer()) = random
}

// golden asserts that the part of docs/backoff.md that belongs to the test t is text, or makes it so if the flag
// says so.
func golden(t *testing.T, text string) {
	t.Helper()
	const name = "../../docs/backoff.md"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), "<!-- "+t.Name()+" writes from here -->\n")
	is, after, closed := strings.Cut(rest, "<!-- to here -->\n")
	switch {
	case !found || !closed:
		t.Fatalf("%s has no place for what %s writes", name, t.Name())
	case is == text:
		return
	case !*update:
		t.Fatalf("%s is not what the simulation says: go test -run '^%s$' ./internal/simulation -update",
			name, t.Name())
	}
	page = []byte(before + "<!-- " + t.Name() + " writes from here -->\n" + text + "<!-- to here -->\n" + after)
	if err := os.WriteFile(name, page, 0o644); err != nil {
		t.Fatal(err)
	}
}
