// Package sharding divides the keys of a program's queues among its replicas, with Lease objects of the Kubernetes API
// server alone. All replicas work; each key is with one of them at a time; replicas come and go.
//
//	member, err := sharding.Join(ctx, sharding.Leases(client.CoordinationV1(), "my-system"), sharding.Config{Group: "website-controller"})
//	queue := sharding.NewQueue(inner, member, sharding.QueueConfig[string]{Keys: allKeys}) // allKeys lists the informer's cache
//	err = worker.Run(ctx, queue, reconcile, worker.Options[string]{Workers: 8})            // as always
//	err = member.Leave(context.WithoutCancel(ctx))                                         // hands over what it holds, now
//
// Every replica still watches all objects and adds all keys; its queue drops the keys of the others. So this is for
// sources that every replica can see and list. A change that only one replica hears of and no list contains, such as
// a webhook's, cannot be divided in this way: use package redisqueue.
//
// # What is promised
//
//   - A key is handed out by at most one replica at a time, while the replicas' clocks run at speeds that differ by less
//     than [Config].Margin makes up for. The context of a handler ends before another replica can get its key.
//   - No key is forgotten when its slot moves: see "Why no key is lost".
//   - After Leave a slot has a new holder as soon as its handlers have returned; after a join the new member has its
//     share within two seconds and the time of running handlers; after a kill the others take over within a lease and a second.
//   - Shares differ by at most one slot, and no slot moves without need.
//   - While the API server is away, members go on until their validity ends, then stop, and come back by themselves.
//   - Records of a newer format, of another number of slots, or of somebody else are errors ([ErrIncompatible]).
//
// What is not: a process that was stopped (SIGSTOP, a suspended machine) for longer than its lease goes on for a
// moment when it wakes up, before its contexts end. A handler for which that matters stores its [Epoch] beside what it
// writes. The same holds for handlers that ignore their contexts. And a person who deletes the table
// and a member's record within a lease, while that member is cut off from the server and another one joins, makes two groups.
//
// # How it works
//
// The hash of a key gives its slot, one of 256. Each member has a record, a Lease that it renews. One more Lease has the
// table: who holds each slot, and who is to hold it next. Every write is conditional on the version that was read,
// so the API server is the only arbiter. This is a slot's life:
//
//	                    plan: next = B                handlers of A have returned: A writes holder = B
//	held by A ─────────────────────────▶ to move ───────────────────────────────────────────────────▶ held by B
//	    │                                   │
//	    │ A does not renew its record       │
//	    ▼                                   ▼
//	after a lease somebody deletes A's record, on condition that it has not changed, and then writes holder = B
//
// The rules. TestSimulationFindsBrokenRules breaks them one at a time, and finds each but one: that validity also needs a
// recent read of the table is a second guard.
//
//   - A member is valid until a lease, less the margin, after the beginning of its last renewal that succeeded, by its own
//     monotonic clock. It must also have begun to read, within that time, a table of the id that its record names. An invalid
//     member hands out nothing, and its handlers' contexts end.
//   - Only the holder gives a slot away, and only when no handler of it runs. It stops to hold the slot before it tries to
//     write that, and holds it again only when a newer table says that it still does: a write that reported an error
//     may come into effect later. If the slot is to stay after all, the holder writes that newer table itself.
//   - Only if a member's record is gone may others give its slots away. A member takes another one for dead when that
//     one's record has not changed for a lease, by its own clock, and deletes the record on condition of that
//     version: it can then not be renewed any more. A record is created once, and a member is in no table before it has
//     one. A member that finds its record gone goes on as a new one, with a new id.
//   - That a watch does not show a member means nothing: it may lag behind the table that names the member. Only a read
//     that began after the table was read shows that a record is gone. If this member has not deleted it, somebody else
//     did, perhaps a person, and the slots stay where they are for another lease.
//   - A new table is filled only when a list, read after the table was there, has no member whose record names another
//     table, and when all members that were seen before and are not in that list have been gone for a lease. A member
//     names a table before it holds slots by it and reads it once more after that; it names another one only when none of
//     its handlers runs. Its record also has the greatest epoch that it knows, from which the new table goes on.
//
// All members compute the same plan. The first of them, in the order of their ids, writes it a fifth of a second after
// the group has changed; each of the others waits a moment longer, in case that it does not.
//
// # Why no key is lost
//
// The queue of a replica ignores an Add of a key whose slot is not here, and drops a queued key whose turn comes when its
// slot is not here. Whoever gets a slot first holds it, and then lists the source and adds the slot's keys, until a listing
// succeeds. A source shows a change in its listing before it adds the key, as an informer does. So:
//
//   - A change that is added before the new holder holds the slot is in its listing. One that is added later is queued.
//     It does not matter when the old holder heard of it, or whether it did.
//   - If the new holder's cache lags behind, the listing lacks the change, and the informer adds the key when it hears of
//     it, which is then after the slot is held.
//   - A slot that comes back to its old holder is listed again. Keys that were left in its queue are handled once more
//     than needed. A handler of the earlier time may still run if the member lost its lease: the queue below does not
//     hand out its key before it is Done.
//   - Keys that wait for their time are dropped when they come due. The new holder has listed them and handles them now; a
//     handler that wants to wait says so again.
//   - A key that is added while it is being handled is queued again by Done, and dropped. The new holder heard of the same
//     change.
//   - While a slot is about to move, its keys that come out of the queue are kept aside. If the slot stays, because a handler
//     does not return or the plan has changed, they are added again.
//   - A member that was invalid for a time dropped keys meanwhile, so it lists when it is valid again.
//   - A listing that fails halfway is used as far as it goes, and repeated.
//
// One kind of change no list has: that a thing was deleted. If it was deleted at the moment of the move, both replicas may
// drop its key. As always in controllers, which miss deletions when they restart, what must be cleaned up needs a
// finalizer, or an object of one's own that is listed too. QueueConfig.FinishQueued makes it rarer: then the old holder handles
// what it has queued of a slot before it hands it over. It does not help if the old holder hears of the deletion only after
// the handover, and the new one before.
//
// # Costs
//
// A group of n members makes 3n writes and 3n reads in a lease, n/5 a second each with the default of 15 seconds, and
// watches once each. A change of members costs one write for the plan and one for each member that hands over slots.
// A queue's Add costs about 8 ns more than that of the queue below, and a cycle of Add, Get and Done about 35 ns, without
// allocation. No goroutine runs for a queue, but while it lists.
package sharding
