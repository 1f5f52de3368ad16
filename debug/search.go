package debug

import (
	"iter"
	"slices"
	"strings"
)

// maxFound is how many keys a search returns.
const maxFound = 25

// search looks for keys of a queue that are called text and have that id, unless it is empty, or else for
// those whose texts contain it.
type search struct {
	text, id string
	// exact reports that the keys are called exactly that. If none is, they contain it.
	exact bool
	keys  []knownKey
	// more reports that there are more such keys.
	more bool
}

// offer adds k if it is called as what is searched for, or at least contains it. The first key that is called
// exactly so takes the place of those that contain it.
func (s *search) offer(k knownKey) {
	text := keyText(k.key())
	exact := text == s.text || cut(text, maxKeyBytes) == s.text
	switch {
	case exact && s.id != "" && keyID(k.key()) != s.id:
		return
	case !exact && (s.exact || s.id != "" || s.text == "" || !strings.Contains(text, s.text)):
		return
	case exact && !s.exact:
		s.exact, s.keys, s.more = true, nil, false
	}
	isSame := func(have knownKey) bool { return have.key() == k.key() }
	if slices.ContainsFunc(s.keys, isSame) {
		return
	}
	s.more = s.more || len(s.keys) == maxFound
	if !s.more {
		s.keys = append(s.keys, k)
	}
}

// startSearch returns a search that has found the key that is the string text, and has that id, if there is
// one: it need not be searched for.
func (r *reading) startSearch(text, id string) *search {
	s := &search{text: text, id: id}
	if keyID(text) == id {
		r.askServer(func() {
			defer func() { _ = recover() }() // The queue's keys may be of another type.
			if k, isThere := r.entry.queue.SnapshotKey(text); isThere || k.Failures.Count > 0 {
				s.offer(fromQueue(k))
			}
		})
	}
	return s
}

// goOver offers keys, all of them because several may have the text. With an id there is one, but for
// chance.
func (s *search) goOver(keys iter.Seq[knownKey]) {
	for k := range keys {
		s.offer(k)
		if s.exact && s.id != "" {
			return
		}
	}
}

// finish asks for all that is known of the keys that were found: a key may be in two states, or has moved
// meanwhile. Those that have gone are left out.
func (s *search) finish(r *reading) {
	for i := range s.keys {
		r.askAll(&s.keys[i])
	}
	hasGone := func(k knownKey) bool { return r.missing == nil && k.state() == "" }
	s.keys = slices.DeleteFunc(s.keys, hasGone)
}
