// Package testkit holds what the tests of several packages need: calls that may block, a queue and a metrics
// provider that record what happens, clocks with hooks, and measurements of memory.
//
// It imports the root package, so the root's tests use it only in package workqueue_test.
package testkit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TB is the part of testing.TB that the helpers need. The cases of workqueuetest have it, too.
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

// Patience is how much real time a case of workqueuetest may take, in addition to the time of the stress cases. A case
// that takes longer is abandoned with its goroutines, because nothing can end a goroutine that waits for a mutex.
var Patience = time.Minute

// Eventually polls until f returns true, for a third of Patience. It is for tests outside of bubbles, which have no
// virtual time.
func Eventually(t TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience / 3); !f(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, Patience/3)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// InBubble runs f, a property that rapid checks, in a bubble of testing/synctest. A panic of f, by which rapid
// ends a property that fails, leaves the bubble.
func InBubble(t *testing.T, f func()) {
	var value any
	synctest.Test(t, func(*testing.T) {
		value = PanicOf(f)
	})
	if value != nil {
		panic(value)
	}
}
