package workqueuetest

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// script is a case of AddAfter: a list of steps, and the time line that must result.
//
// The steps are: "add key", "after key delay", "pass duration" (in seconds, looking at the queue just
// before and at each), "jump duration" (at once), "stop" and "go" (the worker stops and goes on taking
// keys), "keep" and "done key" (it keeps the keys from then on, until they are done), "shutdown".
//
// After every step the worker takes what is queued. Each time at which it got keys is an entry of the time line: the
// time since the start of the script, and the keys.
type script struct {
	name, promise string
	steps, want   string
	// wantOneEntry is the time line of a queue with OneEntry, if it differs.
	wantOneEntry string
}

var scripts = []script{
	{name: "AddAfter", promise: "AddAfter adds a key when the delay has passed, and not before.",
		steps: "after a 5s; pass 20s", want: "5s a"},
	{name: "AddAfterWithoutDelay", promise: "AddAfter with a delay that is not positive is Add.",
		steps: "after b 0s; after a -1s; after c -2562047h", want: "0s b; 0s a; 0s c"},
	{name: "AddAfterEarlier", promise: "Of several times for one key the earliest wins, also if it is asked for last.",
		steps: "after a 10s; pass 1s; after a 3s; pass 20s", want: "4s a"},
	{name: "AddAfterLater", promise: "Of several times for one key the earliest wins, also if it is asked for first.",
		steps: "after a 3s; pass 1s; after a 60s; pass 120s", want: "3s a"},
	{name: "AddAfterSame", promise: "A key waits once, however often it is added, and may wait again after it has come.",
		steps: "after a 3s; after a 3s; after a 3s; pass 5s; after a 3s; pass 5s", want: "3s a; 8s a"},
	{name: "AddAfterNewFirst", promise: "A key that is due before all waiting keys comes in time.",
		steps: "after d 9s; pass 1s; after c 3s; pass 1s; after b 1s; pass 10s; after d 9s; pass 1s; after d 1s; pass 9s",
		want:  "3s b; 4s c; 9s d; 14s d"},
	{name: "AddAfterOrder", promise: "Keys that come due together come in the order of their times.",
		steps: "after c 30s; after a 10s; after d 31s; after b 20s; after e 90s; jump 60s; pass 60s", want: "1m0s a b c d; 1m30s e"},
	{name: "AddAfterTies", promise: "Keys that are due at the same time come in the order of their adds.",
		steps: "after d 5s; after b 5s; after a 5s; after c 5s; after f 5s; after e 5s; pass 6s", want: "5s d b a c f e"},
	{name: "AddOfWaitingKey", promise: "An Add of a waiting key queues it now and leaves it waiting (or, if so declared, cancels the delay).",
		steps: "after a 5s; pass 1s; add a; pass 9s", want: "1s a; 5s a", wantOneEntry: "1s a"},
	{name: "AddAfterNothingOfWaitingKey", promise: "AddAfter without a delay does to a waiting key what Add does.",
		steps: "after a 5s; pass 1s; after a 0s; pass 9s", want: "1s a; 5s a", wantOneEntry: "1s a"},
	{name: "AddAfterOfQueuedKey", promise: "AddAfter of a queued key leaves it queued, and it comes again at its time (or, if so declared, not again).",
		steps: "stop; add a; after a 5s; pass 1s; go; pass 9s", want: "1s a; 5s a", wantOneEntry: "1s a"},
	{name: "AddAfterOfKeyToComeAgain", promise: "A key that was added while a worker holds it, and then with a delay, comes again after Done, and at its time (or, if so declared, not a third time).",
		steps: "keep; add a; add a; after a 5s; pass 1s; done a; pass 5s; done a; pass 9s", want: "0s a; 1s a; 6s a", wantOneEntry: "0s a; 1s a"},
	{name: "AddOfHeldWaitingKey", promise: "An Add of a key that a worker holds, and that waits, lets it come after Done (and, unless otherwise declared, again at its time).",
		steps: "keep; add a; after a 5s; add a; pass 1s; done a; pass 5s; done a; pass 9s", want: "0s a; 1s a; 6s a", wantOneEntry: "0s a; 1s a"},
	{name: "DueWhileHeld", promise: "A key that comes due while a worker holds it comes again after Done.",
		steps: "keep; add a; after a 2s; pass 5s; done a; pass 1s", want: "0s a; 5s a"},
	{name: "DueWhileQueued", promise: "A key that comes due while it is queued comes once, at its old place.",
		steps: "stop; add b; after a 1s; after b 2s; after c 3s; pass 5s; go; pass 9s", want: "5s b a c"},
	{name: "AddAfterShutDownOfWaitingKey", promise: "After shutdown no key comes, also not one that was waiting.",
		steps: "after a 5s; pass 1s; shutdown; after b 1s; after c 0s; pass 20s", want: ""},
}

func scriptCases() []testCase {
	var all []testCase
	for _, s := range scripts {
		all = append(all, bubbled(s.name, s.promise, s.try))
	}
	return all
}

func (s script) try(r *run) {
	play := &play{r: r, q: capable[delaying](r, Config[string]{}), taking: true, finishing: true}
	for step := range strings.SplitSeq(s.steps, "; ") {
		play.step(step)
	}
	want := s.want
	if r.suite.OneEntry && s.wantOneEntry != "" {
		want = s.wantOneEntry
	}
	if line := strings.Join(play.line, "; "); line != want {
		r.Fatalf("%q leads to %q, want %q", s.steps, line, want)
	}
}

// play is a script that is running.
type play struct {
	r         *run
	q         delaying
	now       time.Duration
	taking    bool
	finishing bool
	line      []string
}

func (p *play) step(step string) {
	word, rest, _ := strings.Cut(step, " ")
	key, arg, _ := strings.Cut(rest, " ")
	switch word {
	case "add":
		p.q.Add(key)
	case "after":
		p.q.AddAfter(key, duration(arg))
	case "pass":
		for range int(duration(key) / time.Second) {
			p.jump(time.Second - 1)
			p.jump(1)
		}
	case "jump":
		p.jump(duration(key))
	case "stop":
		p.taking = false
	case "go":
		p.taking = true
	case "keep":
		p.finishing = false
	case "done":
		p.q.Done(key)
	case "shutdown":
		p.q.ShutDown()
	default:
		panic("no such step: " + step)
	}
	p.take()
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

func (p *play) jump(d time.Duration) {
	p.r.pass(d)
	p.now += d
	p.take()
}

// take takes what is queued.
func (p *play) take() {
	p.r.pass(0)
	if !p.taking || p.q.Len() == 0 {
		return
	}
	entry := p.now.String()
	for p.q.Len() > 0 {
		g := p.r.startGet(p.q).mustReturn("with keys queued")
		entry += " " + g.key
		if p.finishing {
			p.q.Done(g.key)
		}
	}
	p.line = append(p.line, entry)
}

// delayCases are the cases of AddAfter that are too long for a script.
func delayCases() []testCase {
	return []testCase{
		bubbled("NeverEarly", "No key comes a nanosecond before its time or after it, whatever the delay.", tryNeverEarly),
		bubbled("AddAfterForEver", "A delay may be as long as the longest Duration, and other keys still come.", tryAddAfterForEver),
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

func tryAddAfterForEver(r *run) {
	q := capable[delaying](r, Config[string]{})
	q.AddAfter("never", math.MaxInt64)
	q.AddAfter("soon", math.MaxInt64)
	r.pass(time.Hour) // From now on the due times would overflow.
	q.AddAfter("neither", math.MaxInt64)
	q.AddAfter("almost never", math.MaxInt64-1)
	q.AddAfter("soon", time.Second)
	q.AddAfter("soon", math.MaxInt64)
	r.pass(time.Second)
	r.process(q, "a second after the delay of a second", "soon")
	r.pass(100 * time.Hour)
	r.wantLen(q, "100 hours later, with three keys that wait forever", 0)
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
