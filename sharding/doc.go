// Package sharding divides the keys of a program's queues among its replicas, with Lease objects of the Kubernetes API
// server alone. All replicas work; each key is with one of them at a time; replicas come and go.
//
//	member, err := sharding.Join(ctx, sharding.Leases(client.CoordinationV1(), "my-system"), sharding.Config{Group: "website-controller"})
//	inner := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedControllerRateLimiter[string](nil)) // any in-memory queue
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
//     share within three seconds, plus 0.1 s for each other member and the time that running handlers take; after a kill the others take over within a
//     lease and a second.
//   - Shares differ by at most one slot, and no slot moves without need.
//   - While the API server is away, members go on until their validity ends, then stop, and come back by themselves.
//   - Records of a newer format, of another number of slots or another hash, or of somebody else are errors ([ErrIncompatible]).
//   - Edits of the records by hand, and a restored backup, leave slots without a holder for a lease. If other things fail in the same minutes, a slot
//     may have two holders for seconds: stop the members before you restore a backup.
//
// What is not promised:
//
//   - A process that was stopped (SIGSTOP) for longer than two thirds of its lease goes on for a moment when it wakes up, before its
//     contexts end. After a suspension of the machine that moment is a sixtieth of a lease.
//   - A handler that ignores its context may run beside that of the next holder, if its member is taken for dead, or was out of touch
//     for a lease and its record had lost its label.
//   - A group whose records are all gone, or have lost their labels, looks new to a member that joins. Its members that are cut off go on
//     until their validity ends.
//   - After a restore, a member that had been cut off for a lease before goes on until its successor reads the table. Epochs may go back
//     until then.
//
// A handler for which that matters stores its [Epoch] beside what it writes.
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
//	after a lease somebody marks A's record, on condition that it has not changed, and then writes holder = B
//
// TestSimulationFindsBrokenRules breaks the rules that follow one at a time.
//
// When a member is valid:
//
//   - Its last renewal that succeeded began less than a lease, less the margin, ago. Within that time it has also begun to read a table
//     of the id that its record names.
//   - Validity ends when the monotonic clock or the wall clock says so: the first cannot be set, and the second goes on while a machine
//     is suspended. An invalid member hands out nothing, and its handlers' contexts end.
//   - A record is created once, and a member is in no table before it has one. A member that finds its record marked, gone, or about to be
//     deleted goes on as a new one, with a new id.
//
// How a living member gives a slot away:
//
//   - Only the holder gives it away, and only when no handler of it runs.
//   - It stops holding the slot before it tries to write that, because a write that reported an error may come into effect later, unless
//     the server has refused it. It holds the slot again only when a newer table says that it still does. If the slot is to stay after all, the
//     holder writes that newer table itself.
//   - A member that does not know for a lease whether a handover was written gives up its record. So does one that renews its record and cannot use the table for
//     a lease: it marks its record as that of a dead one, and waits until it can use the table.
//   - Members hand over slots one after the other, in the order of their ids, so that a slot is without a holder for only one write.
//   - A member that leaves marks its record as soon as none of its handlers runs. So if several leave at once, one write moves the slots of
//     all. It deletes the record if the table does not name it any more. Otherwise others do that later.
//
// When others give its slots away:
//
//   - Only when the member's life has ended: its record has a mark, or has been gone for a lease.
//   - A member takes another one for dead when that one's record has not changed for a lease, by its own clock. If it has failed to renew
//     its own record or to read the table, it first gives the other one a third of that one's lease to renew, and if it was out of touch
//     for two thirds of a lease, or stopped, a whole one.
//   - It then renews its own record, which shows whether a backup was restored meanwhile, reads that of the other once more, and marks it
//     on condition of that version. A marked record can not be renewed any more, and everybody sees why.
//   - That a watch or a list does not show a record means nothing, unless the record had a mark: they may lag behind the table that names
//     the member, or the record has lost its label. Only a read that began after the table was read shows that such a record is gone.
//     Perhaps a person deleted it, so the slots stay where they are for another lease: that of the member, or the longest that was known.
//
// When the table has gone back in time:
//
//   - Epochs grow with each write of the table, and that of a slot with each holder. A table has come back from a backup or a copy if it was
//     read after another one and is older, if it contradicts that one, if it was in another Lease, or if a member's record names a later epoch.
//     All that see it stop, and replace it by a new one with a new id.
//   - A member that has just joined, was taken for dead or was out of touch does not know the latest table. It lists all records, and takes
//     no slots of the dead before each member of that list has renewed its record once more, or is dead: the renewal shows what that one knows.
//   - A server that does not answer may be restored from a backup. So a member that got no answer renews its own record before it takes a
//     slot of the dead. If that record has gone back, the member takes none for a lease.
//   - A backup may be older than all members that hold slots. So if a table that is not new says that nobody holds a slot, members that
//     have joined, and saw the outage, take none for a third of a lease: the holders try again to renew their records meanwhile, and find them
//     gone.
//
// How a new table is filled:
//
//   - Not before a lease has passed, if there was an earlier table.
//   - Not before a list of records, read after the new table was there, has none that names another table. Known members that the list
//     does not show, perhaps because their records have lost their labels, are read.
//   - A record that cannot be read, or is that of a member that cannot use the new table, is waited for no longer than a lease.
//   - The table then gets another id. A member names a table in its record before it holds slots by it, and reads the table once more
//     after that.
//   - The same write names the slots whose handlers still run: these stay with their member. A record also has the greatest epoch and the
//     longest lease that its member knows, from which the new table goes on.
//
// All members compute the same plan. The first of them, in the order of their ids, writes it a fifth of a second after the group
// has changed; each of the others waits a moment longer, in case that it does not. A member that has just joined gets slots after
// a second, and while a silent one of its name is there, not before that one is dead: its process may be one that dies
// again and again.
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
// finalizer, or an object of one's own that is listed too.
//
// # Costs
//
// A group of n members makes 3n writes and 3n reads in a lease, n/5 a second each with the default of 15 seconds, and
// watches once each. A change of members costs one write for the plan and one for each member that hands over slots.
// A queue's Add costs about 8 ns more than that of the queue below, and a cycle of Add, Get and Done about 35 ns, without
// allocation. No goroutine runs for a queue, but while it lists.
package sharding
