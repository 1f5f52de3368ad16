package workqueuetest

import (
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
)

// FuzzQueue reads a call from every two bytes of the script, and makes the calls on a rate-limiting queue on
// a fake clock and on the model. The first byte chooses whether delays go through AddRateLimited, and whether
// there are metrics.
func FuzzQueue(f *testing.F) {
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) == 0 {
			return
		}
		build := func(c Config[string]) workqueue.TypedInterface[string] { return sound(c) }
		if script[0]&1 != 0 {
			build = newLimited
		}
		m := modelOptions{ties: true, shutDown: true, unmatchedDone: true, delays: true, contexts: true,
			clockGoesBack: true}
		steps := stepsOf(m, script[1:min(len(script), 400)])
		if script[0]&2 != 0 && len(steps)%2 != 0 { // Every second length has metrics.
			steps = steps[1:]
		}
		if o := newRun(&Suite{New: build}, t, 0, true).playRandom(steps); len(o.failures) > 0 {
			t.Fatal(o)
		}
	})
}

// stepsOf reads steps from script.
func stepsOf(m modelOptions, script []byte) []string {
	var steps []string
	for ; len(script) >= 2; script = script[2:] {
		kinds := m.kinds()
		kind := kinds[int(script[0]>>3)%len(kinds)]
		switch script[0] {
		case 0xfe:
			kind = "giveup"
		case 0xff:
			kind = "shutdown"
		}
		steps = append(steps, m.step(len(steps), kind, int(script[0]&7),
			time.Duration(int8(script[1]))*time.Second/4))
	}
	return steps
}

// limited is a queue whose AddAfter goes through the limiter.
type limited struct {
	whole
	limiter *scriptedLimiter
}

func newLimited(c Config[string]) workqueue.TypedInterface[string] {
	limiter := &scriptedLimiter{}
	c.RateLimiter = limiter
	return &limited{sound(c), limiter}
}

func (q *limited) AddAfter(key string, d time.Duration) {
	q.limiter.delays = append(q.limiter.delays, d)
	q.AddRateLimited(key)
}
