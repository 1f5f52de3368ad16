// Package wait repeats things: at intervals, with a backoff, until a condition
// holds, until a context ends.
//
// Its names and signatures are those of k8s.io/apimachinery/pkg/util/wait v0.37,
// without the polling functions that are deprecated there, so that a program can
// change one import path. It depends on k8s.io/utils/clock and on nothing else.
//
// # What is here
//
// [Backoff] describes a growing delay. [Backoff.Step] takes the next one,
// [Backoff.DelayFunc] and [Backoff.DelayWithReset] turn the description into a
// function, [DelayFunc.Until] runs a condition on that function's schedule.
//
// [Until], [NonSlidingUntil], [JitterUntil], [BackoffUntil] and their WithContext
// forms call a function again and again until they are stopped.
//
// [PollUntilContextCancel], [PollUntilContextTimeout], [ExponentialBackoff] and
// [ExponentialBackoffWithContext] call a condition until it is true, fails, or the
// caller's patience ends; [Interrupted] recognizes the error of the last case.
//
// # Time
//
// A function that takes a clock reads and waits on that clock alone; a nil clock is
// the real one. Every other function uses the time package, and creates whatever it
// waits on when it is called, so inside a testing/synctest bubble it runs on the
// bubble's virtual time.
//
// # Where it differs from its model
//
//   - No arithmetic overflows or turns negative. Apimachinery converts an oversized
//     product to a Duration as it is, which on amd64 yields a negative delay, so that
//     a backoff that has grown for long enough becomes a busy loop. Here a delay stops
//     at the largest Duration, about 292 years. A negative Duration counts as zero; a
//     Factor that is negative or not a number counts as zero, hence leaves the delay
//     as it is; a Jitter that is not a number counts as none.
//   - [NewExponentialBackoffManager] does not take the delay that it handed out for
//     idle time. See there.
//   - A [BackoffManager] of this package may be shared by goroutines: each call of
//     Backoff returns a timer of its own, where apimachinery resets one timer that all
//     its callers hold. The function that [Backoff.DelayWithReset] returns may always
//     be shared, too.
//   - A panic in a caller's function is neither caught nor logged. It passes through
//     the loop, which stops its timer on the way, and up its goroutine.
//   - [NeverStop] is never waited on, which is the same as waiting for it in vain,
//     except that the loop can then run in a synctest bubble.
//   - Where a loop is stopped by a value that was sent on the channel of
//     [ContextForChannel], it returns context.Canceled. Apimachinery returns nil, as
//     though the condition had been met.
//   - Nothing is marked as deprecated. What apimachinery recommends instead of its
//     exponential manager, DelayWithReset, starts again in the midst of a failure.
//
// For the same Duration, Factor, Jitter, Steps and Cap the delays are otherwise those
// of apimachinery, to the nanosecond, random jitter apart.
package wait
