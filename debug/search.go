package debug

import (
	"context"
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
	// fewKeys is how many keys a page may look at again and again.
	fewKeys = 10_000
	// maxRemembered is how many searches a queue remembers.
	maxRemembered = 64
)

// searchLimit is how many keys of each state a search asks for, before it goes over all keys of the queue. More are not
// to be had at once.
const searchLimit = 512

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
	f := &finder{text: text, escaped: len(text) >= maxShown || strings.Contains(text, `\`)}
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
		e.mu.Lock()
		before := e.mu.found[text]
		e.mu.Unlock()
		for _, raw := range before {
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
	found := f.same
	if len(found.keys) == 0 {
		r.Exact, found = false, f.like
	} else if len(text) < maxShown {
		e.remember(text, found.keys)
		r.cheap = true
	}
	r.Keys, r.More = append([]keyReport{}, found.keys...), found.more
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

// remember lets the next search for text look up its keys.
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

// maxShown is the least length of a text that was cut.
const maxShown = maxKey - utf8.UTFMax + 1

// finder collects keys that are called text, and keys whose texts contain it.
type finder struct {
	text string
	// escaped reports that text may be what the page shows of a key, instead of all of it.
	escaped    bool
	same, like foundKeys
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

// foundKeys are the first keys that were found, each once.
type foundKeys struct {
	keys []keyReport
	more bool
}

func (f *foundKeys) add(k keyReport) {
	if f.more || slices.ContainsFunc(f.keys, func(have keyReport) bool { return have.raw == k.raw }) {
		return
	}
	if f.more = len(f.keys) == maxFound; !f.more {
		f.keys = append(f.keys, k)
	}
}

// refresh replaces what was found by what q knows of these keys now: one may be in two states, or has moved meanwhile.
func (f *foundKeys) refresh(q workqueue.Inspector) {
	for i, k := range f.keys {
		if now, ok := q.SnapshotKey(k.raw); ok {
			f.keys[i] = newKeyReport(now)
		}
	}
}
