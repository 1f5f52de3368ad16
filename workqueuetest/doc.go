// Package workqueuetest tests whether a work queue keeps the contract of [github.com/keyedqueue/workqueue]: a
// key is queued once, in order, is held by one worker at a time, and is never lost; a shutdown and a drain
// wait for what they should; no delay ends early; and an idle queue costs nothing. (Whether a handler
// survives what that contract allows, package [github.com/keyedqueue/workqueue/handlertest] tests.)
//
// # Use
//
// The test of a queue is one call:
//
//	func TestMyQueue(t *testing.T) {
//		workqueuetest.Run(t, func(c workqueuetest.Config[string]) workqueue.TypedRateLimitingInterface[string] {
//			return myqueue.New(c.RateLimiter, c.Clock)
//		})
//	}
//
// Each case is a subtest. It reports what was promised, what happened, and how to repeat it. [Cases] lists
// them.
//
// The suite is strict: a case that needs what the queue lacks fails. Use a [Suite] to declare, each with its
// reason, what the queue lacks, what it does not promise, and which cases it is known to fail:
//
//	workqueuetest.Suite{
//		New: func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
//			return myqueue.New(c.Clock)
//		},
//		NoMetrics: true,
//		Lacks:     map[string]string{workqueuetest.Failures: "its users count failures themselves"},
//		Known:     map[string]string{"AddAfterTies": "keys due at the same time come in any order"},
//	}.Run(t)
//
// [Wraps] checks that a wrapper has each interface of what it wraps.
//
// A new promise of queues is a case here: a script in script_cases.go, and a broken queue in
// suite_broken_test.go that fails it.
//
// # How it works
//
// Most cases run in the virtual time of testing/synctest, once on the bubble's clock and once on a fake one.
// New must build the whole queue, so that all of it is in the bubble.
//
// The cases named Model make random calls on the queue and on a slow queue whose code is obvious. If the two
// differ, rapid shrinks the calls to the shortest sequence that still fails, and stores it in testdata/rapid
// for the next run. See [pgregory.net/rapid] for its flags.
//
// The cases named Linearizable record what several goroutines saw, and search for an order of the calls that
// explains it.
//
// The cases named Stress look for races in real time, best with the race detector. Two environment variables
// control them: WORKQUEUE_STRESS is how long they take together, such as 1m, instead of a second, and
// WORKQUEUE_SEED is their random seed.
package workqueuetest
