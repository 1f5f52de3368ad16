package debug

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/keyedqueue/workqueue"
)

const (
	// maxFound is how many keys a search returns.
	maxFound = 25
	// searchLimit is how many keys of each state are read for an action on many. A queue returns no more.
	searchLimit = 512
)

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
	exact := text == s.text || cut(text, maxKey) == s.text
	switch {
	case exact && s.id != "" && keyID(k.key()) != s.id:
		return
	case !exact && (s.exact || s.id != "" || s.text == "" || !strings.Contains(text, s.text)):
		return
	case exact && !s.exact:
		s.exact, s.keys, s.more = true, nil, false
	}
	isSame := func(have knownKey) bool { return have.key() == k.key() }
	if i := slices.IndexFunc(s.keys, isSame); i >= 0 {
		s.keys[i].addPool(k.inPools)
	} else if s.more = s.more || len(s.keys) == maxFound; !s.more {
		s.keys = append(s.keys, k)
	}
}

// goOver offers all keys, because several may have the text. With an id there is one.
func (s *search) goOver(w *walk) {
	for k := range w.keysIn("") {
		if s.offer(k); s.exact && s.id != "" {
			return
		}
	}
}

// search looks for keys, when the searches before have ended. Then it asks for all that is known of them: a
// key may be in two states, or has moved meanwhile. The walk says how many keys it has gone over, and whether
// these were all.
func (h *Handler) search(r *reading, text, id string) (*search, *walk) {
	s, w := &search{text: text, id: id}, &walk{reading: r}
	if k, isThere := r.stringKey(text, []string{id}); isThere {
		s.offer(k)
	}
	if !s.exact {
		done, err := searchTurn(r.ctx, h.searching)
		defer done() // At the end, because a look may ask the queue's server.
		if w.more = err != nil; !w.more {
			s.goOver(w)
		}
	}
	for i := range s.keys {
		r.look(&s.keys[i])
	}
	return s, w
}

// stringKey returns the key of the queue that is that string and has one of the ids: it need not be searched
// for.
func (r *reading) stringKey(text string, ids []string) (k knownKey, isThere bool) {
	if !r.HasQueue() || !slices.Contains(ids, keyID(text)) {
		return k, false
	}
	r.askServer(func() {
		defer func() { _ = recover() }() // Its keys may be of another type.
		var s workqueue.KeySnapshot[any]
		s, isThere = r.entry.queue.SnapshotKey(text)
		k = fromQueue(s)
	})
	return k, isThere
}

// searchTurn waits for the token of turn, with which one caller at a time goes over all keys of a queue. Done
// lets the next one begin. It must be called even after an error: others have kept the token until ctx ended.
func searchTurn(ctx context.Context, turn chan struct{}) (done func(), err error) {
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return func() {}, refuse(http.StatusServiceUnavailable,
			"Others are going over all keys: try again in a minute.")
	}
}
