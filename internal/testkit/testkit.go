// Package testkit holds what the tests of several packages need: calls that may block, a metrics provider
// that records what happens, clocks with hooks, and measurements of memory.
//
// It imports the root package, so the root's tests use it only in package workqueue_test.
package testkit

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TB is the part of testing.TB that the helpers need. The cases of workqueuetest also have it.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// WantPanic calls f, which must panic with a value whose text contains all words. It returns the value.
func WantPanic(t TB, what string, f func(), words ...string) any {
	t.Helper()
	value := PanicOf(f)
	if value == nil {
		t.Errorf("%s: does not panic", what)
		return nil
	}
	for _, word := range words {
		if text := fmt.Sprint(value); !strings.Contains(text, word) {
			t.Errorf("%s: panics with %q, want %q in it", what, text, word)
		}
	}
	return value
}

// PanicOf calls f and returns the value that f panics with, or nil.
func PanicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// Patience is how much real time a case of workqueuetest may take, beside that of its stress cases.
var Patience = time.Minute

// Eventually polls until f returns true, for a third of Patience. It is for tests outside of bubbles.
func Eventually(t TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience / 3); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, Patience/3)
		}
	}
}

// InBubble runs f, a property that rapid checks, in a bubble of testing/synctest. A panic of f, by which
// rapid ends a property that fails, leaves the bubble.
func InBubble(t *testing.T, f func()) {
	var value any
	synctest.Test(t, func(*testing.T) { value = PanicOf(f) })
	if value != nil {
		panic(value)
	}
}

// Call is a call that may block, in a goroutine of a bubble.
type Call[R any] struct{ result atomic.Pointer[R] }

func Start[R any](f func() R) *Call[R] {
	c := &Call[R]{}
	go func() { c.Return(f()) }()
	return c
}

// Return is for callers that start the goroutine themselves: it notes that the call has returned result.
func (c *Call[R]) Return(result R) { c.result.Store(&result) }

func (c *Call[R]) Returned() bool { return c.result.Load() != nil }

// MustBlock fails the test if the call has returned when all goroutines of the bubble are blocked.
func (c *Call[R]) MustBlock(t TB, what string) {
	t.Helper()
	synctest.Wait()
	if r := c.result.Load(); r != nil {
		t.Fatalf("%s: returned %v, and should block", what, *r)
	}
}

// MustReturn returns the result of the call. It fails the test if the bubble comes to rest before.
func (c *Call[R]) MustReturn(t TB, what string) R {
	t.Helper()
	synctest.Wait()
	r := c.result.Load()
	if r == nil {
		t.Fatalf("%s: still blocks", what)
	}
	return *r
}

// Long reports whether WORKQUEUE_LONG is set. Tests that take seconds run only then: .ci/run sets it.
var Long = os.Getenv("WORKQUEUE_LONG") != ""

// RaceEnabled reports whether the race detector is on. Then tests that measure memory skip themselves.
var RaceEnabled = func() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}()
