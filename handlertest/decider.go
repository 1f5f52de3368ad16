package handlertest

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// sizes are the durations of random disturbances.
var sizes = []time.Duration{3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond,
	100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second}

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
	r, choices := d.source(at.String()), len(sizes)
	switch at.kind {
	case crashes:
		rate /= 5
	case fail, lost, conflict: // A call is short, unless it is slowed down.
		choices /= 2
	case sometime:
		if r.IntN(2) > 0 { // While the first calls run.
			return time.Duration(1+r.IntN(64)) * stepTime
		}
		rate = 1
	}
	if at.n > maxRandom || r.Float64() >= rate || at.kind == crashes && d.crashed == maxCrashes {
		return 0
	}
	return sizes[r.IntN(choices)]
}

func (d *decider) source(of string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(of))
	return rand.New(rand.NewPCG(d.seed, h.Sum64()))
}
