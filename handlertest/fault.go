package handlertest

// Fault is a kind of disturbance. Runs have all of them, except those that [Scenario.Without] excludes.
type Fault uint16

const (
	// Late lets some adds reach the queue later, and programs that [Scenario.Others] declares react later: keys
	// come in another order, and adds merge that would not have.
	Late Fault = 1 << iota
	// Again adds some keys once more after they were handed out: while they are held, or later.
	Again
	// Crash ends the process after a write, at a [Process.Point] or at the end of a call, and starts it anew:
	// with an empty memory and queue and a new listing. At the crash its contexts end, and nothing that still
	// runs, deferred calls included, gets past its next use of the world.
	Crash
	// Lag lets caches show changes later.
	Lag
	// Relist lets caches lose their watch for a while and list anew, so that they skip versions.
	Relist
	// Slow lets calls take longer.
	Slow
	// FailedCall lets calls of clients fail with ErrUnavailable before they take effect.
	FailedCall
	// LostAnswer lets writes take effect and then fail with ErrUnavailable, as after a timeout.
	LostAnswer
	// Conflict makes versioned writes of a process fail for a while: somebody has just written.
	Conflict
)

// failedCalls are the faults that make calls return errors.
const failedCalls = FailedCall | LostAnswer | Conflict

// faultOf has the Fault of each kind of disturbance in a schedule.
var faultOf = map[string]Fault{
	late: Late, again: Again, crashes: Crash, lag: Lag, relist: Relist, slow: Slow,
	fail: FailedCall, lost: LostAnswer, conflict: Conflict,
}
