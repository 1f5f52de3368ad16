package workqueuetest

import (
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
)

// script is a case as a list of calls and of what must be seen:
//
//	add a b      Add of each
//	after a 5s   AddAfter
//	retry a 5s   AddRateLimited, with a limiter that returns 5s
//	hold a b     a worker gets these keys, which are the first in line
//	done a b     Done of each
//	take a b     these keys are queued, in this order and no others; a worker processes them
//	again a      take a or, with OneEntry, take nothing
//	pass 5s      time passes, and nothing comes until the last nanosecond
//	jump 5s      time passes at once, whatever comes meanwhile; if it is negative, the clock is set back
//	shutdown     ShutDown
//	end          a method that shuts down: the script is tried with each. Drains must wait as long as a key is queued or held
//
// After each of them the queue must look as the model does. In the end nothing is queued, also an hour later.
type script struct{ name, promise, steps string }

var scripts = []script{
	{"AddTwice", "Add of a queued key does nothing: it comes once, at its old place.",
		"add a b a c b a; take a b c"},
	{"AddWhileHeld", "A key that is added while a worker holds it comes again after Done, once, at the end of the line.",
		"add a; hold a; add a b a; done a; take b a"},
	// In client-go Done of a queued key queues it a second time (kubernetes/kubernetes#141079).
	{"DoneOfUnheldKey", "Done of a key that no worker holds changes nothing but the count of such calls.",
		"done b; add a; done a; hold a; done a a; add a; take a"},
	{"Stats", "Stats counts the keys that are queued and held, and the adds that changed something.",
		"add a b c a; hold a b; add b d b; done a; done b; take c d b"},

	{"GetAfterShutDown", "After ShutDown, Get hands out what is queued, and then reports shutdown without waiting.",
		"add a b c; hold a; add a; shutdown; hold b c; done a; take a; done b c"},
	{"AddAfterShutDown", "After shutdown Add does nothing, also not for a key that a worker holds.",
		"add a b; hold a; end; add c b a; take b; done a"},
	{"ShutDownEndsDrain", "ShutDown ends waiting drains, even if the queue was shut down before.",
		"add a b; hold a; end; end; shutdown; end; end; shutdown; end; done a; take b"},
	{"ShutDownDropsWaiting", "Every way to shut down drops the keys that wait for their time, and counts them.",
		"add a; hold a; after a 1s; after b 1s; after c 2s; after d 1h; end; pass 2h; after b 1s; after c 0s; done a"},
	// In client-go a drain waits for held keys only (kubernetes/kubernetes#141079), and one of several drains is woken.
	{"DrainWaitsForQueuedKeys", "A drain waits for queued keys, even if no worker holds any.",
		"add a b; end; hold a; done a; take b"},
	{"DrainWaitsForHeldKeys", "A drain waits for the keys that workers hold.",
		"add a b; hold a b; end; done b; done a"},
	{"DrainWaitsForKeysAddedWhileHeld", "A drain waits for the keys that Done queues again.",
		"add a; hold a; add a; end; done a; hold a; done a"},
	{"EveryDrainEnds", "When nothing is left, every drain returns.",
		"add a; hold a; end; end; end; done a"},

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
		"after b 2h; after a 1h; jump -1h; after c 1m; pass 1m; take c; jump -100h; pass 101h59m; take a; pass 1h; take b"},
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

	{"AddRateLimited", "AddRateLimited asks the limiter once, and adds the key after the delay that it returns.",
		"retry a 1s; retry b 1m; pass 1s; take a; pass 59s; take b"},
	{"AddRateLimitedWithoutDelay", "If the limiter returns zero or less, the key is queued at once.",
		"retry a 0s; retry b -1h; take a b"},
	{"AddRateLimitedAfterShutDown", "After shutdown AddRateLimited adds nothing.",
		"shutdown; retry a 0s; retry b 1s"},
}

func scriptCases() []testCase {
	var all []testCase
	for _, s := range scripts {
		all = append(all, bubbled(s.name, s.promise, s.try))
	}
	return all
}

func (s script) try(r *run) {
	limiter := &scriptedLimiter{}
	c := Config[string]{RateLimiter: limiter}
	var q fifo
	switch {
	case strings.Contains(s.steps, "retry"):
		q = capable[limiting](r, c)
	case strings.Contains(s.steps, "after"):
		q = capable[delaying](r, c)
	default:
		q = r.queue(c)
	}
	for i, e := range enders(q) {
		if i > 0 && !strings.Contains(s.steps, "end") {
			break
		}
		p := &scriptRun{modelRun: r.beside(r.queue(c), ""), limiter: limiter, ender: e}
		p.play(s.steps)
	}
}

// scriptRun plays a script on a queue beside its model.
type scriptRun struct {
	*modelRun
	limiter *scriptedLimiter
	ender   ender
	ends    []*call[error] // the calls of ender that wait
}

func (p *scriptRun) play(steps string) {
	for step := range strings.SplitSeq(steps, "; ") {
		p.when = strings.TrimPrefix(p.when+"; "+step, "; ")
		words := strings.Fields(step)
		p.step(words[0], words[1:])
		p.compare()
		if p.ender.drain && (p.model.queued != "" || p.model.held.len() > 0) {
			for _, c := range p.ends {
				c.mustBlock(p.when)
			}
		} else {
			p.wantEnded(nil)
		}
	}
	p.wantLen(p.q, p.when, 0)
	p.pass(time.Hour)
	p.wantLen(p.q, p.when+", an hour later", 0)
}

func (p *scriptRun) step(kind string, words []string) {
	switch kind {
	case "add":
		for _, key := range words {
			p.add(key)
		}
	case "after":
		p.addAfter(words[0], duration(words[1]))
	case "retry":
		d := duration(words[1])
		p.limiter.delays = []time.Duration{d}
		p.q.(limiting).AddRateLimited(words[0])
		if len(p.limiter.delays) != 0 && !p.model.down {
			p.Fatalf("%s: the limiter was not asked", p.when)
		}
		p.model.addAfter(words[0], p.clock.Now(), d)
	case "hold":
		p.hold(words)
	case "done":
		for _, key := range words {
			p.done(key)
		}
	case "again":
		if p.suite.OneEntry {
			words = nil
		}
		fallthrough
	case "take":
		p.hold(words)
		p.wantLen(p.q, p.when, 0)
		for _, key := range words {
			p.done(key)
		}
	case "pass":
		n := p.q.Len()
		p.pass(duration(words[0]) - 1)
		p.wantLen(p.q, p.when+" but for a nanosecond", n)
		p.pass(1)
	case "jump":
		d := duration(words[0])
		if d < 0 {
			p.needFakeClock()
		}
		p.pass(d)
	case "shutdown":
		p.q.ShutDown()
		p.model.shutDown()
		var want error
		if p.ender.name == "ShutDownContext" {
			want = workqueue.ErrShutDown
		}
		p.wantEnded(want)
	case "end":
		p.ends = append(p.ends, p.ender.start(p.run, p.q))
		p.model.shutDown()
	default:
		panic("no such step: " + kind)
	}
}

// hold lets a worker get keys.
func (p *scriptRun) hold(keys []string) {
	for _, want := range keys {
		if key := p.get(); key != want {
			p.Fatalf("%s: got key %s, want %s", p.when, key, want)
		}
	}
}

// wantEnded asserts that the calls that shut down have returned, with that error.
func (p *scriptRun) wantEnded(want error) {
	for _, c := range p.ends {
		if err := c.mustReturn(p.when); err != want {
			p.Fatalf("%s: %s = %v, want %v", p.when, c.what, err, want)
		}
	}
	p.ends = nil
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}
