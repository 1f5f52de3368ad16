package debug

import (
	"context"
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
	// fewKeys is how many keys a page may look at again and again.
	fewKeys = 10_000
	// maxRemembered is how many texts a queue remembers the keys of.
	maxRemembered = 64
)

// searchLimits are how many keys of each state a search asks for, before it goes over all keys of the queue.
var searchLimits = limits{queue: 512, pools: 1000}

// states of a key that was found, in the order of [keyLists.all]. The first one that fits is its state.
var states = []string{"processing", "queued", "waiting", "failing", "given_up"}

// foundReport is what a search has found.
type foundReport struct {
	Search string `json:"search"`
	// Exact reports that the keys are called exactly that. If none is, they are those whose texts contain it.
	Exact bool        `json:"exact"`
	Keys  []keyReport `json:"keys"`
	// More reports that there are more keys than those, and Incomplete that there was no time to look at all.
	More       bool `json:"more"`
	Incomplete bool `json:"incomplete,omitempty"`

	// cheap reports that the same search need not look at all keys again.
	cheap bool
}

// search looks for the keys that are called text, or else for those whose texts contain it: among the keys that lists
// has already, those that were found by this text before, and at last all keys of the queue.
func (h *Handler) search(ctx context.Context, e *entry, lists keyLists, known *poolKeys, text string) *foundReport {
	f := newFinder(text)
	for i, keys := range lists.all() {
		for _, k := range *keys {
			k.State = states[i]
			if found := f.listFor(k.raw); found != nil {
				found.add(k)
			}
		}
	}
	r := &foundReport{Search: newLabel(text, maxKey).short(), Exact: true, cheap: true}
	if e.queue.SnapshotKey != nil {
		for _, raw := range e.remembered(text) {
			if k, ok := e.queue.SnapshotKey(raw); ok {
				f.same.add(newKeyReport(k))
			}
		}
		// A text that was cut may be that of many keys.
		if len(f.same.keys) == 0 || len(text) >= maxShown {
			n, complete := h.searchAll(ctx, e, f)
			r.Incomplete, r.cheap = !complete, complete && n <= fewKeys
		}
		f.same.refresh(e.queue)
		f.like.refresh(e.queue)
	}
	r.Keys, r.More = f.same.keys, f.same.more
	if len(r.Keys) == 0 {
		r.Exact, r.Keys, r.More = false, f.like.keys, f.like.more
	} else if len(text) < maxShown {
		e.remember(text, r.Keys)
		r.cheap = true
	}
	for i := range r.Keys {
		known.describe(&r.Keys[i])
	}
	return r
}

// searchAll adds to f what it finds among all keys of the queue, and returns how many
// these are, and whether there was time for all.
func (h *Handler) searchAll(ctx context.Context, e *entry, f *finder) (n int, complete bool) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	select {
	case h.searching <- struct{}{}:
		defer func() { <-h.searching }()
	case <-ctx.Done():
		return 0, false
	}
	for k := range e.queue.SnapshotKeys() {
		if n++; n%256 == 0 && ctx.Err() != nil {
			return n, false
		}
		if found := f.listFor(k.Key); found != nil {
			found.add(newKeyReport(k))
		}
	}
	return n, true
}

// remembered returns the keys that were found by text.
func (e *entry) remembered(text string) []any {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.found[text]
}

func (e *entry) remember(text string, keys []keyReport) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.found == nil || len(e.mu.found) >= maxRemembered {
		e.mu.found = make(map[string][]any)
	}
	raw := make([]any, len(keys))
	for i, k := range keys {
		raw[i] = k.raw
	}
	e.mu.found[text] = raw
}

// finder collects keys that are called text, and keys whose texts contain it.
type finder struct {
	text string
	// escaped reports that text may be what the page shows of a key, instead of all of it.
	escaped    bool
	same, like foundKeys
}

// maxShown is the least length of a text that was cut.
const maxShown = maxKey - utf8.UTFMax + 1

func newFinder(text string) *finder {
	empty := func() foundKeys { return foundKeys{[]keyReport{}, make(map[any]int), false} }
	return &finder{text, len(text) >= maxShown || strings.Contains(text, `\`), empty(), empty()}
}

// listFor returns the list to which key belongs, or nil.
func (f *finder) listFor(key any) *foundKeys {
	switch text := keyText(key); {
	case text == f.text || f.escaped && newLabel(text, maxKey).Text == f.text:
		return &f.same
	case f.text != "" && strings.Contains(text, f.text):
		return &f.like
	}
	return nil
}

// foundKeys are keys that were found, each once.
type foundKeys struct {
	keys  []keyReport
	byKey map[any]int
	more  bool
}

// add adds k. If the key was found in another state before, it only fills in when it is due.
func (f *foundKeys) add(k keyReport) {
	if i, known := f.byKey[k.raw]; known {
		if have := &f.keys[i]; have.Due.IsZero() {
			have.Due = k.Due
		}
		return
	}
	if f.more = f.more || len(f.keys) == maxFound; !f.more {
		f.byKey[k.raw] = len(f.keys)
		f.keys = append(f.keys, k)
	}
}

// refresh replaces what was found by what q knows of these keys now: one may have been found in two states, or has
// moved meanwhile.
func (f *foundKeys) refresh(q workqueue.Inspector) {
	for i, k := range f.keys {
		if now, ok := q.SnapshotKey(k.raw); ok {
			f.keys[i] = newKeyReport(now)
		}
	}
}
