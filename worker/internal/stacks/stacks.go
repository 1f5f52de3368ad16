// Package stacks reads the stacks of other goroutines.
package stacks

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
)

// maxGoroutines is the number of goroutines above which no stacks are read: to read them stops the whole
// program, for 2.5 to 14 µs a goroutine.
const maxGoroutines = 3000

// Current returns the number of this goroutine.
func Current() string {
	var stack [64]byte
	return goroutineOf(stack[:runtime.Stack(stack[:], false)])
}

// Of returns the stacks of goroutines by their numbers, up to size bytes of each. It stops all goroutines for
// as long as it takes to write their stacks down. Instead of a stack that it cannot read it says why.
func Of(goroutines []string, size int) map[string]string {
	all, instead := readAll()
	found := make(map[string]string, len(goroutines))
	for _, g := range goroutines {
		found[g] = instead
	}
	for stack := range bytes.SplitSeq(all, []byte("\n\n")) {
		g := goroutineOf(stack)
		if _, wanted := found[g]; wanted {
			found[g] = strings.ToValidUTF8(string(stack[:min(size, len(stack))]), "")
		}
	}
	return found
}

// readAll returns the stacks of all goroutines, as far as the buffer has room, and a text for a goroutine
// that is not among them.
func readAll() (stacks []byte, instead string) {
	n := runtime.NumGoroutine()
	if n > maxGoroutines {
		return nil, fmt.Sprintf("not read: there are %d goroutines", n)
	}
	// runtime.Stack walks all goroutines even if the buffer is full, so it is called once, with a buffer that
	// is probably large enough: 16 KiB a goroutine up to 8 MiB in all, and never less than 2 KiB a goroutine.
	stacks = make([]byte, 64<<10+max(n*2<<10, min(n*16<<10, 8<<20)))
	return stacks[:runtime.Stack(stacks, true)], "not read: the stacks of the other goroutines are too long"
}

// goroutineOf returns the number of the goroutine whose stack begins with "goroutine 12 [running]:".
func goroutineOf(stack []byte) string {
	number, _, _ := bytes.Cut(bytes.TrimPrefix(stack, []byte("goroutine ")), []byte(" "))
	return string(number)
}
