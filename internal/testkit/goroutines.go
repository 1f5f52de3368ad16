package testkit

import (
	"bytes"
	"regexp"
	"runtime/debug"
	"runtime/pprof"
	"testing/synctest"
)

func Stacks() []byte {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 2)
	return b.Bytes()
}

// GoroutineSet has the stacks of a bubble's goroutines, by their numbers. Unlike runtime.NumGoroutine it
// leaves out other tests' goroutines, and those that have ended but are still counted.
type GoroutineSet map[string][]byte

// inBubble matches the start of a stack: the goroutine's number, and what names its bubble.
var inBubble = regexp.MustCompile(`^goroutine (\d+) [^\n]*(synctest bubble \d+\b)`)

// Bubble returns what names the caller's bubble in the stacks of its goroutines.
func Bubble() string { return string(inBubble.FindSubmatch(debug.Stack())[2]) }

// Goroutines returns the goroutines of the caller's bubble.
func Goroutines() GoroutineSet { return GoroutinesOf(Bubble()) }

func GoroutinesOf(bubble string) GoroutineSet {
	set := make(GoroutineSet)
	for stack := range bytes.SplitSeq(Stacks(), []byte("\n\n")) {
		if match := inBubble.FindSubmatch(stack); match != nil && string(match[2]) == bubble {
			set[string(match[1])] = stack
		}
	}
	return set
}

// Since returns the stacks of the goroutines that are not in before, at most 20.
func (set GoroutineSet) Since(before GoroutineSet) []byte {
	var stacks [][]byte
	for number, stack := range set {
		if _, ok := before[number]; !ok && len(stacks) < 20 {
			stacks = append(stacks, stack)
		}
	}
	return bytes.Join(stacks, []byte("\n\n"))
}

// WantMore waits until all goroutines of the bubble are blocked. Then so many more than in set must be there.
func (set GoroutineSet) WantMore(t TB, when string, more int) {
	t.Helper()
	synctest.Wait()
	now := Goroutines()
	if n := len(now) - len(set); n != more {
		t.Errorf("%s: %d more goroutines, want %d; some of the new ones:\n%s", when, n, more, now.Since(set))
	}
}
