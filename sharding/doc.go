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
// What is not: a process that was stopped (SIGSTOP) for longer than two thirds of its lease goes on for a moment when it wakes
// up, before its contexts end; after a suspension of the machine that is a sixtieth of a lease. A handler for which that matters
// stores its [Epoch] beside what it writes. The same holds for handlers that ignore their contexts, if their member is taken for
// dead, or was out of touch for a lease and its record had lost its label. And a group of which all records are gone, or have
// lost their labels, looks new to whoever joins, while its members that are cut off go on until their validity ends. So
// does, after a restore, one that had been cut off for a lease before, until its successor reads the table; and epochs may go
// back until then.
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
// The rules. TestSimulationFindsBrokenRules breaks them one at a time.
//
//   - A member is valid until a lease, less the margin, after the beginning of its last renewal that succeeded. It must also have
//     begun to read, within that time, a table of the id that its record names. Validity ends when the monotonic clock or the
//     wall clock says so: the first cannot be set, and the second goes on while a machine is suspended. An invalid
//     member hands out nothing, and its handlers' contexts end.
//   - Only the holder gives a slot away, and only when no handler of it runs. It stops holding the slot before it tries to
//     write that, and holds it again only when a newer table says that it still does: a write that reported an error
//     may come into effect later, unless the server has refused it. If the slot is to stay after all, the holder writes that newer
//     table itself. If it can write none for a lease, it gives up its record.
//   - Only if a member's life has ended may others give its slots away. A member takes another one for dead when that
//     one's record has not changed for a lease, by its own clock. It renews its own record, which shows whether a backup was restored
//     meanwhile, reads that one once more, and marks it on condition of that version: it can then not be renewed any more, and everybody
//     sees why. Whoever was out of touch itself waits for a third of a lease more. A record is created once, and a member is in no table before it has one. A member that finds its record marked or gone,
//     or about to be deleted, goes on as a new one, with a new id.
//   - That a watch or a list does not show a record means nothing, unless the record had a mark: they may lag behind the table that names
//     the member, or the record has lost its label. Only a read that began after the table was read shows that such a record is gone.
//     Then somebody deleted it, perhaps a person, and the slots stay where they are for another lease: that of the member, or the longest
//     that was known.
//   - Epochs grow with each write of the table, and that of a slot with each holder. A table that was read after another one and is older than
//     it, or contradicts it, or was in another Lease, or of which a member's record names a later epoch, has come back from a backup or a copy.
//     All that see it stop, and replace it by a new one with a new id.
//   - A member that has just joined, was taken for dead or was out of touch does not know the latest table. It lists all records, and gives nothing
//     away before each member of that list has renewed its record once more, or is dead: if a backup was restored, these notice it, or their
//     records show it.
//   - A server that does not answer may be restored from a backup. So a member that got no answer renews its own record before it takes a
//     slot of the dead. If that record has gone back, the member takes none for a lease.
//   - A member that renews its record and cannot use the table for a lease gives up: it marks its record as that of a dead one, and waits
//     until it can use the table.
//   - A new table is filled when no record in a list, read after the table was there, names another one, nor one of a known member that
//     has lost its label, and if there was an earlier one, not before a lease has passed. It then gets another id. A member names a
//     table before it holds slots by it, and reads it once more after that. The same write names the slots whose handlers still run: these stay with it. Its record also has the greatest epoch and the
//     longest lease that it knows, from which the new table goes on. A record that cannot be read, or is that of a member that cannot use the
//     new table, is waited for no longer than that.
//   - Members hand over slots one after the other, in the order of their ids, so that a slot is without a holder for only one write. Who leaves marks
//     its own record when no handler runs: then one write of another member moves all that several of them held. It deletes the record if the
//     table does not name it any more. Otherwise others do that later.
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
