package testkit

import (
	"sync/atomic"
	"testing/synctest"
)

// Call is a call that may block, in a goroutine of a bubble.
type Call[R any] struct{ result atomic.Pointer[R] }

// Start calls f in a new goroutine.
func Start[R any](f func() R) *Call[R] {
	c := &Call[R]{}
	go func() { c.Return(f()) }()
	return c
}

// Return is for callers that start the goroutine themselves: it notes that the call has returned result.
func (c *Call[R]) Return(result R) { c.result.Store(&result) }

// Returned reports whether the call has returned.
func (c *Call[R]) Returned() bool { return c.result.Load() != nil }

// MustBlock fails the test if the call has returned when all goroutines of the bubble are blocked.
func (c *Call[R]) MustBlock(t TB, what string) {
	t.Helper()
	synctest.Wait()
	if r := c.result.Load(); r != nil {
		t.Fatalf("%s: returned %v, and should block", what, *r)
	}
}

// MustReturn returns the result of the call. It fails the test if the call still blocks when all goroutines
// of the bubble are blocked.
func (c *Call[R]) MustReturn(t TB, what string) R {
	t.Helper()
	synctest.Wait()
	r := c.result.Load()
	if r == nil {
		t.Fatalf("%s: still blocks", what)
	}
	return *r
}
