package workqueuetest

import (
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
)

// FuzzQueue reads a call from every two bytes of the script, and makes the calls on a rate-limiting queue on a fake clock
// and on the model. The first byte chooses whether delays go through AddRateLimited, and whether there are metrics.
func FuzzQueue(f *testing.F) {
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) == 0 {
			return
		}
		build := func(c Config[string]) workqueue.TypedInterface[string] { return sound(c) }
		if script[0]&1 != 0 {
			build = newLimited
		}
		m := modelOptions{ties: true, shutDown: true, unmatchedDone: true}
		r := newRun(&Suite{New: build}, t, true)
		ops, at := opsOf(m, script[1:min(len(script), 400)]), -1
		if script[0]&2 != 0 && len(ops)%2 != 0 { // Every second length has metrics.
			ops = ops[1:]
		}
		r.bubbled(func() { r.playModel(m, ops, &at) })
		if o := r.outcome(); len(o.failures) > 0 {
			t.Fatalf("after %v:\n%s", ops[:min(at+1, len(ops))], o)
		}
	})
}

// opsOf reads calls from script.
func opsOf(m modelOptions, script []byte) []op {
	var ops []op
	for ; len(script) >= 2; script = script[2:] {
		kinds := m.kinds()
		o := op{kind: kinds[int(script[0]>>3)%len(kinds)], key: int(script[0] & 7)}
		switch script[0] {
		case 0xfe:
			o.kind = "drain"
		case 0xff:
			o.kind = "ShutDown"
		}
		if o.kind == "AddAfter" || o.kind == "pass" {
			o.d = time.Duration(int8(script[1])) * time.Second / 4
		}
		ops = append(ops, o)
	}
	return ops
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
