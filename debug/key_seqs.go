package debug

import (
	"cmp"
	"iter"
)

// byStart compares for how long workers have had two keys at r.At, the longest first.
func (r *reading) byStart(a, b knownKey) int {
	return cmp.Compare(sub(r.At, b.since()), sub(r.At, a.since()))
}

// byEnd compares when two keys were given up, the latest first.
func byEnd(a, b knownKey) int { return b.inPools.GivenUp.Time.Compare(a.inPools.GivenUp.Time) }

func concat(lists ...iter.Seq[knownKey]) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		for _, keys := range lists {
			for k := range keys {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func filtered(keys iter.Seq[knownKey], is func(knownKey) bool) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		for k := range keys {
			if is(k) && !yield(k) {
				return
			}
		}
	}
}

// distinct yields the keys of all lists but those of except, each as the first list has it.
func distinct(except []knownKey, lists ...iter.Seq[knownKey]) iter.Seq[knownKey] {
	return func(yield func(knownKey) bool) {
		seen := make(map[any]bool)
		for _, k := range except {
			seen[k.key()] = true
		}
		for k := range concat(lists...) {
			if seen[k.key()] {
				continue
			}
			seen[k.key()] = true
			if !yield(k) {
				return
			}
		}
	}
}
