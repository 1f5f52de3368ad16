package worker

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// FailedKey is a key whose last call has failed.
type FailedKey[T comparable] struct {
	Key T `json:"key"`
	// Attempt is how many calls have failed in a row.
	Attempt int `json:"attempt"`
	// Since is when the first of these calls ended, or the first since the pool remembers the key's errors:
	// see Failing of [Snapshot].
	Since time.Time `json:"since"`
	// Err is the text of the last error, at most 1 KiB of it.
	Err string `json:"error"`
	// Time is when the last call ended.
	Time time.Time `json:"time"`
	// NextTry is when the key comes due. It is zero if the key does not wait or the time is not known.
	NextTry time.Time `json:"next_try,omitzero"`
}

// FailedCall is one call that has failed.
type FailedCall struct {
	// Attempt is 1 for the first call in a row that has failed.
	Attempt int `json:"attempt"`
	// Started is when the call began, and Duration how long it took.
	Started  time.Time     `json:"started"`
	Duration time.Duration `json:"duration_ns"`
	// Causes are why the key came, at most 512 bytes of their text. A retry has none of its own.
	Causes string `json:"causes,omitempty"`
	// Err is the text of the error, at most 1 KiB of it.
	Err string `json:"error"`
	// Stack is that of a panic, at most 8 KiB of it. Only a key's last call that panicked has it.
	Stack string `json:"stack,omitempty"`
}

const (
	maxErrorText = 1 << 10
	maxStack     = 8 << 10
	maxCauseText = 512
	// maxCalls is how many calls are kept of a key: the first and the last four.
	maxCalls = 5
	// failedCallsSize and callSize are about what failedCalls and a FailedCall take in memory without texts.
	failedCallsSize, callSize = 160, 116
)

// failedCalls has the first and the last calls of a key that have failed in a row. A value does not change:
// withCall makes a new one.
type failedCalls struct {
	since, time time.Time    // when the first and the last call ended
	calls       []FailedCall // the first and the last four, the last one last
	size        int
}

// isFollowedBy reports whether call is one more in a row: the number of the attempt has not gone back.
func (fc *failedCalls) isFollowedBy(call FailedCall) bool {
	return fc != nil && call.Attempt >= fc.calls[len(fc.calls)-1].Attempt
}

// withCall returns the calls before with one more. Without any, before is nil.
func withCall(before *failedCalls, call FailedCall) *failedCalls {
	all := &failedCalls{time: call.Started.Add(call.Duration), size: failedCallsSize}
	all.since = all.time
	if before != nil {
		all.since, all.calls = before.since, slices.Clone(before.calls)
		if last := len(all.calls) - 1; last > 0 && all.calls[last].Attempt == call.Attempt {
			all.calls = all.calls[:last] // The same failure takes its place. (The first call always stays.)
		}
	}
	if call.Stack != "" {
		for i := range all.calls {
			all.calls[i].Stack = ""
		}
	}
	if all.calls = append(all.calls, call); len(all.calls) > maxCalls {
		all.calls = slices.Delete(all.calls, 1, 2)
	}
	for _, c := range all.calls {
		all.size += callSize + len(c.Causes) + len(c.Err) + len(c.Stack)
	}
	return all
}

// newFailedKey describes a key by its calls.
func newFailedKey[T comparable](key T, fc *failedCalls) FailedKey[T] {
	last := &fc.calls[len(fc.calls)-1]
	return FailedKey[T]{Key: key, Attempt: last.Attempt, Since: fc.since, Err: last.Err, Time: fc.time}
}

// failedCall describes a call that has failed.
func (c *Tracked[T]) failedCall() FailedCall {
	r := &c.result
	f := FailedCall{
		Attempt: r.Attempt, Started: r.Started, Duration: r.Duration,
		Causes: cut(c.tracker.queue.Causes(r.Key).String(), maxCauseText),
		Err:    cut(fmt.Sprint(r.Err), maxErrorText),
	}
	if p, ok := r.Err.(*PanicError); ok {
		f.Stack = cut(string(p.Stack), maxStack)
	}
	return f
}

// cut returns s, or the beginning of it if it is longer than size. It does not keep the rest in memory.
func cut(s string, size int) string {
	if len(s) <= size {
		return s
	}
	end := size
	for end > size-utf8.UTFMax && !utf8.RuneStart(s[end]) { // Text that is not UTF-8 may have no start.
		end--
	}
	return strings.Clone(s[:end])
}
