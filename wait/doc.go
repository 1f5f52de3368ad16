// Package wait calls functions repeatedly: at intervals or with a backoff, until a condition is true or a
// context ends.
//
// It has the names and signatures of k8s.io/apimachinery/pkg/util/wait v0.37, without the polling
// functions that are deprecated there, so that a program can change one import path. It depends on
// k8s.io/utils/clock and on nothing else.
//
// # What is here
//
// [Backoff] describes a growing delay. [Backoff.Step] takes the next one, [Backoff.DelayFunc] and
// [Backoff.DelayWithReset] make a function of it, [DelayFunc.Until] runs a condition on that function's
// schedule.
//
// [Until], [NonSlidingUntil], [JitterUntil], [BackoffUntil] and their WithContext forms call a function again
// and again until they are stopped.
//
// [PollUntilContextCancel], [PollUntilContextTimeout], [ExponentialBackoff] and
// [ExponentialBackoffWithContext] call a condition until it is true, it fails, or the time or the tries run
// out; [Interrupted] recognizes the error of the last case.
//
// # Time
//
// A function that takes a clock reads and waits on that clock alone; a nil clock is the real one. Every other
// function uses the time package, and creates its timers when it is called, so inside a testing/synctest
// bubble it runs on the bubble's virtual time.
//
// # Where it differs from its model
//
//   - No delay overflows or becomes negative: it stops at the largest Duration. Apimachinery does not check
//     a product before it converts it, so on amd64 a backoff that has grown for long enough becomes negative,
//     and a busy loop. The fields of [Backoff] say what odd values mean.
//   - [NewExponentialBackoffManager] does not count the delay that it returned as idle time; its comment
//     explains the difference.
//   - A [BackoffManager] of this package may be shared by goroutines: each call of Backoff returns a timer of
//     its own, where apimachinery resets one timer that all its callers hold. The function that
//     [Backoff.DelayWithReset] returns may also be shared.
//   - A panic in a caller's function is neither caught nor logged. The loop stops its timer, and the panic
//     reaches the loop's caller.
//   - No loop waits on [NeverStop], which is never closed anyway. So a loop that has it can run in a synctest
//     bubble.
//   - Where a loop is stopped by a value that was sent on the channel of [ContextForChannel], it returns
//     context.Canceled. Apimachinery returns nil, as if the condition had been true.
//   - Nothing is deprecated. Apimachinery recommends DelayWithReset instead of its exponential manager, but
//     DelayWithReset goes back to the first delay also while failures continue.
//
// Otherwise the delays for the same Duration, Factor, Jitter, Steps and Cap are those of apimachinery to the
// nanosecond, apart from random jitter.
package wait
