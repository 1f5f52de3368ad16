package worker

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Left is what a pool left undone, each key once. It has no keys that stay in the queue, were given up, or
// were requeued with a delay.
type Left[T comparable] struct {
	// Unfinished are the keys whose handler was running, or whose Done had not reached the queue or its server.
	Unfinished []T `json:"unfinished"`
	// NotStarted are the keys that were queued, or were to come at once.
	NotStarted []T `json:"not_started"`
	// Failing are the keys that were to be retried, sorted by text. Over a server it is empty: other processes
	// retry them.
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
	return cmp.Or(strings.Join(parts, "; "), "nothing")
}

// few lists at most ten keys.
func few[T any](keys []T) string {
	const most = 10
	texts := converted(first(most, keys), func(key T) string { return fmt.Sprint(key) })
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

// Left returns what was left undone when Run returned, and before that nothing.
func (p *Pool[T]) Left() Left[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.left
}

// leftUndone puts together what is left, each key once. Lists without an order are sorted by text.
func (p *Pool[T]) leftUndone(unfinished, queued []T) Left[T] {
	var failed, notStarted []T
	if p.queue.ShuttingDown() && p.tracker.answerer == nil { // A server keeps them for other processes.
		for _, k := range p.queue.FailingKeys(math.MaxInt) {
			if k.State == "" { // Any other state: it is still queued or held, so it is not lost.
				failed = append(failed, k.Key)
			}
		}
	}
	p.locked(func() { notStarted = slices.Collect(maps.Keys(p.mu.notStarted)) })
	sortByText(failed) // Not under mu: a key's String method is foreign code.
	sortByText(notStarted)
	seen := make(map[T]struct{}) // A key is in the first list that has it, in the order of the calls below.
	once := func(keys []T) []T {
		return slices.DeleteFunc(keys, func(key T) bool {
			_, known := seen[key]
			seen[key] = struct{}{}
			return known
		})
	}
	return Left[T]{Unfinished: once(unfinished), NotStarted: once(slices.Concat(notStarted, queued)),
		Failing: once(failed)}
}

func sortByText[T comparable](keys []T) {
	texts := make(map[T]string, len(keys))
	for _, key := range keys {
		texts[key] = fmt.Sprint(key)
	}
	slices.SortFunc(keys, func(a, b T) int { return cmp.Compare(texts[a], texts[b]) })
}
