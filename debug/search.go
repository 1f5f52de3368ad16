package debug

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keyedqueue/workqueue"
)

const (
	// maxFound is how many keys a search returns.
	maxFound = 25
	// searchTime is how long a search may take. A million keys take less than a second.
	searchTime = time.Minute
	// searchLimit is how many keys of each state are read for an action on many. A queue returns no more.
	searchLimit = 512
	// minCut is how many bytes a text that cut has shortened has at least.
	minCut = maxKey - utf8.UTFMax + 1
)

// search looks for keys that are called text and have that id, unless it is empty, or else for those whose
// texts contain it.
type search struct {
	text, id string
	// exact reports that the keys are called exactly that. If none is, they contain it.
	exact bool
	keys  []foundKey
	// more reports that there are more such keys, and incomplete that not all keys could be looked at.
	more, incomplete bool
}

// foundKey is a key, and the queue that it was found in.
type foundKey struct {
	knownKey
	in *reading
}

// offer adds k if it is called as what is searched for, or at least contains it. The first key that is called
// exactly so takes the place of those that contain it.
func (s *search) offer(k knownKey, in *reading) {
	text := keyText(k.key())
	maybeCut := len(s.text) >= minCut || strings.Contains(s.text, `\`)
	exact := text == s.text || maybeCut && cut(text, maxKey) == s.text
	switch {
	case exact && s.id != "" && keyID(k.key()) != s.id:
		return
	case !exact && (s.exact || s.id != "" || s.text == "" || !strings.Contains(text, s.text)):
		return
	case exact && !s.exact:
		s.exact, s.keys, s.more = true, nil, false
	}
	isSame := func(have foundKey) bool { return have.in == in && have.key() == k.key() }
	if i := slices.IndexFunc(s.keys, isSame); i >= 0 {
		s.keys[i].addPool(k.inPools)
	} else if s.more = s.more || len(s.keys) == maxFound; !s.more {
		s.keys = append(s.keys, foundKey{k, in})
	}
}

// goOver offers all keys of a queue, because several may have the text. With an id the first match ends it.
// It reports whether there was time for all.
func (s *search) goOver(ctx context.Context, r *reading) bool {
	for k := range r.keysIn(ctx, "") {
		if s.offer(k, r); s.exact && s.id != "" {
			break
		}
	}
	return ctx.Err() == nil && r.missing == nil
}

// report returns what was found, after asking for all that is known of it: a key may be in two states, or has
// moved meanwhile.
func (s *search) report() foundReport {
	found := foundReport{Search: cut(s.text, maxKey), Exact: s.exact, More: s.more, Keys: []keyReport{}}
	for i := range s.keys {
		k := &s.keys[i]
		k.in.look(&k.knownKey)
		found.Keys = append(found.Keys, k.in.report(k.knownKey))
		s.incomplete = s.incomplete || k.in.missing != nil
	}
	found.Incomplete = s.incomplete
	return found
}

// search looks for keys of one queue, when the searches before have ended.
func (h *Handler) search(ctx context.Context, r *reading, text, id string) (*search, foundReport) {
	s := &search{text: text, id: id}
	if k, isThere := r.stringKey(ctx, text, []string{id}); isThere {
		s.offer(k, r)
	}
	if !s.exact {
		ctx, done, noTurn := searchTurn(ctx, h.searching, searchTime)
		defer done() // After the report, which may ask the queue's server.
		s.incomplete = noTurn != nil || !s.goOver(ctx, r)
	}
	return s, s.report()
}

// stringKey returns the key of the queue that is that string and has one of the ids: it need not be searched
// for.
func (r *reading) stringKey(ctx context.Context, text string, ids []string) (k knownKey, isThere bool) {
	if !r.entry.hasQueue() || !slices.Contains(ids, keyID(text)) || ctx.Err() != nil {
		return k, false
	}
	r.askServer(func() {
		ignorePanic(func() {
			var s workqueue.KeySnapshot[any]
			s, isThere = r.entry.queue.SnapshotKey(text)
			k = fromQueue(s)
		})
	})
	return k, isThere
}

// searchTurn waits for the token of turn, with which one caller at a time goes over all keys of a queue. It
// returns a context for this caller, which ends with ctx or after limit, and done, which lets the next one
// begin. It returns an error if others have kept the token for so long; done must be called even then.
func searchTurn(ctx context.Context, turn chan struct{}, limit time.Duration) (_ context.Context, done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	select {
	case turn <- struct{}{}:
		return ctx, func() {
			cancel()
			<-turn
		}, nil
	case <-ctx.Done():
		err = refuse(http.StatusServiceUnavailable, "Others are going over all keys: try again in a minute.")
		return ctx, cancel, err
	}
}
