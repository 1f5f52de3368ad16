package workqueuetest

import "time"

// notIfShared are the cases that are skipped for a queue with [Suite].Shared, with the reason why it cannot pass them.
// Those in sharedCases take their place.
var notIfShared = map[string]string{
	"GetAfterShutDown":                staysForOthers,
	"ShutDownEndsDrain":               staysForOthers,
	"ShutDownDropsWaiting":            staysForOthers,
	"ShutDownContextGivesUp":          staysForOthers,
	"DrainWaitsForQueuedKeys":         staysForOthers,
	"DrainWaitsForHeldKeys":           staysForOthers,
	"DrainWaitsForKeysAddedWhileHeld": staysForOthers,
	"EveryDrainEnds":                  staysForOthers,
	"AddAfterShutDownOfWaitingKey":    staysForOthers,
	"ModelWithShutDown":               staysForOthers,
	"ModelWithTies":                   staysForOthers + ", and keys that are due at once come in any order",
	"StressShutDown":                  staysForOthers,
	"StressDrain":                     staysForOthers,
	"NothingWaitsForWorkers":          staysForOthers,
	"LinearizableWithUnmatchedDone":   "a Done may come while the Get of its key is under way: the server has handed it out, and this process does not know yet",
	"AddAfterShutDown":                "what a handler adds after shutdown is for the other processes",
	"AddRateLimitedAfterShutDown":     "what a handler adds after shutdown is for the other processes",
	"FakeClock":                       "the clock is the server's",
	"NoTimerWhileIdle":                "the clock is the server's",
	"ClockJumpsBack":                  "the clock is the server's",
	"ClockJumpsForward":               "the clock is the server's",
	"AddAfterTies":                    "keys that are due at once come in any order",
	"IdleQueueIsGarbage":              "keys are on the server",
	"ProcessedKeysAreGarbage":         "keys are on the server",
	"MemoryIsGivenBack":               "keys are on the server",
}

const staysForOthers = "shutdown concerns this process alone: what is queued or waits is for the others"

// sharedCases are about what a shared queue does differently.
func sharedCases() []testCase {
	shared := func(try func(*run)) func(*run) {
		return func(r *run) {
			if !r.suite.Shared {
				r.skip("the queue is not shared")
			}
			try(r)
		}
	}
	return []testCase{
		bubbled("SharedShutDown", "After shutdown Get of a shared queue hands out nothing, and what is queued or waits stays.", shared(trySharedShutDown)),
		bubbled("SharedDrain", "A drain of a shared queue waits for the keys that are held, and not for those that are queued.", shared(trySharedDrain)),
		bubbled("SharedAddAfterShutDown", "What is added to a shared queue while workers finish is queued.", shared(trySharedAddAfterShutDown)),
	}
}

func trySharedShutDown(r *run) {
	r.eachEnder(func(q fifo, e ender) {
		q.Add("a")
		q.Add("b")
		if d, ok := q.(delaying); ok {
			d.AddAfter("c", time.Hour)
		}
		r.wantLen(q, "before "+e.name, 2)
		e.start(r, q).mustReturn("with nothing held")
		r.wantShutDown(q, "after "+e.name)
		r.wantLen(q, "after "+e.name, 2)
	})
}

func trySharedDrain(r *run) {
	r.eachEnder(func(q fifo, drain ender) {
		if !drain.drain {
			return
		}
		q.Add("a")
		q.Add("b")
		q.Add("c")
		r.hold(q, "a", "b")
		first, second := drain.start(r, q), drain.start(r, q)
		first.mustBlock("with two keys held")
		q.Done("a")
		second.mustBlock("with a key held")
		q.Done("b")
		first.mustReturn("with a key queued")
		second.mustReturn("with a key queued")
		drain.start(r, q).mustReturn("when called again")
	})
}

func trySharedAddAfterShutDown(r *run) {
	q := r.queue(Config[string]{})
	q.Add("a")
	r.hold(q, "a")
	q.ShutDown()
	q.Add("a")
	q.Add("b")
	q.Done("a")
	r.pass(0)
	r.wantLen(q, "after Done", 2)
	q.Add("c")
	r.wantLen(q, "after an Add when everything is over", 2)
}
