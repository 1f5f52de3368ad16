package testkit

import (
	"bytes"
	"regexp"
	"runtime"
	"testing/synctest"
)

// GoroutineSet has the stacks of a bubble's goroutines, by their numbers. Unlike runtime.NumGoroutine it leaves out
// other tests' goroutines, and those that have ended but are still counted.
type GoroutineSet map[string][]byte

var (
	goroutineNumber = regexp.MustCompile(`^goroutine (\d+) `)
	bubbleNumber    = regexp.MustCompile(`^goroutine [^\n]*(synctest bubble \d+\b)`)
)

// Bubble returns what names the caller's bubble in the stacks of its goroutines.
func Bubble() string {
	buf := make([]byte, 1<<10)
	return string(bubbleNumber.FindSubmatch(buf[:runtime.Stack(buf, false)])[1])
}

// Goroutines returns the goroutines of the caller's bubble.
func Goroutines() GoroutineSet { return GoroutinesOf(Bubble()) }

// GoroutinesOf returns the goroutines of a bubble.
func GoroutinesOf(bubble string) GoroutineSet {
	buf := make([]byte, 1<<16)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	set := make(GoroutineSet)
	for stack := range bytes.SplitSeq(buf, []byte("\n\n")) {
		if b := bubbleNumber.FindSubmatch(stack); b != nil && string(b[1]) == bubble {
			set[string(goroutineNumber.FindSubmatch(stack)[1])] = stack
		}
	}
	return set
}

// Since returns the stacks of the goroutines that are not in before.
func (set GoroutineSet) Since(before GoroutineSet) [][]byte {
	var stacks [][]byte
	for number, stack := range set {
		if _, ok := before[number]; !ok {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// WantMore waits until all goroutines of the bubble are blocked. Then there must be this many more than in set.
func (set GoroutineSet) WantMore(t TB, when string, more int) {
	t.Helper()
	synctest.Wait()
	now := Goroutines()
	if n := len(now) - len(set); n != more {
		all := now.Since(set)
		t.Errorf("%s: %d more goroutines, want %d; some of the new ones:\n%s",
			when, n, more, bytes.Join(all[:min(len(all), 20)], []byte("\n\n")))
	}
}
