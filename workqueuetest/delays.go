package workqueuetest

import (
	"fmt"
	"strings"
	"testing/synctest"
	"time"
)

// script is a case of AddAfter, as a list of calls and of what must be seen:
//
//	add a        Add
//	after a 5s   AddAfter
//	hold a       a worker gets a, which is the first in line
//	done a       Done
//	take a b     these keys are queued, in this order and no others; a worker processes them
//	again a      take a or, with OneEntry, take nothing
//	pass 5s      time passes, and nothing comes until the last nanosecond
//	jump 5s      time passes at once, whatever comes meanwhile; if it is negative, the clock is set back
//	shutdown     ShutDown
//
// In the end nothing is queued, also an hour later.
type script struct{ name, promise, steps string }

var scripts = []script{
	{"AddAfter", "AddAfter adds a key when the delay has passed, and not before.",
		"after a 5s; pass 5s; take a"},
	{"AddAfterWithoutDelay", "AddAfter with a delay that is not positive is Add.",
		"after b 0s; after a -1s; after c -1h; take b a c"},
	{"AddAfterEarlier", "Of several times for one key the earliest wins, also if it is asked for last.",
		"after a 10s; pass 1s; after a 3s; pass 3s; take a"},
	{"AddAfterLater", "Of several times for one key the earliest wins, also if it is asked for first.",
		"after a 3s; pass 1s; after a 60s; pass 2s; take a"},
	{"AddAfterSame", "A key waits once, however often it is added, and may wait again after it has come.",
		"after a 3s; after a 3s; after a 3s; pass 3s; take a; after a 3s; pass 3s; take a"},
	{"AddAfterNewFirst", "A key that is due before all waiting keys comes in time.",
		"after d 9s; pass 1s; after c 3s; pass 1s; after b 1s; pass 1s; take b; pass 1s; take c; after d 1s; pass 1s; take d"},
	{"AddAfterOrder", "Keys that come due together come in the order of their times.",
		"after c 30s; after a 10s; after d 31s; after b 20s; after e 90s; jump 60s; take a b c d; pass 30s; take e"},
	{"AddAfterTies", "Keys that are due at the same time come in the order of their adds.",
		"after d 5s; after b 5s; after a 5s; after c 5s; after f 5s; after e 5s; pass 5s; take d b a c f e"},
	{"ClockJumpsForward", "When the clock is set forward, the keys whose times have passed come at once, in order.",
		"after c 1h; after a 1m; after b 2m; jump 100h; take a b c; after d 1h; pass 1h; take d"},
	{"ClockJumpsBack", "When the clock is set back, keys come when it reads their times again.",
		"after b 2h; after a 1h; jump -1h; after now 1m; pass 1m; take now; jump -100h; pass 101h59m; take a; pass 1h; take b"},
	{"AddOfWaitingKey", "An Add of a waiting key queues it now and leaves it waiting (or, if so declared, cancels the delay).",
		"after a 5s; pass 1s; add a; take a; pass 4s; again a"},
	{"AddAfterNothingOfWaitingKey", "AddAfter without a delay does to a waiting key what Add does.",
		"after a 5s; pass 1s; after a 0s; take a; pass 4s; again a"},
	{"AddAfterOfQueuedKey", "AddAfter of a queued key leaves it queued, and it comes again at its time (or, if so declared, not again).",
		"add a; after a 5s; pass 1s; take a; pass 4s; again a"},
	{"AddAfterOfKeyToComeAgain", "A key that was added while a worker holds it, and then with a delay, comes again after Done, and at its time (or, if so declared, not a third time).",
		"add a; hold a; add a; after a 5s; pass 1s; done a; take a; pass 4s; again a"},
	{"AddOfHeldWaitingKey", "An Add of a key that a worker holds, and that waits, lets it come after Done (and, unless otherwise declared, again at its time).",
		"add a; hold a; after a 5s; add a; pass 1s; done a; take a; pass 4s; again a"},
	{"DueWhileHeld", "A key that comes due while a worker holds it comes again after Done.",
		"add a; hold a; after a 2s; pass 5s; done a; take a"},
	{"DueWhileQueued", "A key that comes due while it is queued comes once, at its old place.",
		"add b; after a 1s; after b 2s; after c 3s; jump 5s; take b a c"},
	{"AddAfterShutDownOfWaitingKey", "After shutdown no key comes, also not one that was waiting.",
		"after a 5s; pass 1s; shutdown; after b 1s; after c 0s"},
}

func scriptCases() []testCase {
	var all []testCase
	for _, s := range scripts {
		all = append(all, bubbled(s.name, s.promise, s.try))
	}
	return all
}

func (s script) try(r *run) {
	q := capable[delaying](r, Config[string]{})
	var done []string
	for step := range strings.SplitSeq(s.steps, "; ") {
		done = append(done, step)
		when := strings.Join(done, "; ")
		words := strings.Fields(step)
		keys := words[1:]
		switch words[0] {
		case "add":
			q.Add(keys[0])
		case "after":
			q.AddAfter(keys[0], duration(words[2]))
		case "hold":
			r.hold(q, keys...)
		case "done":
			q.Done(keys[0])
		case "again":
			if r.suite.OneEntry {
				keys = nil
			}
			fallthrough
		case "take":
			r.process(q, when, keys...)
		case "pass":
			n := q.Len()
			r.pass(duration(words[1]) - 1)
			r.wantLen(q, when+" but for a nanosecond", n)
			r.pass(1)
		case "jump":
			d := duration(words[1])
			if d < 0 {
				r.needFakeClock()
			}
			r.pass(d)
		case "shutdown":
			q.ShutDown()
		default:
			panic("no such step: " + step)
		}
	}
	r.wantLen(q, s.steps, 0)
	r.pass(time.Hour)
	r.wantLen(q, s.steps+", an hour later", 0)
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

// delayCases are the cases of AddAfter that are too long for a script.
func delayCases() []testCase {
	return []testCase{
		bubbled("NeverEarly", "No key comes a nanosecond before its time or after it, whatever the delay.", tryNeverEarly),
		bubbled("FakeClock", "Nothing happens until the fake clock is stepped, and nothing needs real time.", tryFakeClock),
		bubbled("ManyDelays", "Keys come in the order of their times, whatever the order of the adds.", tryManyDelays),
	}
}

func tryNeverEarly(r *run) {
	for _, d := range []time.Duration{
		1, time.Microsecond, time.Second, 10*time.Second - 1, 10 * time.Second, 10*time.Second + 1, time.Hour, 100 * time.Hour,
	} {
		q := capable[delaying](r, Config[string]{})
		q.AddAfter("a", d)
		for rest := d - 1; rest > 0; {
			step := min(rest, max(d/3, 1))
			r.pass(step)
			rest -= step
		}
		r.wantLen(q, fmt.Sprintf("a nanosecond before %v have passed", d), 0)
		r.pass(1)
		r.process(q, fmt.Sprintf("when %v have passed", d), "a")
		q.ShutDown()
	}
}

func tryManyDelays(r *run) {
	const n = 300
	q := capable[delaying](r, Config[string]{})
	order := r.rand(0).Perm(n)
	want := make([]string, n)
	for key, place := range order {
		// No two at the same time; AddAfterTies is about those.
		q.AddAfter(fmt.Sprint(key), time.Duration(place+1)*time.Second)
		want[place] = fmt.Sprint(key)
	}
	r.pass(100 * time.Second)
	r.process(q, "the first 100 come due at once", want[:100]...)
	for _, key := range want[100:110] {
		r.pass(time.Second)
		r.process(q, "one by one", key)
	}
	r.pass(time.Hour)
	r.process(q, "the rest comes due at once", want[110:]...)
}

func tryFakeClock(r *run) {
	r.needFakeClock()
	q := capable[delaying](r, Config[string]{})
	q.AddAfter("a", time.Second)
	synctest.Wait()
	time.Sleep(100 * time.Hour)
	synctest.Wait()
	r.wantLen(q, "100 hours later, with the clock not stepped", 0)
	r.pass(time.Second)
	r.process(q, "the clock is stepped", "a")
}
