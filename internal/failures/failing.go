package failures

import (
	"iter"
	"slices"
	"sort"

	"github.com/keyedqueue/workqueue/internal/keytable"
)

// Failing is a key with its failures.
type Failing[T comparable] struct {
	Key T
	N   int
}

// List yields the keys of t with what count returns of their slots, without those of which that is zero. It
// copies a few hundred under one lock and holds none while it yields them.
func List[T comparable, V any](t *keytable.Table[T, V], lock, unlock func(), count func(keytable.Slot) int) iter.Seq2[T, int] {
	add := func(counts []Failing[T], s keytable.Slot) []Failing[T] {
		if n := count(s); n > 0 {
			counts = append(counts, Failing[T]{t.At(s).Key, n})
		}
		return counts
	}
	return func(yield func(T, int) bool) {
		for c := range keytable.InSteps(t, lock, unlock, add) {
			if !yield(c.Key, c.N) {
				return
			}
		}
	}
}

// Most returns up to limit of the keys of all lists, those that have failed most first. A key that
// stands in several is listed once, with the larger number.
func Most[T comparable](limit int, lists ...iter.Seq2[T, int]) (most []Failing[T]) {
	for _, list := range lists {
		for key, n := range list {
			place := sort.Search(len(most), func(i int) bool { return most[i].N < n })
			if place == limit {
				continue
			}
			if i := slices.IndexFunc(most, func(m Failing[T]) bool { return m.Key == key }); i >= place {
				most = slices.Delete(most, i, i+1)
			} else if i >= 0 {
				continue
			}
			most = slices.Insert(most, place, Failing[T]{key, n})
			most = most[:min(len(most), limit)]
		}
	}
	return most
}
