package workqueuetest

// script is a case as a list of calls and of what must be seen:
//
//	add a b      Add of each
//	after a 5s   AddAfter
//	retry a 5s   AddRateLimited, with a limiter that returns 5s
//	fail a 5s least=1m max=2 terminal  Fail, with a limiter that returns 5s if it is asked; the words are
//	             fields of Failure
//	failures a 2 5s  Failures returns these
//	failing a=2 b=1  FailingKeys returns these, with these counts, and Stats.Failing as many
//	forget a     Forget, which the limiter must see
//	requeues a   NumRequeues, which the limiter answers
//	get          a worker gets the first key, if there is one
//	canceled     GetContext with a context that is done gets none
//	deadline 5s  GetContext gives up after that time, and not before; nothing is queued
//	hold a b     a worker gets these keys, which are the first in line
//	next a       a worker gets this key by Next
//	done a b     Done of each
//	onhold a b   PutOnHold of each
//	timed 2 5s 3s 4s  two times of work were counted, 5 s in all; LongestRunning and UnfinishedWork are these
//	finish 5     Done of a key that is held, if there is one: number 5 from 0, counted round and round
//	finish 5 3s max=2  fail of such a key, and then Done
//	take a b     these keys are queued, in this order and no others; a worker processes them
//	again a      take a or, with OneEntry, take nothing
//	wait 3       that many workers wait in Get, and as many in GetContext; each gets the first key that is
//	             left for it
//	pass 5s      time passes, and nothing comes until the last nanosecond
//	jump 5s      time passes at once, even if keys come due meanwhile; if it is negative, the clock is set back
//	sleep 5s     real time passes, but none on the clock of the queue
//	shutdown     ShutDown
//	end          a method that shuts down: the script is tried with each. Drains must wait as long as a key
//	             is left for them
//	endall       all of these methods
//	giveup       ShutDownContext with a context that is done
//	giveup 5s    ShutDownContext gives up after that time, and not before; a key is left for it
//	idle         the queue has no goroutine of its own
//	notimer      the queue has no timer
//	drop a b     DropQueued returns these keys
//	cause a why  AddCause with that reason; a third word makes it quiet
//	causes a why because  Causes has these reasons
//	again? a open  the channel of AddedAgain is open, closed or none
//	find a queued  the queue shows that key in that state, or none
//	added a 5s   AddedAt of a key that a worker holds is that long ago; without a time it is not known
//	metrics depth=2 latency=1,3   the metrics have these values, or observed these times, and the others none
//	unnamed      the queue has no name, and therefore no metrics
//
// After each of them, and an hour after the last, the queue must look as the model does, and its limiter must
// have been asked for nothing else. What follows a | is played on another queue. Of several such parts, those
// are left out that need what the queue lacks.
type script struct{ name, promise, steps string }

var scripts = []script{
	{"AddTwice", "Add of a queued key does nothing: it comes once, at its old place.",
		"add a b a c b a; take a b c"},
	{"AddWhileHeld", "A key that is added while a worker holds it is queued again by Done, once.",
		"add a; hold a; add b a b; done a; take b a"},
	// In client-go Done of a queued key queues it a second time (kubernetes/kubernetes#141079).
	{"DoneOfUnheldKey", "Done of a key that no worker holds changes nothing but the count of such calls.",
		"done b; add a; done a; hold a; done a a; add a; take a"},
	{"Stats", "Stats counts the keys that are queued and held, and the adds that changed something.",
		"add a b c a; hold a b; add d b d; done a; done b; take c d b"},
	{"GetWaits", "Get waits while nothing is queued, also if workers hold keys that will be queued again.",
		"wait 1; add a; wait 1; add a; done a"},
	{"GetContextOfDoneContext", "GetContext with a context that is done takes no key.",
		"canceled; deadline 0s; add a b; canceled; deadline 0s; take a b"},
	{"GetContextGivesUp", "GetContext waits no longer than its context.",
		"deadline 1m; wait 1; deadline 1m; add a"},
	{"AddWakesGetters", "As many getters wake as there are keys for, however the adds are spread over time.",
		"wait 4; add a; add b; add c; add d | wait 4; add a b; add c d; add e f | wait 4; add a b c d e f g"},

	{"NothingWaitsForWorkers", "No method but Get and the drains waits for the work of other goroutines.",
		"add a; hold a; wait 1; add a; done b | add a; hold a; wait 1; end; add a; done b; done a; add a; " +
			"done b | add a; hold a; wait 1; canceled; end; canceled; done a; canceled | " +
			"add a; hold a; wait 1; after b 1h; end; after b 1h; done a; after b 1h | " +
			"add a; hold a; wait 1; retry b 1h; forget a; requeues a; end; retry b 1h; forget a; requeues a; " +
			"done a; retry b 1h; forget a; requeues a"},

	{"GetAfterShutDown",
		"After ShutDown, Get hands out what is queued, and then reports shutdown without waiting.",
		"add a b c; hold a; add a; shutdown; hold b c; done a; take a; done b c"},
	{"AddAfterShutDown", "After shutdown Add does nothing, also not for a key that a worker holds.",
		"add a b; hold a; end; add c b a; take b; done a"},
	{"ShutDownEndsDrain", "ShutDown ends waiting drains, even if the queue was shut down before.",
		"add a b; hold a; end; end; shutdown; end; end; shutdown; end; done a; take b"},
	{"ShutDownDropsWaiting", "Every way to shut down drops the keys that wait for their time, and counts them.",
		"add a; hold a; after a 1s; after b 1s; after c 2s; after d 1h; end; pass 2h; after b 1s; after c 0s; " +
			"done a"},
	{"ShutDownTwice",
		"Every method that shuts down may be called any number of times, by any number of callers, in any order.",
		"add a; take a; end; end; endall; endall"},
	{"ShutDownWakesGetters", "A shutdown wakes every getter that waits for a key.",
		"wait 5; end"},
	// In client-go a drain waits for held keys only (kubernetes/kubernetes#141079), and one of several drains is
	// woken.
	{"DrainWaitsForQueuedKeys", "A drain waits for queued keys, even if no worker holds any.",
		"add a b; end; hold a; done a; take b"},
	{"DrainWaitsForHeldKeys", "A drain waits for the keys that workers hold.",
		"add a b; hold a b; end; done b; done a"},
	{"DrainWaitsForKeysAddedWhileHeld", "A drain waits for the keys that Done queues again.",
		"add a; hold a; add a; end; done a; hold a; done a"},
	{"ShutDownContextGivesUp",
		"ShutDownContext waits no longer than its context, and may be called again to wait on.",
		"add a; hold a; add a; giveup; add b; end; giveup 1m; giveup 1m; giveup 1m; done a; take a; giveup"},
	{"EveryDrainEnds", "When nothing is left, every drain returns.",
		"add a; hold a; end; end; end; done a"},

	{"DropQueued",
		"After shutdown DropQueued takes back what is queued, in its order, and nothing is queued any more. " +
			"Before, it does nothing.",
		"add a b c; drop; hold a; add a d; shutdown; drop b c d; done a; drop | " +
			"add a b; hold a; end; drop b; done a | add a; end; drop a; drop | " +
			"add a b; hold a; add a; onhold a; end; drop b; done a"},

	{"Next", "Next hands out the first key with when it was added and whether it has causes.",
		"add a b; cause c why; pass 1s; next a; next b; next c; done a b c; after a 1s; pass 1s; next a; done a"},
	{"NextOfAFailingKey", "Next knows how often the key has failed, also if an event brings it early.",
		"add a; next a; fail a 1m; done a; add a; next a; failures a 1 1m0s; done a"},
	{"Causes", "Causes come from the adds that a hand-out answers.",
		"cause a one; cause a two; hold a; causes a one two; cause a three; causes a one two; done a; hold a; " +
			"causes a three; done a; causes a"},
	{"AddedAgain", "The channel of AddedAgain is closed by an add of a held key that is not quiet.",
		"again? a none; add a; again? a none; hold a; again? a open; cause a news quietly; again? a open; " +
			"add a; again? a closed; done a; hold a; again? a open; add a; done a; hold a; again? a open; done a; " +
			"again? a none"},
	{"SnapshotsOfKeys", "Snapshot, SnapshotKey and SnapshotKeys show each key in its state.",
		"find a none; add a b; find a queued; hold a b; find a processing; done b; find b none; done a | " +
			"after a 1m; find a waiting; pass 1m; find a queued; take a; find a none"},

	{"PutOnHold",
		"A key on hold stays with its worker until Done. Stats counts it, and does not count it as added again. " +
			"PutOnHold of any other key does nothing.",
		"onhold a; add a b; onhold a; hold a; onhold a a; add a; hold b; add b; done b; done a; take b a; " +
			"add a; hold a; onhold a; add a; done a; hold a; onhold a; end; done a"},
	{"SnapshotsOfAKeyOnHold", "The lists of Snapshot leave out keys on hold, and SnapshotKey shows them.",
		"add a b; hold a b; onhold a; find a processing; find b processing; done a; add a; " +
			"hold a; find a processing; done a b"},
	{"WorkOfAKeyOnHold",
		"Work on a key ends when it is put on hold: neither the times of work nor those of unfinished work grow.",
		"timed 0 0s 0s 0s; add a b; hold a b; pass 1s; timed 0 0s 1s 2s; onhold a; timed 1 1s 1s 1s; " +
			"pass 10m; add a; timed 1 1s 10m1s 10m1s; done b; timed 2 10m2s 0s 0s; pass 1m; done a; " +
			"timed 2 10m2s 0s 0s; hold a; pass 2s; done a; timed 3 10m4s 0s 0s"},

	{"AddAfter", "AddAfter adds a key when the delay has passed, and not before.",
		"after a 5s; pass 5s; take a"},
	{"NeverEarly", "No key comes a nanosecond before its time or after it, for any delay.",
		"after a 1ns; pass 1ns; take a; after a 1us; pass 1us; take a; after a 1s; jump 333ms; jump 333ms; " +
			"pass 334ms; take a; after a 9.999999999s; jump 3s; jump 3s; pass 3.999999999s; take a; after a 10s; " +
			"jump 3s; jump 3s; pass 4s; take a; after a 10.000000001s; jump 3s; jump 3s; pass 4.000000001s; " +
			"take a; after a 1h; jump 20m; jump 20m; pass 20m; take a; after a 100h; jump 33h; jump 33h; pass 34h; " +
			"take a"},
	{"FakeClock", "Nothing happens until the fake clock is stepped, and nothing needs real time.",
		"after a 1s; sleep 100h; pass 1s; take a"},
	{"AddAfterWithoutDelay", "AddAfter with a delay that is not positive is Add.",
		"after b 0s; after a -1s; after c -1h; take b a c"},
	{"AddAfterEarlier", "Of several times for one key the earliest wins, also if it is asked for last.",
		"after a 10s; pass 1s; after a 3s; pass 3s; take a"},
	{"AddAfterLater", "Of several times for one key the earliest wins, also if it is asked for first.",
		"after a 3s; pass 1s; after a 60s; pass 2s; take a"},
	{"AddAfterSame", "A key waits once, however often it is added, and may wait again after it has come.",
		"after a 3s; after a 3s; after a 3s; pass 3s; take a; after a 3s; pass 3s; take a"},
	{"AddAfterNewFirst", "A key that is due before all waiting keys comes in time.",
		"after d 9s; pass 1s; after c 3s; pass 1s; after b 1s; pass 1s; take b; pass 1s; take c; after d 1s; " +
			"pass 1s; take d"},
	{"AddAfterOrder", "Keys that come due together come in the order of their times.",
		"after c 30s; after a 10s; after d 31s; after b 20s; after e 90s; jump 60s; take a b c d; pass 30s; " +
			"take e"},
	{"AddAfterTies", "Keys that are due at the same time come in the order of their adds.",
		"after d 5s; after b 5s; after a 5s; after c 5s; after f 5s; after e 5s; pass 5s; take d b a c f e"},
	{"ClockJumpsForward",
		"When the clock is set forward, the keys whose times have passed come at once, in order.",
		"after c 1h; after a 1m; after b 2m; jump 100h; take a b c; after d 1h; pass 1h; take d"},
	{"ClockJumpsBack", "When the clock is set back, keys come when it reads their times again.",
		"after b 2h; after a 1h; jump -1h; after c 1m; pass 1m; take c; jump -100h; pass 101h59m; take a; " +
			"pass 1h; take b"},
	{"AddOfWaitingKey",
		"An Add of a waiting key queues it now and leaves it waiting (or, if so declared, cancels the delay).",
		"after a 5s; pass 1s; add a; take a; pass 4s; again a"},
	{"AddAfterNothingOfWaitingKey", "AddAfter without a delay does to a waiting key what Add does.",
		"after a 5s; pass 1s; after a 0s; take a; pass 4s; again a"},
	{"AddAfterOfQueuedKey",
		"AddAfter of a queued key leaves it queued, and it is queued again at its time (or, if so declared, not " +
			"again).",
		"add a; after a 5s; pass 1s; take a; pass 4s; again a"},
	{"AddAfterOfKeyToComeAgain",
		"A key that was added while a worker holds it, and then with a delay, is queued by Done, and at " +
			"its time (or, if so declared, not a third time).",
		"add a; hold a; add a; after a 5s; pass 1s; done a; take a; pass 4s; again a"},
	{"AddOfHeldWaitingKey",
		"An Add of a key that a worker holds, and that waits, lets it come after Done (and, unless otherwise " +
			"declared, again at its time).",
		"add a; hold a; after a 5s; add a; pass 1s; done a; take a; pass 4s; again a"},
	{"DueWhileHeld", "A key that comes due while a worker holds it is queued again by Done.",
		"add a; hold a; after a 2s; pass 5s; done a; take a"},
	{"DueWhileQueued", "A key that comes due while it is queued comes once, at its old place.",
		"add b; after a 1s; after b 2s; after c 3s; jump 5s; take b a c"},
	{"AddAfterShutDownOfWaitingKey", "After shutdown no key comes, not even a waiting one.",
		"after a 5s; pass 1s; shutdown; after b 1s; after c 0s"},

	{"AddRateLimited", "AddRateLimited asks the limiter once, and adds the key after the delay that it returns.",
		"retry a 1s; retry b 1m; pass 1s; take a; pass 59s; take b"},
	{"AddRateLimitedWithoutDelay", "If the limiter returns zero or less, the key is queued at once.",
		"retry a 0s; retry b -1h; take a b"},
	{"AddRateLimitedAfterShutDown", "After shutdown AddRateLimited adds nothing.",
		"shutdown; retry a 0s; retry b 1s"},
	{"AddRateLimitedOfWaitingKey",
		"AddRateLimited of a waiting key asks the limiter again (unless declared otherwise), and the earliest " +
			"time wins.",
		"retry a 5s; retry a 2s; retry a 1m; pass 2s; pass 3s; take a"},
	{"Fail",
		"Fail counts a failure, asks the limiter, and makes the key come after the longer of its delay and " +
			"AtLeast.",
		"add a; failures a 0 0s; hold a; fail a 5s; failures a 1 5s; done a; pass 5s; failures a 1 0s; hold a; " +
			"fail a 5s least=1m; failures a 2 1m0s; done a; pass 1m; hold a; fail a 1m least=-1h; " +
			"failures a 3 1m0s; forget a; failures a 0 0s; done a; pass 1m; take a"},
	{"FailWithinDelay",
		"A call that fails before the delay of the failure before it is over is the same failure, due at the " +
			"same time, or later with AtLeast.",
		"add a; hold a; fail a 1m; done a; pass 10s; add a; hold a; jump 20s; fail a 5s max=1; " +
			"failures a 1 30s; done a; pass 30s; hold a; fail a 1m; done a; take | " +
			"add a; hold a; fail a 1m; done a; add a; hold a; fail a 5s least=2m; failures a 1 2m0s; done a; " +
			"pass 1m; take; pass 1m; take a"},
	{"FailGivesUp",
		"Fail gives a key up when MaxRetries are used up, also by the same failure, and at once if they are " +
			"less than zero or it is terminal. Then its failures are forgotten, and the retry that waits for the " +
			"end of its delay does not come. If others have added the key for later as well, it comes when the " +
			"first of the delays ends.",
		"add a; hold a; fail a 1s max=1; done a; pass 1s; hold a; fail a 1s max=1; failures a 0 0s; done a; " +
			"add a; hold a; fail a 1s max=-1; done a; " +
			"add a; hold a; fail a 1s; done a; pass 1s; hold a; fail a 1m; done a; add a; hold a; " +
			"fail a 1m max=1; failures a 0 0s; done a; add a; hold a; fail a 1m; done a; add a; hold a; " +
			"fail a 1m terminal; failures a 0 0s; done a; pass 2m | " +
			"add a; hold a; fail a 1m; done a; after a 30s; add a; hold a; fail a 1m terminal; done a; " +
			"pass 30s; again a; pass 1m | " +
			"add a; hold a; fail a 1m; done a; after a 9m; add a; hold a; fail a 1m terminal; done a; jump 1m; " +
			"again a | " +
			"add a; hold a; after a 9m; fail a 1m; done a; add a; hold a; fail a 1m terminal; done a; jump 1m; " +
			"again a"},
	{"RetryDueWhileHeld",
		"If an event brings a failing key early, and its retry comes due during that call, then the retry does " +
			"not outlive the call's failure: the new delay counts, or the key is given up. Any other add counts. " +
			"After a success the retry comes. The same holds for the retry of a call that fails twice.",
		"add a; hold a; fail a 10s; done a; add a; hold a; pass 10s; fail a 1m; done a; pass 1m; take a | " +
			"add a; hold a; fail a 10s; done a; add a; hold a; pass 10s; fail a 1m max=1; failures a 0 0s; done a; " +
			"pass 2m; add a; take a | " +
			"add a; hold a; fail a 10s; done a; add a; hold a; pass 10s; fail a 1m terminal; done a | " +
			"add a; hold a; fail a 10s; done a; add a; hold a; pass 10s; add a; fail a 1m; done a; take a; pass 1m; " +
			"again a | add a; hold a; fail a 10s; done a; add a; hold a; pass 5s; add a; pass 5s; " +
			"fail a 1m terminal; done a; take a | " +
			"add a; hold a; fail a 10s; done a; add a; hold a; pass 10s; forget a; done a; again a | " +
			"add a; hold a; fail a 10s; after a 20s; done a; add a; hold a; pass 10s; fail a 1m terminal; done a; " +
			"again a; pass 1m | " +
			"add a; hold a; fail a 10s; done a; add a; hold a; again? a open; pass 10s; again? a open; onhold a; " +
			"fail a 1m; done a; pass 1m; take a | " +
			"add a; hold a; fail a 10s; done a; add a; hold a; pass 10s; cause a news quietly; fail a 1m; done a; " +
			"take a; pass 1m; again a | " +
			"add a; hold a; fail a 1s; fail a 5s least=10s; failures a 1 10s; done a; pass 1s; take; pass 9s; " +
			"take a | " +
			"add a; hold a; fail a 1s; fail a 5s terminal; failures a 0 0s; done a; pass 1m; take | " +
			"add a; hold a; fail a 1s; pass 1s; fail a 5s; failures a 2 5s; done a; take; pass 5s; take a | " +
			"add a; hold a; fail a 1s; pass 1s; fail a 5s terminal; failures a 0 0s; done a; take | " +
			"add a; hold a; fail a 1s; add a; fail a 5s least=10s; done a; take a"},
	{"FailingKeys",
		"FailingKeys and Stats have the keys whose failures are counted, those with the most first, until they " +
			"are forgotten or given up.",
		"add a b c; failing; hold a b c; fail a 4s; failing a=1; fail b 5s; done a b c; jump 5s; hold a b; " +
			"fail b 5s; failing b=2 a=1; forget a; failing b=2; done a b; jump 5s; hold b; failing b=2; " +
			"fail b 1s terminal; failing; done b"},
	{"FailAfterShutDown", "After shutdown Fail counts, and adds nothing.",
		"add a; hold a; shutdown; fail a 1s; failures a 1 1s; done a"},
	{"Forget", "Forget and NumRequeues call the limiter, and no other method but AddRateLimited does.",
		"forget a; requeues b; add c; after d 1s; after e 0s; take c e; pass 1s; take d; shutdown"},

	// The times are multiples of 500 ms, which is how often unfinished and longest are set.
	{"Metrics",
		"The metrics show how many keys are queued, how many were added, and how long each waited and was held.",
		"add a; pass 1s; add a b; metrics depth=2 adds=2; pass 1s; hold a; metrics depth=1 adds=2 latency=2; " +
			"pass 1s; add a a; metrics depth=2 adds=3 latency=2 unfinished=1 longest=1; hold b; pass 2s; done a; " +
			"metrics depth=1 adds=3 latency=2,2 work=3 unfinished=5 longest=3; pass 1s; hold a; done b a; pass 1s; " +
			"metrics adds=3 latency=2,2,3 work=3,3,0"},
	{"MetricsOfAKeyOnHold", "The metrics of work leave out the time for which a key is on hold.",
		"add a b; hold a b; pass 1s; onhold a; pass 1s; " +
			"metrics adds=2 latency=0,0 work=1 unfinished=2 longest=2; " +
			"done a; pass 1s; done b; pass 1s; metrics adds=2 latency=0,0 work=1,3"},
	{"MetricsOfDelays", "A call of AddAfter counts as a retry. The key's latency begins when it comes due.",
		"after a 1s; after a 2s; after b 0s; after c -1ns; metrics retries=4 adds=2 depth=2; pass 1s; pass 1s; " +
			"take b c a; metrics retries=4 adds=3 latency=2,2,1 work=0,0,0; " +
			"shutdown; after d 0s; after d 1s; metrics retries=4 adds=3 latency=2,2,1 work=0,0,0"},
	{"MetricsAfterShutDown", "When the last key is done after a shutdown, the gauges are zero.",
		"add a b; hold a b; pass 2s; end; done a b; metrics adds=2 latency=0,0 work=2,2"},
	{"MetricsOfUnnamedQueue", "A queue without a name has no metrics.",
		"add a; take a; unnamed"},

	{"AddedAt",
		"AddedAt is when a key that a worker holds was first added, or came due, since it was handed out " +
			"before. It is zero for a key that no worker holds.",
		"added a; add a; pass 1s; add a b; added a; pass 1s; hold a; added a 2s; added b; add a; pass 1s; " +
			"add a; added a 3s; done a; added a; pass 1s; hold b a; added a 2s; added b 3s; done a b; added a"},
	{"AddedAtOfDelays", "For a key that had to wait for its time, AddedAt is when it came due.",
		"after a 2s; pass 2s; added a; pass 1s; hold a; after a 1s; added a 1s; pass 1s; pass 1s; added a 3s; " +
			"done a; hold a; added a 1s; done a"},
	{"AddedAtOfUnnamedQueue", "A queue without a name does not know AddedAt.",
		"unnamed; add a; pass 1s; hold a; added a; done a"},

	{"NoGoroutineWhileIdle", "A queue has a goroutine of its own only while a key waits for its time.",
		"idle; add a; take a; idle | idle; after a 0s; idle; take a; after a 1s; after b 1m; pass 1s; take a; " +
			"jump 1h; take b; idle; after a 1s; pass 1s; take a; idle"},
	{"NoTimerWhileIdle", "A queue has a timer only while a key waits for its time.",
		"notimer; after a 1s; pass 1s; take a; notimer; after a 1s; after b 1h; shutdown; notimer"},
	{"NoGoroutineAfterShutDown", "No goroutine of the queue is left when a method that shuts down returns.",
		"end; idle | metrics; end; idle | add a; hold a; end; idle; done a; idle | after a 2h; end; idle | " +
			"add a; hold a; after b 2h; end; idle; done a; idle"},

	{"SharedShutDown",
		"After shutdown Get of a shared queue hands out nothing, and what is queued or waits stays.",
		"add a b; end | add a b; after c 9h; end"},
	{"SharedDrain",
		"A drain of a shared queue waits for the keys that are held, and not for those that are queued.",
		"add a b c; hold a b; end; end; done a; done b; end"},
	{"SharedAddAfterShutDown", "What is added to a shared queue while workers finish is queued.",
		"add a; hold a; shutdown; add a b; done a; add c"},
}
