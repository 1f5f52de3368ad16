package workqueuetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// step makes one call of a script on the queue and on the model, and compares what they return.
func (p *player) step(kind string, words []string) {
	switch kind {
	case "add":
		for _, key := range words {
			p.q.Add(key)
			p.model.add(key)
		}
	case "after":
		d := must(time.ParseDuration(words[1]))
		p.q.(delaying).AddAfter(words[0], d)
		p.model.addAfter(words[0], p.clock.Now(), d)
	case "retry":
		p.retry(words[0], must(time.ParseDuration(words[1])))
	case "fail":
		p.fail(words[0], must(time.ParseDuration(words[1])), words[2:])
	case "failures":
		f := p.q.(failing).Failures(words[0])
		if f.Count != must(strconv.Atoi(words[1])) || f.Left != must(time.ParseDuration(words[2])) {
			p.Fatalf("%s: Failures() = %+v", p.when, f)
		}
	case "failing":
		p.wantFailing(words)
	case "drop":
		p.drop(words)
	case "cause":
		cause := workqueue.Cause{Reason: words[1], Quiet: len(words) > 2}
		p.q.(extended).AddCause(words[0], cause)
		p.model.add(words[0])
	case "causes":
		if got := p.q.(extended).Causes(words[0]).String(); got != strings.Join(words[1:], "; ") {
			p.Fatalf("%s: Causes() = %q", p.when, got)
		}
	case "again?":
		p.wantAgain(words[0], words[1])
	case "find":
		p.find(words[0], words[1])
	case "forget":
		p.q.(limiting).Forget(words[0])
		delete(p.model.failures, words[0])
		p.asked = append(p.asked, "Forget "+words[0])
	case "requeues":
		if n := p.q.(limiting).NumRequeues(words[0]); n != limiterRequeues {
			p.Fatalf("%s: NumRequeues() = %d, and the limiter says %d", p.when, n, limiterRequeues)
		}
		p.asked = append(p.asked, "NumRequeues "+words[0])
	case "get":
		if p.model.queued != "" {
			p.hold(p.model.queued[:1])
		}
	case "canceled", "deadline":
		var key string
		err, want := p.giveUp(words, "GetContext", func(ctx context.Context) (err error) {
			key, err = p.q.(extended).GetContext(ctx)
			return err
		})
		if key != "" || err != want && !(p.model.down && err == workqueue.ErrShutDown) {
			p.Fatalf("%s: GetContext() = %q, %v, want no key and %v", p.when, key, err, want)
		}
	case "hold":
		p.hold(words...)
	case "next":
		p.next(words[0])
	case "done":
		p.done(words...)
	case "onhold":
		for _, key := range words {
			p.q.(extended).PutOnHold(key)
			p.model.putOnHold(key)
		}
	case "timed":
		p.wantTimes(must(strconv.Atoi(words[0])), words[1:])
	case "finish":
		if held := slices.Sorted(strings.SplitSeq(p.model.held, "")); p.model.held != "" {
			key := held[must(strconv.Atoi(words[0]))%len(held)]
			if len(words) > 1 {
				p.fail(key, must(time.ParseDuration(words[1])), words[2:])
			}
			p.done(key)
		}
	case "again":
		if p.suite.OneEntry {
			words = nil
		}
		fallthrough
	case "take":
		p.hold(words...)
		p.wantLen(p.q, p.when, 0)
		p.done(words...)
	case "wait":
		p.wait(must(strconv.Atoi(words[0])))
	case "pass":
		n := p.q.Len()
		p.pass(must(time.ParseDuration(words[0])) - 1)
		p.wantLen(p.q, p.when+" but for a nanosecond", n)
		p.pass(1)
	case "jump":
		d := must(time.ParseDuration(words[0]))
		if d < 0 {
			p.needFakeClock()
		}
		p.pass(d)
	case "sleep":
		p.needFakeClock()
		time.Sleep(must(time.ParseDuration(words[0])))
	case "shutdown":
		p.q.ShutDown()
		p.model.shutDown()
		var want error
		if p.ender.name == "ShutDownContext" {
			want = workqueue.ErrShutDown
		}
		p.wantEnded(want)
	case "end":
		p.end(p.ender)
	case "endall":
		for _, e := range enders(p.q) {
			p.end(e)
		}
	case "giveup":
		first := !p.model.down
		p.model.shutDown()
		err, want := p.giveUp(words, "ShutDownContext", p.q.(extended).ShutDownContext)
		if p.model.drained() && !(first && err == want) { // The first call may give up before it looks.
			want = nil
		}
		if err != want {
			p.Fatalf("%s: ShutDownContext() = %v, want %v", p.when, err, want)
		}
	case "idle":
		p.before.WantMore(p, p.when+", callers apart", len(p.ends)+len(p.getters))
	case "notimer":
		if p.needFakeClock().HasWaiters() {
			p.Fatalf("%s: the queue has a timer", p.when)
		}
	case "added":
		want := time.Time{}
		if len(words) > 1 {
			want = p.clock.Now().Add(-must(time.ParseDuration(words[1])))
		}
		if at := p.q.(workqueue.Extended[string]).AddedAt(words[0]); !at.Equal(want) {
			p.Fatalf("%s: AddedAt() = %v, want %v", p.when, at, want)
		}
	case "metrics":
		p.wantMetrics(words)
	case "unnamed":
		if made := p.metrics.Made(); len(made) > 0 {
			p.Fatalf("%s: metrics were made: %q", p.when, made)
		}
	default:
		panic("no such step: " + kind)
	}
}

// retry calls AddRateLimited. If the queue merges retries or is shut down, it need not ask the limiter.
func (p *player) retry(key string, d time.Duration) {
	p.limiter.delays = []time.Duration{d}
	p.q.(limiting).AddRateLimited(key)
	switch {
	case len(p.limiter.delays) == 0 || !p.model.down && !(p.suite.MergesRetries && p.model.waits(key)):
		p.asked = append(p.asked, "When "+key)
		p.model.addAfter(key, p.clock.Now(), d)
	case !p.model.down:
		p.model.stats.Retries++
	}
}

// fail calls Fail of a key that a worker holds. The words are "least=1m" for AtLeast, "max=2" for MaxRetries
// and "terminal".
func (p *player) fail(key string, d time.Duration, words []string) {
	f := workqueue.Failure{Err: errFailed}
	for _, word := range words {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "least":
			f.AtLeast = must(time.ParseDuration(value))
		case "max":
			f.MaxRetries = must(strconv.Atoi(value))
		case "terminal":
			f.Terminal = true
		default:
			panic("no such word: " + word)
		}
	}
	p.limiter.delays = []time.Duration{d}
	got, err := p.q.(failing).Fail(context.Background(), key, f)
	want := p.model.fail(key, p.clock.Now(), d, f)
	if got != want || err != nil {
		p.Fatalf("%s: Fail() = %+v, %v, want %+v", p.when, got, err, want)
	}
	switch {
	case want.GivenUp:
		p.asked = append(p.asked, "Forget "+key)
	case !want.Same:
		p.asked = append(p.asked, "When "+key)
	}
}

var errFailed = errors.New("failed")

// drop calls DropQueued, which must return these keys.
func (p *player) drop(want []string) {
	got := p.q.(extended).DropQueued()
	if !slices.Equal(got, want) {
		p.Fatalf("%s: DropQueued() = %q, want %q", p.when, got, want)
	}
	if p.model.down {
		p.model.drop()
	}
}

// wantAgain looks whether the channel of AddedAgain is "closed" or "open", or "none".
func (p *player) wantAgain(key, want string) {
	c, got := p.q.(extended).AddedAgain(key), "none"
	if c != nil {
		got = "open"
		select {
		case <-c:
			got = "closed"
		default:
		}
	}
	if got != want {
		p.Fatalf("%s: the channel of AddedAgain is %s", p.when, got)
	}
}

// wantTimes compares how many times of work the queue has counted, and with their sum, LongestRunning and
// UnfinishedWork.
func (p *player) wantTimes(n int, durations []string) {
	st := p.q.(extended).Stats()
	if st.WorkDuration == nil {
		p.Fatalf("%s: the queue keeps no times", p.when)
	}
	want := make([]time.Duration, 0, len(durations))
	for _, d := range durations {
		want = append(want, must(time.ParseDuration(d)))
	}
	sum := time.Duration(st.WorkDuration.Sum * float64(time.Second)).Round(time.Microsecond)
	got := []time.Duration{sum, st.LongestRunning, st.UnfinishedWork}
	if st.WorkDuration.Count() != uint64(n) || !slices.Equal(got, want) {
		p.Fatalf("%s: %d times of work, and the times %v, want %d, %v",
			p.when, st.WorkDuration.Count(), got, n, want)
	}
}

// wantFailing compares the keys that fail, with their counts, and how many there are.
func (p *player) wantFailing(want []string) {
	texts := func(limit int) (got []string) {
		for _, k := range p.q.(failing).FailingKeys(limit) {
			got = append(got, k.Key+"="+strconv.Itoa(k.Failures.Count))
		}
		p.limiter.asked = p.limiter.asked[:len(p.asked)] // It may be asked for requeues.
		return got
	}
	n := p.q.(failing).Stats().Failing
	if all := texts(100); !slices.Equal(all, want) || n != len(want) && !p.suite.PartialStats {
		p.Fatalf("%s: FailingKeys() = %v, and Stats counts %d, want %v", p.when, all, n, want)
	}
	if first := texts(1); !slices.Equal(first, want[:min(1, len(want))]) {
		p.Fatalf("%s: FailingKeys(1) = %v, want the first of %v", p.when, first, want)
	}
}

// find looks for a key by SnapshotKey, SnapshotKeys and Snapshot. Its state is "none" if it is not in the
// queue. The lists of Snapshot leave out a key on hold.
func (p *player) find(key, want string) {
	e := p.q.(extended)
	state := func(found bool, k workqueue.KeySnapshot[string]) string {
		if !found || k.Key != key {
			return "none"
		}
		return string(k.State)
	}
	k, found := e.SnapshotKey(key)
	one, all, some := state(found, k), "none", "none"
	for k := range e.SnapshotKeys() {
		if k.Key == key {
			all = state(true, k)
		}
	}
	s := e.Snapshot(100)
	p.limiter.asked = p.limiter.asked[:len(p.asked)] // A snapshot asks for requeues.
	for _, k := range slices.Concat(s.Queued, s.Processing, s.Waiting) {
		if k.Key == key {
			some = state(true, k)
		}
	}
	listed, isOnHold := want, strings.Contains(p.model.onHold, key)
	if isOnHold {
		listed = "none"
	}
	if k.OnHold != isOnHold {
		p.Fatalf("%s: SnapshotKey says OnHold = %v", p.when, k.OnHold)
	}
	if one != want || all != want || some != listed {
		p.Fatalf("%s: SnapshotKey says %q, SnapshotKeys %q, Snapshot %q", p.when, one, all, some)
	}
}

// hold lets a worker get keys, which must be the first in line.
func (p *player) hold(keys ...string) {
	for _, want := range keys {
		p.run.hold(p.q, want)
		if key := p.model.get(); key != want {
			p.Fatalf("%s: got key %s, and the model %s", p.when, want, key)
		}
	}
}

// next gets the first key by Next, which must say what the queue's other methods do.
func (p *player) next(want string) {
	q, ctx := p.q.(extended), context.Background()
	h, err := q.Next(ctx)
	if key := p.model.get(); err != nil || h.Key != want || key != want {
		p.Fatalf("%s: Next() = %+v, %v, and the model has %s", p.when, h, err, key)
	}
	if at := q.AddedAt(want); !h.AddedAt.Equal(at) {
		p.Fatalf("%s: Next says that the key was added at %v, AddedAt %v", p.when, h.AddedAt, at)
	}
	if c := q.Causes(want); h.HasCauses == c.IsZero() {
		p.Fatalf("%s: Next says %v of causes, which are %v", p.when, h.HasCauses, c)
	}
	if f, ok := p.q.(failing); ok && h.Failures.Count != f.Failures(want).Count {
		p.Fatalf("%s: Next has %+v, Failures %+v", p.when, h.Failures, f.Failures(want))
	}
}

func (p *player) done(keys ...string) {
	for _, key := range keys {
		p.q.Done(key)
		p.model.done(key)
	}
}

// giveUp makes a call with a context that is canceled or, if words is a time, has a deadline then, until
// which the call must wait. It returns the errors of the call and of the context.
func (p *player) giveUp(words []string, what string, f func(context.Context) error) (got, want error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var d time.Duration
	if len(words) == 0 {
		cancel()
	} else {
		d = must(time.ParseDuration(words[0]))
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	c := start(p.run, what, func() error { return f(ctx) })
	if d > 0 {
		time.Sleep(d - 1)
		c.mustBlock(p.when + ", before its deadline")
		time.Sleep(time.Nanosecond)
		p.model.pass(p.clock.Now())
	}
	return c.mustReturn(p.when), ctx.Err()
}

func (p *player) pass(d time.Duration) {
	p.run.pass(d)
	p.model.pass(p.clock.Now())
}

// wait lets n workers wait in Get, and as many in GetContext.
func (p *player) wait(n int) {
	for range n {
		p.getters = append(p.getters, p.startGet(p.q))
		if e, ok := p.q.(extended); ok {
			p.getters = append(p.getters, start(p.run, "GetContext", func() got {
				key, err := e.GetContext(context.Background())
				return got{key, err}
			}))
		}
	}
}

// serve asserts that a getter has returned for each key or, after shutdown, that all have returned.
func (p *player) serve() {
	waiting, want, keys := p.getters, "", []string{}
	p.getters = nil
	for len(want) < len(waiting) && !p.model.empty() {
		want += p.model.get()
	}
	for _, c := range waiting {
		if !p.model.down && !c.Returned() {
			p.getters = append(p.getters, c)
			continue
		}
		g := c.mustReturn(p.when)
		if g.err == nil && g.key == "" || g.err != nil &&
			(g.err != workqueue.ErrShutDown || !p.model.down || g.key != "") {
			p.Fatalf("%s: %s = %q, %v", p.when, c.what, g.key, g.err)
		}
		keys = append(keys, g.key)
	}
	slices.Sort(keys)
	if got := strings.Join(keys, ""); got != want {
		p.Fatalf("%s: those who wait got keys %q, want %q", p.when, got, want)
	}
}

func (p *player) end(e ender) {
	p.ends = append(p.ends, e.start(p.run))
	p.model.shutDown()
}

// wantEnded asserts that the calls that shut down have returned, with that error.
func (p *player) wantEnded(want error) {
	for _, c := range p.ends {
		if err := c.mustReturn(p.when); err != want {
			p.Fatalf("%s: %s = %v, want %v", p.when, c.what, err, want)
		}
	}
	p.ends = nil
}

const queueName = "conformance"

func (p *player) wantMetrics(words []string) {
	want := testkit.Values{"depth": 0, "adds": 0, "latency": 0, "work": 0, "unfinished": 0, "longest": 0,
		"retries": 0}
	for _, word := range words {
		metric, value, _ := strings.Cut(word, "=")
		if want[metric] = value; metric == "latency" || metric == "work" {
			var seconds []float64
			for s := range strings.SplitSeq(value, ",") {
				seconds = append(seconds, float64(must(strconv.Atoi(s))))
			}
			want[metric] = seconds
		}
	}
	p.metrics.Want(p, p.when, want)
	for _, made := range p.metrics.Made() {
		if !strings.HasSuffix(made, " of "+queueName) {
			p.Fatalf("metric %q was made, want the name %q", made, queueName)
		}
	}
}

// must is for what scripts say.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
