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

// search looks for keys by their text.
type search struct {
	// text is what keys are called or contain, and id the id of the key, unless it is empty. maybeCut: the text
	// may be only what the page shows of a key.
	text, id string
	maybeCut bool

	// exact reports that keys are called exactly that. If none is, they are those whose texts contain it.
	exact bool
	keys  []knownKey
	// more reports that there are more such keys, and incomplete that not all keys could be looked at.
	more, incomplete bool
}

func newSearch(text, id string) *search {
	maybeCut := len(text) >= minCut || strings.Contains(text, `\`)
	return &search{text: text, id: id, maybeCut: maybeCut}
}

// offer adds k if it is called as what is searched for, or at least contains it. The first key that is called
// exactly so takes the place of those that contain it.
func (s *search) offer(k knownKey) {
	text := keyText(k.key())
	exact := text == s.text || s.maybeCut && cut(text, maxKey) == s.text
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

// search looks for the keys that are called text (and have that id, unless it is empty), or else for those
// whose texts contain it. When turn lets it, it goes over all keys, because several may have that text. With
// an id the first match ends it.
func (h *Handler) search(ctx context.Context, turn chan struct{}, r *reading, text, id string) *search {
	s := newSearch(text, id)
	if k, isThere := r.stringKey(ctx, text, []string{id}); isThere {
		s.offer(k)
	}
	if !s.exact {
		ctx, done, noTurn := searchTurn(ctx, turn, searchTime)
		defer done()
		if noTurn == nil {
			for k := range r.keysIn(ctx, "") {
				if s.offer(k); s.exact && id != "" {
					break
				}
			}
		}
		s.incomplete = ctx.Err() != nil
	}
	for i := range s.keys {
		r.look(&s.keys[i]) // It may be in two states, or has moved meanwhile.
	}
	s.incomplete = s.incomplete || r.missing != nil
	return s
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
func searchTurn(ctx context.Context, turn chan struct{}, limit time.Duration) (_ context.Context, done func(),
	err error) {
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

func (s *search) report(r *reading) foundReport {
	return foundReport{Search: cut(s.text, maxKey), Exact: s.exact, Keys: mapped(s.keys, r.report),
		More: s.more, Incomplete: s.incomplete}
}
