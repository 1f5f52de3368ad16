package handlertest

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// site is a place in a run at which something may be disturbed: the n-th of its kind with that name, counted
// from 1. So the other disturbances of a schedule stay where they are when one is taken out.
type site struct {
	kind, name string
	n          int
}

// The kinds of disturbances. Their durations mean:
const (
	crashes = "crash" // how long the process is down
	lag     = "lag"   // how much later the cache shows a change
	// how long the watch is lost before the cache lists anew, and so skips what was in between
	relist   = "relist"
	slow     = "slow"     // how much longer the beginning of a call, or a call of a client, takes
	late     = "late"     // how much later an add reaches the queue
	again    = "again"    // how long after a key was handed out it is added once more
	lease    = "lease"    // how long after a worker has asked for a key's lease it ends
	fail     = "fail"     // how long a call of a client takes to fail
	lost     = "lost"     // how long after a write took effect its caller gets an error
	conflict = "conflict" // how long somebody writes to an object just before the process does
	sometime = "sometime" // how long after the run began somebody does what Scenario.Sometime says
)

func (s site) String() string {
	if s.name == "" {
		return fmt.Sprintf("%s#%d", s.kind, s.n)
	}
	return fmt.Sprintf("%s:%s#%d", s.kind, url.QueryEscape(s.name), s.n)
}

// schedule is everything that is disturbed in a run. The empty one disturbs nothing.
type schedule map[site]time.Duration

func (s schedule) sites() []site {
	return slices.SortedFunc(maps.Keys(s), compareSites)
}

func compareSites(a, b site) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.n, b.n))
}

// String returns the schedule as parseSchedule reads it.
func (s schedule) String() string {
	var parts []string
	for _, at := range s.sites() {
		parts = append(parts, fmt.Sprintf("%v=%v", at, s[at]))
	}
	return strings.Join(parts, " ")
}

func parseSchedule(text string) (schedule, error) {
	s := make(schedule)
	for part := range strings.FieldsSeq(text) {
		at, duration, _ := strings.Cut(part, "=")
		what, number, _ := strings.Cut(at, "#")
		kind, escaped, _ := strings.Cut(what, ":")
		name, err1 := url.QueryUnescape(escaped)
		n, err2 := strconv.Atoi(number)
		d, err3 := time.ParseDuration(duration)
		if err := cmp.Or(err1, err2, err3); err != nil || d <= 0 || n <= 0 || !slices.Contains(kinds, kind) {
			return nil, fmt.Errorf("%q is no disturbance; one looks like crash#3=1s or lag:pods#2=300ms", part)
		}
		s[site{kind, name, n}] = d
	}
	return s, nil
}

var kinds = []string{crashes, lag, relist, slow, late, again, lease, fail, lost, conflict, sometime}

// sizes are the durations of random disturbances.
var sizes = []time.Duration{3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond,
	100 * time.Millisecond,
	300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second}

// maxCrashes is how often the process crashes in a random run.
const maxCrashes = 3

// maxRandom is how many sites of a kind and name are disturbed at random. After that the run is left to come
// to rest: a key that is added again each time it was handed out never would.
const maxRandom = 30

// decider says at each site whether it is disturbed. It does what fixed says or, if that is nil, what follows
// from the seed, and keeps what it has decided in used. The caller locks.
type decider struct {
	fixed   schedule
	seed    uint64
	used    schedule
	without Fault // what never happens, and is not counted

	counts  map[site]int // how many sites of a kind and name there were
	crashed int
}

func newDecider(fixed schedule, seed uint64) decider {
	return decider{fixed: fixed, seed: seed, used: make(schedule), counts: make(map[site]int)}
}

// decide returns how the next site of a kind and name is disturbed, and 0 if it is not.
func (d *decider) decide(kind, name string) (by time.Duration) {
	if d.without&faultOf[kind] != 0 {
		return 0
	}
	at := site{kind, name, 0}
	d.counts[at]++
	at.n = d.counts[at]
	if d.fixed != nil {
		by = d.fixed[at]
	} else {
		by = d.random(at)
	}
	if by > 0 {
		d.used[at] = by
		if kind == crashes {
			d.crashed++
		}
	}
	return by
}

// random depends on the seed and the site alone, not on the order of the calls. In some runs there is much of
// a kind, in others nothing, because one kind may hide what another one shows.
func (d *decider) random(at site) time.Duration {
	rates := []float64{0, 0.03, 0.2, 0.5}
	if faultOf[at.kind]&failedCalls != 0 { // A call that fails hides what follows it.
		rates = []float64{0, 0, 0, 0, 0, 0, 0.03, 0.2}
	}
	rate := rates[d.source(at.kind).IntN(len(rates))]
	r, max := d.source(at.String()), len(sizes)
	switch at.kind {
	case crashes:
		rate /= 5
	case lease, fail, lost, conflict: // A call is short, unless it is slowed down.
		max /= 2
	case sometime:
		if r.IntN(2) > 0 { // While the first calls run.
			return time.Duration(1+r.IntN(64)) * stepTime
		}
		rate = 1
	}
	if at.n > maxRandom || r.Float64() >= rate || at.kind == crashes && d.crashed == maxCrashes {
		return 0
	}
	return sizes[r.IntN(max)]
}

func (d *decider) source(of string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(of))
	return rand.New(rand.NewPCG(d.seed, h.Sum64()))
}

// shrink returns a schedule that still fails, from which nothing more can be taken: no disturbance, and no
// time from one. It calls fails as long as goOn returns true.
func shrink(s schedule, goOn func() bool, fails func(schedule) bool) schedule {
	try := func(smaller schedule) bool {
		if !goOn() || !fails(smaller) {
			return false
		}
		s = smaller
		return true
	}
	for part := (len(s) + 1) / 2; part > 0; part /= 2 { // Many at once first.
		for again := true; again; {
			again = false
			for taken := range slices.Chunk(s.sites(), part) {
				smaller := maps.Clone(s)
				for _, at := range taken {
					delete(smaller, at)
				}
				again = try(smaller) && part == 1 || again
			}
		}
	}
	for _, at := range s.sites() {
		for _, size := range sizes {
			smaller := maps.Clone(s)
			smaller[at] = size
			if size >= s[at] || try(smaller) {
				break
			}
		}
	}
	return s
}
