package worker

import (
	"fmt"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
)

// FailedKey is a key that fails or was given up.
type FailedKey[T comparable] struct {
	Key T `json:"key"`
	// Attempt is how many calls have failed in a row.
	Attempt int `json:"attempt"`
	// Since is when the first of these calls ended.
	Since time.Time `json:"since"`
	// Err is the text of the last error, of a given-up key at most 1 KiB.
	Err string `json:"error"`
	// Time is when the key was given up, and zero for a failing key.
	Time time.Time `json:"time,omitzero"`
	// NextTry is when a waiting key comes due, if that is known.
	NextTry time.Time `json:"next_try,omitzero"`
}

// newFailingKey describes a failing key as its queue knows it.
func newFailingKey[T, K comparable](k workqueue.KeySnapshot[T], shown K) FailedKey[K] {
	f := FailedKey[K]{Key: shown, Attempt: k.Failures.Count, Since: k.Failures.Since, Err: k.Failures.Err}
	if k.State == workqueue.KeyWaiting {
		f.NextTry = k.Due
	}
	return f
}

// as returns f with the key as it is to be shown.
func as[T, K comparable](f FailedKey[T], shown K) FailedKey[K] {
	return FailedKey[K]{shown, f.Attempt, f.Since, f.Err, f.Time, f.NextTry}
}

const maxErrorText = 1 << 10 // bytes

// newGivenUp describes the key of a call that gives it up. Of any other call it is zero.
func (c *Tracked[T]) newGivenUp() (f FailedKey[T]) {
	if r := &c.result; r.Next == NextGiveUp {
		f = FailedKey[T]{Key: r.Key, Attempt: r.Attempt, Err: cut(fmt.Sprint(r.Err), maxErrorText),
			Time: r.Started.Add(r.Duration), Since: c.handOut.Failures.Since}
		if f.Since.IsZero() {
			f.Since = f.Time
		}
	}
	return f
}

// givenUpKeys are the keys that were given up last, max at most.
type givenUpKeys[T comparable] struct {
	max   int
	keys  map[T]*FailedKey[T]
	order []*FailedKey[T] // as they were given up; also such as are not in keys any more
}

func (g *givenUpKeys[T]) add(f FailedKey[T]) {
	g.keys[f.Key] = &f
	g.order = append(g.order, &f)
	for len(g.keys) > g.max {
		if first := g.order[0]; g.keys[first.Key] == first {
			delete(g.keys, first.Key)
		}
		g.order[0], g.order = nil, g.order[1:]
	}
	if len(g.order)/2 > g.max {
		g.order = slices.DeleteFunc(g.order, func(f *FailedKey[T]) bool { return g.keys[f.Key] != f })
	}
}

// lastGivenUp returns up to limit keys that were given up, the last one first.
func lastGivenUp[T, K comparable](t *Tracker[T], limit int, show func(T) K) []FailedKey[K] {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := []FailedKey[K]{}
	for _, f := range slices.Backward(t.mu.givenUp.order) {
		if len(all) < limit && t.mu.givenUp.keys[f.Key] == f {
			all = append(all, as(*f, show(f.Key)))
		}
	}
	return all
}
