// Package redisqueue is a work queue for many processes: the queue of package workqueue, with its keys in
// Redis or Valkey. Any number of replicas add keys and work on them. Across all of them, each key is with one
// worker at a time. The keys of a replica that is killed go to others.
//
//	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}) // or a Sentinel or Cluster client
//	queue, err := redisqueue.New(ctx, client, redisqueue.Config[string]{Name: "orders"})
//	…
//	queue.Add("order/17")                   // from any replica; ten adds are one key
//	err = queue.AddContext(ctx, "order/17") // the same, but returns when Redis has it
//	err = worker.Run(ctx, queue, handle, worker.Options[string]{Workers: 16})
//
// It needs Redis 7.0 or newer with maxmemory-policy noeviction, which [New] checks. docs/replicas.md says
// when a shared queue is worth it, and how to run the server.
//
// # Leases
//
// A replica holds its keys under a lease ([Config].Lease), which it renews every third of it. While the lease
// lives, no other replica gets the keys. If the server hears nothing from the replica for a lease (it was
// killed or paused, or the network was down), the keys are handed out elsewhere, before all queued ones. The
// replica itself counts them as lost a twentieth of the lease before that (at least 100 ms), by its own
// monotonic clock: its handlers' contexts end with the cause [leasing.ErrLost]. The process does not get such
// a key again before its Done.
//
// Only the holder of a key may answer, by Fail, Forget, Succeed, Requeue and Done, which HandBack changes:
// after the lease has ended, none of these changes anything on the server, whether it is said late or arrives
// late. If Done is missing when the lease ends, but Fail, Succeed or Requeue has come, the key is released as
// that says: a key that has failed waits for its delay, one that was given up or has succeeded is not queued
// again. Adds count always.
//
// The server counts the leases of a key that end, because its handler may have ended the process. From the
// second one in a row the key waits before it is handed out again, and after [Config].MaxLostLeases it is
// given up: see [Queue.GivenUpKeys]. Each add of a given-up key, also while a dead replica holds it, is one
// more try. What a replica leaves behind that was shut down is handed out again as it was, and counts as
// nothing.
//
// A paused process cannot notice, and runs on for a moment when it continues; the monotonic clock of a
// suspended virtual machine may stand still. Guard what such a moment must not destroy with the [Fence] of
// the hand-out. A failover that loses a hand-out also gives the key to a second worker, until the first
// replica hears of it; fences then grow only if the servers' clocks agree.
//
// The server counts leases on a clock that moves at most half a lease from one call to the next, so that they
// survive a change of the server's time, and its outages. The price: if no replica calls for a while, a dead
// one's keys come up to a lease later; and if the time is set forward while a replica cannot call, its keys
// may come elsewhere up to half a lease before it notices.
//
// # What may be lost
//
// An add that AddContext or Flush has confirmed is lost only if the server loses it: up to a second of adds
// with appendfsync everysec, all since the last snapshot without an append-only file, and in a failover what
// had not reached the replica that took over. Redis's own settings bound that: see docs/replicas.md. Other
// adds are in a buffer of this process, which survives an outage of the server but not the end of the
// process.
//
// Keys are handled at least once: again if the lease was lost after the handler had finished, or if the
// server lost the Done.
//
// # Differences from a queue in memory
//
// Otherwise the contract of package workqueue holds, and workqueuetest checks it (Suite.Shared). What
// differs:
//
//   - Shutdown concerns this replica. Get hands out nothing afterwards, and keys that are queued or wait stay
//     for the others. Until the last held key is Done, what is added is accepted. Drains wait for the held
//     keys alone.
//   - Time is the server's, but never goes back: if its clock is set back, the queue's continues from where
//     it was; if it is set forward, delays end early. A fake clock does not drive the queue. Delays are
//     rounded up to microseconds; keys that are due at the same time come in any order.
//   - Keys become strings; see [Codec]. The string of 80 zero bytes is reserved.
//   - With several shards, order holds within each, and each has its part of the StartLimit.
//   - A key whose delay ends, or that a pause or the StartLimit has held back, may come up to a poll interval
//     late, if the replica that was to fetch it dies meanwhile.
//   - Failures are counted on the server, for all replicas and for MaxRetries of package worker, and expire
//     there, but not while the key is held. One that happens before the delay of the last one has passed, on
//     whichever replica, is the same. A lost lease is no failure.
//   - Priorities age, see [Queue.AddWithPriority], and OldestQueued is about the key that comes next.
//   - Pause, Resume, Remove, causes and what Snapshot shows are the whole queue's. AddedAgain hears of adds
//     of this replica at once, and of all others within a second.
//   - Len, Stats and NumRequeues return what the server has said last; [Admin.Counts] asks it. What is about
//     keys that are not held here asks it too, for up to a second.
//   - A key that arrives for a Get that has just given up may go to a later Get; if it was added meanwhile,
//     it may come once more.
//   - A key that cannot be decoded, perhaps from another version of the program, is given up: see [Codec].
//
// # Cost
//
// While one call of the server is under way, everything that a replica's callers want collects in one batch.
// A script executes it atomically and once, even if its reply is lost and it is sent again. So many callers
// share a round trip: with 64 goroutines a key costs about 0.025 calls. A queued key of 13 bytes takes about
// 200 bytes on the server. A call that finds a lot of work (a million due keys, ten thousand of a dead
// replica) does part of it and leaves the rest to the next.
//
// An idle queue has no goroutine, no timer and no call. While a Get waits, each shard has a blocking read, on
// a connection outside the client's pool, and a call every [Config].PollInterval, in case a wake-up is lost.
// Held keys cost a call every third of a lease.
package redisqueue
