package compat

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// op is one call, on both queues. It is data, so that rapid can leave some out and make others simpler
// until the shortest sequence that still fails is left.
type op struct {
	Kind string
	// Key is the number of a key or, for Done, of one of the keys that are held, or of one of the times
	// that are ahead.
	Key int
	// Ms is a number of milliseconds.
	Ms int
}

func (o op) String() string { return fmt.Sprintf("%s(%d, %d ms)", o.Kind, o.Key, o.Ms) }

const (
	add            = "Add"
	addAfter       = "AddAfter"
	addRateLimited = "AddRateLimited"
	forget         = "Forget"
	get            = "Get"
	done           = "Done"
	step           = "step"
	stepToDue      = "step to due time"
	stepBack       = "step back"
	shutDown       = "ShutDown"
	drain          = "ShutDownWithDrain"
)

const (
	// manyKeys is small, so that calls meet.
	manyKeys = 6
	// maxBlocked is how many calls of Get may wait at once.
	maxBlocked = 3
)

// kinds are the calls that are drawn, some more often than others. rapid likes the first ones best, so
// the list begins with some of everything.
var kinds = []string{
	add, get, addAfter, done, step, addRateLimited, get, done, add, addRateLimited, step,
	add, get, addAfter, done, stepToDue, addRateLimited, get, done, add, forget, stepBack,
}

func oneOp(t *rapid.T) op {
	o := op{
		Kind: rapid.SampledFrom(kinds).Draw(t, "kind"),
		Key:  rapid.IntRange(0, manyKeys-1).Draw(t, "key"),
	}
	switch o.Kind {
	case addAfter:
		o.Ms = rapid.OneOf(rapid.IntRange(-1, 30), rapid.IntRange(-1, 30_000)).Draw(t, "ms")
	case step, stepBack:
		o.Ms = rapid.OneOf(rapid.IntRange(1, 30), rapid.IntRange(1, 3_000), rapid.Just(60_000)).Draw(t, "ms")
	}
	return o
}

// drawOps draws a sequence of calls, about a hundred of them. One in four ends the queues in its midst.
func drawOps(t *rapid.T) []op {
	one := rapid.Custom(oneOp)
	// A slice of slices, because the length of a slice is chosen near its least one.
	many := rapid.SliceOfN(rapid.SliceOfN(one, 0, 12), 10, 20).Draw(t, "calls")
	sequence := slices.Concat(many...)
	if rapid.IntRange(0, 3).Draw(t, "end") == 3 {
		sequence = append(sequence, op{Kind: rapid.SampledFrom([]string{shutDown, drain}).Draw(t, "kind of end")})
		sequence = append(sequence, rapid.SliceOfN(one, 0, 30).Draw(t, "calls after it")...)
	}
	return sequence
}

// run is a differential run on its way.
type run[K comparable] struct {
	theirs, ours *subject[K]
	// held are the numbers of the keys that were handed out and are not Done.
	held []int
	// jumped reports whether the clocks were set back.
	jumped bool
	// calls counts the calls, and due are the times at which keys of AddAfter were to come.
	calls int
	due   []time.Time
}

// apply makes a call on both queues and returns how they differ afterwards. A call that is a documented
// difference, or that would block, is left out.
func (r *run[K]) apply(o op) error {
	switch o.Kind {
	case get:
		if r.theirs.blocked >= maxBlocked {
			return nil
		}
		if r.theirs.order != nil && r.theirs.queue.Len() == 0 && !r.theirs.queue.ShuttingDown() {
			// When several keys come due at once, a getter that waits may be awake after the first
			// of them or after the last. That decides what it gets from a queue that is not first in,
			// first out.
			return nil
		}
	case done:
		if len(r.held) == 0 {
			return nil
		}
		i := o.Key % len(r.held)
		o.Key = r.held[i]
		r.held = append(r.held[:i:i], r.held[i+1:]...)
	case drain:
		if len(r.held) > 0 || r.theirs.queue.Len() > 0 {
			return nil
		}
	}
	r.calls++
	var saw [2]observed
	for i, q := range []*subject[K]{r.theirs, r.ours} {
		// A call happens at a time of its own below a millisecond, which all delays are multiples of.
		// So no two keys are ever due at the same time: client-go promises no order of those.
		now := q.clock.Since(epoch)
		own := (time.Duration(r.calls)*time.Microsecond - now) % time.Millisecond
		q.clock.Step((own + time.Millisecond) % time.Millisecond)
		synctest.Wait()
		if o.Kind == stepToDue {
			r.stepToDue(q.clock, o.Key)
		} else {
			q.apply(o)
		}
		saw[i] = q.observe()
		if r.jumped = r.jumped || o.Kind == stepBack; r.jumped {
			// The worker that has held its key for longest need not be the worker that got it first any more.
			// Client-go looks for the former, and ours takes the latter.
			saw[i].Longest = 0
		}
	}
	if o.Kind == addAfter {
		r.due = append(r.due, r.ours.clock.Now().Add(time.Duration(o.Ms)*time.Millisecond))
	}
	if !reflect.DeepEqual(saw[0], saw[1]) {
		return fmt.Errorf("after %v\n\tclient-go: %+v\n\tours:      %+v", o, saw[0], saw[1])
	}
	for _, got := range saw[0].Got {
		var key int
		if n, _ := fmt.Sscanf(got, "key%d", &key); n == 1 {
			r.held = append(r.held, key)
		}
	}
	return nil
}

// stepToDue steps to a time at which a key is due, to the nanosecond, if one is ahead.
func (r *run[K]) stepToDue(clock *testingclock.FakeClock, n int) {
	var ahead []time.Time
	for _, due := range r.due {
		if due.After(clock.Now()) {
			ahead = append(ahead, due)
		}
	}
	if len(ahead) > 0 {
		clock.SetTime(ahead[n%len(ahead)])
	}
}

func (q *subject[K]) apply(o op) {
	d := time.Duration(o.Ms) * time.Millisecond
	switch o.Kind {
	case add:
		q.queue.Add(q.keys[o.Key])
	case addAfter:
		q.queue.AddAfter(q.keys[o.Key], d)
	case addRateLimited:
		q.queue.AddRateLimited(q.keys[o.Key])
	case forget:
		q.queue.Forget(q.keys[o.Key])
	case get:
		q.startGet()
	case done:
		q.queue.Done(q.keys[o.Key])
	case step:
		q.clock.Step(d)
	case stepBack:
		q.clock.SetTime(q.clock.Now().Add(-d))
	case shutDown:
		q.queue.ShutDown()
	case drain:
		q.queue.ShutDownWithDrain()
	}
}

// finish has every key come that is still to come, shuts both queues down, and ends what they started.
func (r *run[K]) finish() error {
	hour := op{Kind: step, Ms: int(time.Hour.Milliseconds())}
	sequence := []op{hour}
	for range manyKeys + maxBlocked {
		sequence = append(sequence, op{Kind: get}, op{Kind: done}, op{Kind: done})
	}
	for _, o := range append(sequence, hour, op{Kind: shutDown}, hour) {
		if err := r.apply(o); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	if len(r.held) > 0 || r.ours.queue.Len() > 0 {
		return fmt.Errorf("at the end: held: %v, queued: %d", r.held, r.ours.queue.Len())
	}
	return nil
}

// compare makes the calls of sequence on both queues.
//
// Everything happens in a bubble. client-go's waiting loop takes a key from AddAfter, or notices that
// its time has come, when it gets to it; in a bubble one can wait for the moment at which all
// goroutines have done what there is to do.
func compare[K comparable](t *testing.T, theirs, ours func() *subject[K], sequence []op) (err error) {
	synctest.Test(t, func(t *testing.T) {
		r := &run[K]{theirs: theirs(), ours: ours()}
		defer func() {
			// Nothing may be left running in a bubble, also if they differ.
			for _, q := range []*subject[K]{r.theirs, r.ours} {
				q.queue.ShutDown()
				q.clock.Step(time.Hour)
			}
		}()
		// client-go's clock begins to tick when its goroutine gets to it.
		synctest.Wait()
		for i, o := range sequence {
			if err = r.apply(o); err != nil {
				err = fmt.Errorf("call %d: %w", i, err)
				return
			}
		}
		err = r.finish()
	})
	return err
}

func stringKeys() (keys []string) {
	for i := range manyKeys {
		keys = append(keys, fmt.Sprint("key", i))
	}
	return keys
}

// object is a key as controllers have it.
type object struct{ namespace, name string }

// mixedKeys are of many types, among them an interface's zero value.
func mixedKeys() []any {
	return []any{"1", 1, 1.0, object{"1", "1"}, nil, [1]string{"1"}}
}

// TestDifferential makes random calls on client-go's queue and on ours, and sees them do the same: the
// keys, their order, the lengths, the counts of failures, and all metrics. What the two are known to
// do differently is left out here, and asserted in the files differences_test.go and conformance_test.go.
//
// The flags -rapid.checks and -rapid.seed make it run longer, and again.
func TestDifferential(t *testing.T) {
	t.Run("keys=string", func(t *testing.T) { differential(t, stringKeys()) })
	t.Run("keys=any", func(t *testing.T) { differential(t, mixedKeys()) })
}

func differential[K comparable](t *testing.T, keys []K) {
	for _, limiter := range limiterKinds {
		t.Run("limiter="+string(limiter), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				s := setup{
					Named:   rapid.Bool().Draw(rt, "named"),
					Mixed:   rapid.Bool().Draw(rt, "mixed"),
					Custom:  rapid.Bool().Draw(rt, "custom"),
					Limiter: limiter,
				}
				sequence := drawOps(rt)
				theirs := func() *subject[K] { return newTheirs(s, keys) }
				ours := func() *subject[K] { return newOurs(s, keys) }
				if err := compare(t, theirs, ours, sequence); err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}
