package debug

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keyedqueue/workqueue/worker"
)

const (
	// maxFound is how many keys a search returns.
	maxFound = 25
	// searchTime is how long a search may take. A million keys take less than a second.
	searchTime = time.Minute
	// searchLimit is how many keys of each state a search asks for, before it goes over all keys of the queue. A
	// queue returns no more.
	searchLimit = 512
	// searchers is how many queues are searched at once.
	searchers = 4
	// fewKeys is how many keys a page may look at again and again.
	fewKeys = 10_000
	// maxRemembered is how many searches a queue remembers.
	maxRemembered = 64
	// minCut is how many bytes a text that cut has shortened has at least.
	minCut = maxKey - utf8.UTFMax + 1
)

// foundReport is what a search has found.
type foundReport struct {
	Search string `json:"search"`
	// Exact reports that the keys are called exactly that. If none is, they are those whose texts contain it.
	Exact bool        `json:"exact"`
	Keys  []keyReport `json:"keys"`
	// More reports that there are more keys than those, and Incomplete that there was no time to look at all.
	More       bool `json:"more"`
	Incomplete bool `json:"incomplete,omitempty"`

	// Unanswered are the queues that did not answer, or not in time, if all were searched.
	Unanswered []queueName `json:"unanswered,omitempty"`

	// Text is all of what is searched for, and id the id of the key, unless it is empty.
	Text string `json:"-"`
	id   string
	// maybeCut: Text may be only what the page shows of a key.
	maybeCut bool
	// of was searched, unless it is nil: then all were.
	of *entry
	// cheap: the same search does not look at many keys again. looked is at how many it has looked.
	cheap  bool
	looked int
}

func newFoundReport(text, id string) *foundReport {
	maybeCut := len(text) >= minCut || strings.Contains(text, `\`)
	return &foundReport{Search: cut(text, maxKey), Keys: []keyReport{}, Text: text, id: id, maybeCut: maybeCut}
}

// isAbsent reports whether nothing is known of the key, any more.
func (f *foundReport) isAbsent() bool { return len(f.Keys) == 0 || f.Keys[0].State == stateAbsent }

// fits reports whether a key is called exactly as what is searched for, or at least contains it.
func (f *foundReport) fits(key any) (exact, fits bool) {
	text := keyText(key)
	if text == f.Text || f.maybeCut && cut(text, maxKey) == f.Text {
		return true, f.id == "" || keyID(key) == f.id
	}
	return false, f.id == "" && f.Text != "" && strings.Contains(text, f.Text)
}

// add adds k, unless it is there already. The first key that is called exactly so takes the place of those
// that contain it.
func (f *foundReport) add(k keyReport, exact bool) {
	if exact && !f.Exact {
		f.Exact, f.Keys, f.More = true, f.Keys[:0], false
	}
	same := func(have keyReport) bool { return have.raw == k.raw && have.Queue == k.Queue }
	if exact != f.Exact || f.More || slices.ContainsFunc(f.Keys, same) {
		return
	}
	if f.More = len(f.Keys) == maxFound; !f.More {
		f.Keys = append(f.Keys, k)
	}
}

// addFrom adds what was found in one queue.
func (f *foundReport) addFrom(found *foundReport) {
	for _, k := range found.Keys {
		k.Queue, k.QueueID = &queueName{found.of.id, found.of.name}, found.of.id
		f.add(k, found.Exact)
	}
	f.More = f.More || found.More && f.Exact == found.Exact
}

// search looks for the keys that are called text (and have that id, unless it is empty), or else for those
// whose texts contain it: among those that r has, the keys that were found so before, and, when turn lets it,
// all keys of the queue and its pools. A key that was found by its id before is found again, as absent, when
// it has left the queue. With every and no id it looks at all keys even if one fits: an action must notice
// that several have that text.
func (h *Handler) search(ctx context.Context, turn chan struct{}, r *reading, text, id string,
	every bool) *foundReport {
	f := newFoundReport(text, id)
	f.of = r.entry
	if r.late {
		f.Exact, f.Incomplete = true, true
		return f
	}
	lists, pools := r.keyLists()
	for _, s := range sections {
		for _, k := range *s.of(&lists) {
			if exact, fits := f.fits(k.raw); fits {
				k.State = s.State // The first one that fits.
				f.add(k, exact)
			}
		}
	}
	for _, raw := range r.entry.recall(text, id) {
		k := keyReport{raw: raw, State: stateAbsent}
		r.lookUp(&k, pools)
		if id != "" || k.State != stateAbsent {
			f.add(k, true)
		}
	}
	ambiguous := id == "" && (every || len(text) >= minCut) // Several keys may have a text that was cut.
	looked := r.looked
	if !f.Exact || ambiguous {
		ctx, done, noTurn := searchTurn(ctx, turn, searchTime)
		defer done()
		f.Incomplete = true
		if noTurn == nil {
			r.visit(ctx, keyFilter{}, func(k knownKey) bool {
				if exact, fits := f.fits(k.key); fits {
					f.add(keyReport{raw: k.key, State: k.state}, exact)
				}
				return true
			})
			f.Incomplete = ctx.Err() != nil || r.missing != nil || r.err != nil
		}
	}
	remembers := f.Exact && !ambiguous
	if remembers {
		r.entry.remember(text, id, f.Keys)
	}
	f.looked = r.looked - looked
	f.cheap = remembers || !f.Incomplete && f.looked <= fewKeys
	for i := range f.Keys {
		// It may be in two states, or has moved meanwhile.
		r.lookUp(&f.Keys[i], pools)
	}
	f.Incomplete = f.Incomplete || r.missing != nil
	return f
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

// recall returns the keys that were found by this text and id before.
func (e *entry) recall(text, id string) []any {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.found[[2]string{text, id}]
}

// remember lets the next search for text and id look up its keys.
func (e *entry) remember(text, id string, keys []keyReport) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.found == nil || len(e.mu.found) >= maxRemembered {
		e.mu.found = make(map[[2]string][]any)
	}
	e.mu.found[[2]string{text, id}] = mapped(keys, func(k keyReport) any { return k.raw })
}

// lookUp asks the queue and its pools for k anew. Later answers win: the queue's, then what the pools' lists
// say (describe), then each pool's own answer (addPool). A failing or given-up key that is not in the queue
// keeps its state, because that may come from a list alone.
func (r *reading) lookUp(k *keyReport, known *poolKeys) {
	if q := r.entry.queue; r.entry.hasQueue() {
		r.askQueue(func() {
			now, ok := q.SnapshotKey(k.raw)
			switch {
			case ok:
				*k = newKeyReport(now)
			case k.State != stateFailing && k.State != stateGivenUp:
				*k = keyReport{raw: k.raw, State: stateAbsent}
			}
		})
	}
	if r.missing != nil && k.State == stateAbsent {
		k.State = stateUnknown
	}
	known.describe(k)
	if r.missing != nil {
		return // A pool asks the queue.
	}
	r.anyPool(func(p *worker.Inspector) bool { k.addPool(p.SnapshotKey(k.raw)); return true })
}
