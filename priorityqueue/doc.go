// Package priorityqueue queues keys of things that have changed, as package workqueue does, and decides in
// one place when each of them comes: by priority, time, age, and what other keys of its group have had. It
// has the interfaces of package workqueue, [workqueue.ExtendedRateLimiting] and [operate.Operable]
// included, and four methods more: [Queue.AddWithOpts], [Queue.GetBatch], [Queue.ShutDownNow] and
// [Queue.GetWithPriority].
//
// # A key's life
//
// A key in the queue has one entry, and is queued, waiting or processing:
//
//	absent ──────add─────▶ queued ──Get──▶ processing ──Done──▶ absent
//	   │                     ▲ ▲                │ add
//	   │          its time ──┘ └──Done──┐       ▼
//	   └──add, later──▶ waiting ◀──Done── processing, to come again
//
// A key is held by at most one worker. A key that is added while a worker holds it is queued again once, at
// the worker's Done or at a time. When a call returns, what was added can be taken, and what is due can be
// seen. (Of many thousand keys that come due at once, each call queues a thousand, and the queue's goroutine
// the others.)
//
// # What an add means
//
// Adds of a key merge. The priority becomes the highest one (or, with SetPriority, the new one). A queued key
// whose priority rises goes to the end of that priority or, with Aging, stays where it is if it comes earlier
// there. [AddOpts].Delay decides how times are merged. Its default is [Config].Delay, whose default is
// Earliest:
//
//	the key is          Earliest     Latest     Replace
//	absent              new time     new time   new time
//	queued              queued       queued     queued
//	waiting             the earlier  the later  new time
//	processing          new time     new time   new time
//	  to come again     at once      at once    at once
//	  to come at a time: like a waiting key; once its time has come, like the row above
//
// where the new time is now if the add has no delay. What is asked for a key after its hand-out is for the
// next one.
//
// With [AddOpts].MaxDelay, Latest and Replace put off a key until MaxDelay after its first event at most: a
// debounce.
//
// # Failures
//
// The limiter is asked about a rate-limited add if its answer can matter: not for a key that is queued, nor
// for one that waits for the limiter already. For a key that a worker holds, the first rate-limited add since
// its hand-out counts as a call of [Queue.Fail]. What fails after it in the same hand-out, by such an add or
// by Fail, is the same failure: adds by others use up no retries.
//
// As in package workqueue, an event brings a failing key at once, and a call that fails before the delay has
// passed is the same failure: the limiter is not asked. The delay is the limiter's, or what After, AtLeast
// and MaxDelay make of it.
//
// Keys of a group come in any order after a failure, because the failed one waits. A handler that needs them
// in order makes the group the key.
//
// # Order
//
// Keys of higher priority come first, and keys of equal priority in the order in which they were added or
// came due. So a key that is added while a worker holds it has the place of that add. Only a key on hold
// takes its place when it is Done.
//
// With [Config].Aging a key gains one level of priority for each Aging that it has been in line. So there is
// a bound: a key of priority p is handed out before every key of priority P that is queued more than
// (P-p)·Aging after it. To lower a key's priority with SetPriority makes it come later. To raise it never
// does, except in a queue with both Aging and groups: see "Fairness".
//
// # Fairness
//
// With [Config].Group the keys of equal priority are served like people at one counter who come from several
// families. The families stand in a ring. The counter serves as many people of a family as its Weight says,
// in the order in which they came, and moves on to the next family. A family that comes anew stands behind
// the last one of the ring. So a family of a million delays another one's first member by one turn, not by
// a million. Each priority has a ring of its own, and groups do not share turns across priorities.
//
// With [Config].Limit no more keys of a group than that are processed at once. The other keys of a group at
// its limit are blocked: the group leaves the round, and comes back, as the last one, when one of its keys is
// Done. Blocked keys count as queued. After shutdown Get waits for them. [Queue.PauseGroup] blocks the keys
// of a group for a time, such as that for which a tenant's server asks, or until [Queue.ResumeGroup] or a
// shutdown. [Queue.Pause] stops all.
//
// In a queue with both Aging and Group, each priority is such a counter, and age decides which counter serves
// next: the one whose oldest key comes first by the rule of "Order", counted among keys that can be handed
// out. Which key comes there is decided by the ring, not by age. So the bound is a number of keys: in a queue
// of three groups of weight 1, whose highest priority is 5, a key of priority 0 may watch others come for
// 5·Aging. After that, each queued key that is still ahead of it by age and priority costs at most three
// hand-outs. In general, let P be the highest priority, n the number of keys, queued or added again while
// held, that are not behind a key of priority p by age and priority, and W the sum of the groups' weights.
// From (P-p)·Aging after that key was queued, at most n·W keys are handed out before it. Time for which its
// group is blocked does not count.
//
// To raise a key's priority in such a queue means to change counters: it gives up the turn of its group at
// the old one, and can come later, by n·W keys at most. A raise that is high enough always helps: if all
// other keys are behind it by age and priority, it comes next.
//
// # Costs
//
// Let n be the number of waiting keys, and l that of the priorities (with groups: of the pairs of priority
// and group) that have queued keys. Add, Get, Done and Remove take O(log l) at worst. If all priorities are
// equal, they take constant time, except with both Aging and groups. A delayed key takes O(log n) when it
// begins to wait and when it comes due. A call that blocks a group, or unblocks it, takes as many steps as
// the group has priorities with queued keys. Keys that were added while workers hold them, and stand before
// the first queued key of a line, are stepped over: once after each Done of such a key, and not for each key
// that is taken.
//
// No call holds the lock for more than a few thousand keys, a few milliseconds at a million: longer calls
// give it back in between.
//
// Once warm, no call for a single key allocates, except AddedAgain, adds with a Cause, and an add that starts
// the queue's only goroutine and timer, which it has while a key waits. Adds of many keys, batches, snapshots
// and ShutDown allocate slices of keys, and Stats the numbers of the priorities. After a burst the memory
// goes back to the collector. A cycle of Add, Get and Done takes up to twice that of package workqueue. A
// plain Get or Done reads the clock only with Aging, MinInterval or metrics, and while a key waits or a pause
// has an end. So does a plain Add, unless Config.MaxDelay bounds it.
//
// # Differences from package workqueue
//
//   - An add without delay of a waiting key queues it, and it does not come a second time. There, it comes
//     again when its time has come.
//   - Rate-limited adds merge, and the limiter may not be asked.
//   - The default limiter is [workqueue.NewTypedControllerRateLimiter].
//   - AddAfter and AddRateLimited of a key that a worker holds keep its priority.
//   - Config has no Queue: the order is fixed.
//   - Metrics are read, by a [workqueue.StatsProvider], and not pushed.
package priorityqueue
