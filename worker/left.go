package worker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Left is what a pool left undone when Run returned. A key is in one of the lists at most.
//
// With Options.KeepQueue keys stay in the queue, and NotStarted and Failing are empty, with two exceptions:
// somebody else has shut the queue down, or the queue or its limiter has panicked when a key was added or its
// failure counted. That panic ends the pool, and the key may not be in the queue.
type Left[T comparable] struct {
	// Unfinished are the keys that workers still had: their handlers were running, or Done had not returned. Over
	// a [leasing.Answerer] they are also those of whose end the queue's server has not been told in time.
	Unfinished []T `json:"unfinished"`
	// NotStarted are the keys that came too late to be started, then those that were queued, in their order,
	// and then those whose handler, after the shutdown, asked for them again at once or returned [Hold].
	NotStarted []T `json:"not_started"`
	// Failing are the keys whose last call has failed and that Run did not retry: those that were waiting for
	// their retry, which Run never awaits, and those that failed during the end, if only because their
	// context had ended. Keys that wait because of RequeueAfter are not among them, and neither are keys that
	// were given up: the log and [Pool.Snapshot] have those.
	Failing []T `json:"failing"`
}

// Empty reports whether nothing was left.
func (l Left[T]) Empty() bool { return len(l.Unfinished)+len(l.NotStarted)+len(l.Failing) == 0 }

// String returns how many keys there are of each kind, and the first few of them.
func (l Left[T]) String() string {
	var parts []string
	add := func(what string, keys []T) {
		if len(keys) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s: %s", len(keys), what, few(keys)))
		}
	}
	add("still running", l.Unfinished)
	add("queued and not started", l.NotStarted)
	add("failed and not retried", l.Failing)
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}

// few lists at most ten keys.
func few[T any](keys []T) string {
	const most = 10
	texts := converted(keys[:min(len(keys), most)], func(key T) string { return fmt.Sprint(key) })
	if len(keys) > most {
		texts = append(texts, "…")
	}
	return strings.Join(texts, ", ")
}

func converted[From, To any](all []From, convert func(From) To) []To {
	to := make([]To, 0, len(all))
	for _, from := range all {
		to = append(to, convert(from))
	}
	return to
}

// Left returns what was left undone when Run returned, and nothing before that.
func (p *Pool[T]) Left() Left[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.left
}

// undone is what Left lists of the keys that workers have had. The pool's mu guards it.
type undone[T comparable] struct {
	notStarted []T // came too late to be started, or could not be added again: the queue has panicked
	notRetried []T // What their call has come to could not be noted: the queue or its limiter has panicked.
	// refused are keys that handlers asked for again after the shutdown. An earlier add may still bring them.
	refused map[T]struct{}
}

// noteNotStarted puts key, which came too late, on the list of Left.
func (p *Pool[T]) noteNotStarted(key T) {
	p.locked(func() { p.mu.undone.notStarted = append(p.mu.undone.notStarted, key) })
}

// listIfPanics runs a step that adds the key. If the queue or its limiter panics, the key goes on the list.
func (p *Pool[T]) listIfPanics(c *Tracked[T], list *[]T, step func()) {
	returned := false
	defer func() {
		if !returned && !c.crashing {
			p.locked(func() { *list = append(*list, c.result.Key) })
		}
	}()
	step()
	returned = true
}

// leftUndone puts together what is left, each key once. Lists without an order are sorted by text.
func (p *Pool[T]) leftUndone(unfinished, queued []T) Left[T] {
	var failed []T
	p.tracker.catchPanic(func() {
		if p.queue.ShuttingDown() {
			failed = slices.Collect(eachRecord(p.tracker, func(key T, r *record[T]) (T, bool) {
				return key, r.trouble == failing
			}))
		}
	})
	var notStarted, refused []T
	p.locked(func() {
		u := &p.mu.undone
		notStarted, refused = u.notStarted, slices.Collect(maps.Keys(u.refused))
		failed = append(failed, u.notRetried...)
	})
	sortByText(failed) // Not under mu: a key's String method is foreign code.
	sortByText(refused)
	seen := make(map[T]struct{}) // A key is in the first list that has it, in the order of the calls below.
	once := func(keys []T) []T {
		return slices.DeleteFunc(keys, func(key T) bool {
			_, known := seen[key]
			seen[key] = struct{}{}
			return known
		})
	}
	return Left[T]{Unfinished: once(unfinished), NotStarted: once(slices.Concat(notStarted, queued, refused)),
		Failing: once(failed)}
}

func sortByText[T comparable](keys []T) {
	texts := make(map[T]string, len(keys))
	for _, key := range keys {
		texts[key] = fmt.Sprint(key)
	}
	slices.SortFunc(keys, func(a, b T) int { return cmp.Compare(texts[a], texts[b]) })
}
