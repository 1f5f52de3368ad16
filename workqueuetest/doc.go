// Package workqueuetest tries a work queue for the contract that the queues of
// [github.com/keyedqueue/workqueue] keep: that a key is queued once, in order, is held by one worker at a
// time, and is never lost; what a shutdown and a drain wait for; that no delay ends early; and what a queue
// costs while it has nothing to do.
//
// # Use
//
// A test of the queue, wherever it is from, is one call:
//
//	func TestMyQueue(t *testing.T) {
//		workqueuetest.Run(t, func(c workqueuetest.Config[string]) workqueue.TypedRateLimitingInterface[string] {
//			return myqueue.New(c.RateLimiter, c.Clock)
//		})
//	}
//
// Each case is a subtest. It says what was promised, what was seen, and how to repeat it. [Cases] lists them.
//
// What the queue has is found out: with AddAfter, AddRateLimited or the methods of [workqueue.Extended] it is
// tried for those as well. What it does not promise is declared in a [Suite], where also the cases are listed
// that it is known to fail:
//
//	workqueuetest.Suite{
//		New:       func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] { return myqueue.New(c.Clock) },
//		NoMetrics: true,
//		Known:     map[string]string{"AddAfterTies": "keys due at the same time come in any order"},
//	}.Run(t)
//
// # How it tries
//
// Most cases are scripts in the virtual time of testing/synctest, once on the bubble's clock and once on a fake
// one. The queue must be built by New alone, so that all of it is in the bubble.
//
// The cases named Model make random calls on the queue and on an obvious slow one, and shrink what differs to
// the shortest sequence of calls that does; see [pgregory.net/rapid] for its flags. It leaves a file in
// testdata/rapid with which the next run begins.
//
// The cases named Linearizable record what several goroutines saw, and look for an order of the calls that
// explains it.
//
// The cases named Stress look for races in real time, best with the race detector. The environment variable
// WORKQUEUE_STRESS is how long they take together, like 1m; WORKQUEUE_SEED is the seed of what they draw.
//
// A case that fails does not keep the others from being tried, also if the queue panics or blocks for ever. What
// it has started cannot be ended then, and stays until the process ends.
package workqueuetest
