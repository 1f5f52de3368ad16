package debug

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
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

// searchLimit is how many keys of each state a search asks for, before it goes over all keys of the queue. A queue
// returns no more.
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

	// Unanswered are the queues that did not answer, or not in time, if all were searched.
	Unanswered []queueName `json:"unanswered,omitempty"`

	// cheap reports that the same search need not look at all keys again.
	cheap bool
	// failure is what has panicked, or nil.
	failure error
}

// search looks for the keys that are called text (and have that id, unless it is empty), or else for those whose texts contain
// it: among those that r has, the keys that were found so before, and, when turn lets it, all keys of the queue and its pools.
// A key with an id that was found before is found even if nothing is known of it any more.
func (h *Handler) search(ctx context.Context, turn chan struct{}, r *reading, text, id string) *foundReport {
	report := &foundReport{Search: newLabel(text, maxKey).short(), Exact: true, Keys: []keyReport{}, Incomplete: r.late}
	if r.late {
		return report
	}
	known := r.poolKeys()
	f := newFinder(text, id)
	f.addLists(newKeyLists(r.keys, known))
	for _, raw := range r.entry.recall(text, id) {
		k := keyReport{raw: raw, State: stateAbsent}
		report.failure = cmp.Or(report.failure, r.lookUp(&k, known))
		if id != "" || k.State != stateAbsent {
			f.same.add(k)
		}
	}
	report.cheap = true
	// A text that was cut may be that of many keys.
	if len(f.same.keys) == 0 || id == "" && len(text) >= maxShown {
		ctx, done := searchTurn(ctx, turn, searchTime)
		defer done()
		n, complete, failure := r.searchAll(ctx, f)
		report.Incomplete, report.cheap = !complete, complete && n <= fewKeys
		report.failure = cmp.Or(report.failure, failure)
	}
	found := f.same
	if len(found.keys) == 0 {
		report.Exact, found = false, f.like
	} else if id != "" || len(text) < maxShown {
		r.entry.remember(text, id, found.keys)
		report.cheap = true
	}
	report.Keys, report.More = append(report.Keys, found.keys...), found.more
	for i := range report.Keys {
		// It may be in two states, or has moved meanwhile.
		report.failure = cmp.Or(report.failure, r.lookUp(&report.Keys[i], known))
		report.Keys[i].ID = keyID(report.Keys[i].raw)
	}
	return report
}

// searchTurn waits for the token of turn, with which one caller at a time goes over all keys of a queue. It returns a context
// for this caller, which ends with ctx or after limit, and a function that lets the next one begin.
func searchTurn(ctx context.Context, turn chan struct{}, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	select {
	case turn <- struct{}{}:
		return ctx, func() {
			cancel()
			<-turn
		}
	case <-ctx.Done():
		return ctx, cancel
	}
}

// searchAll adds to f what it finds among all keys that the queue and its pools have, and returns how many
// these are, and whether there was time for all.
func (r *reading) searchAll(ctx context.Context, f *finder) (n int, complete bool, failure error) {
	complete = ctx.Err() == nil
	goOn := func() bool {
		n++
		complete = complete && (n%256 > 0 || ctx.Err() == nil)
		return complete
	}
	failure = guarded("queue", func() {
		if complete && r.entry.queue.SnapshotKeys != nil {
			for k := range r.entry.queue.SnapshotKeys() {
				if found := f.listFor(k.Key); found != nil {
					found.add(newKeyReport(k))
				}
				if !goOn() {
					return
				}
			}
		}
		for k := range r.troubled(everyTrouble, "", false, new(bool)) {
			if found := f.listFor(k.Key); found != nil {
				found.add(keyReport{raw: k.Key, State: k.state})
			}
			if !goOn() {
				return
			}
		}
	})
	return n, complete && failure == nil, failure
}

// searchers is how many queues are searched at once.
const searchers = 4

// searchEverywhere looks for text in all queues, as search does in one.
func (h *Handler) searchEverywhere(ctx context.Context, text string) *foundReport {
	ctx, done := searchTurn(ctx, h.searching, searchTime)
	defer done()
	readings := h.readAll(ctx)
	type answer struct {
		*reading
		found    *finder
		complete bool
	}
	next, answers := make(chan *reading, len(readings)), make(chan answer, len(readings))
	unanswered := make(map[*entry]bool)
	for _, r := range readings {
		unanswered[r.entry] = true
		if !r.late {
			next <- r
		}
	}
	asked := len(next)
	close(next)
	for range min(searchers, asked) {
		if !h.goUnlessClosed(func() {
			for r := range next {
				a := answer{reading: r, found: newFinder(text, "")}
				if now := h.ask(ctx, r.entry, searchLimit); now != nil {
					a.complete = now.searchInto(ctx, a.found)
				}
				answers <- a
			}
		}) {
			asked = 0
			break
		}
	}
	var same, like foundKeys
	for ctx.Err() == nil && asked > 0 {
		select {
		case a := <-answers:
			asked--
			same.addFrom(a.entry, a.found.same)
			like.addFrom(a.entry, a.found.like)
			if a.complete {
				delete(unanswered, a.entry)
			}
		case <-ctx.Done():
		}
	}
	report := &foundReport{Search: newLabel(text, maxKey).short(), Exact: len(same.keys) > 0, Incomplete: len(unanswered) > 0}
	if !report.Exact {
		same = like
	}
	report.Keys, report.More = append([]keyReport{}, same.keys...), same.more
	slices.SortStableFunc(report.Keys, func(a, b keyReport) int { return cmp.Compare(a.Queue.Name, b.Queue.Name) })
	for e := range unanswered {
		report.Unanswered = append(report.Unanswered, queueName{e.id, e.name})
	}
	slices.SortFunc(report.Unanswered, func(a, b queueName) int { return cmp.Compare(a.ID, b.ID) })
	return report
}

// searchInto adds to f what it finds in r and among all keys, and reports whether there was time for all.
func (r *reading) searchInto(ctx context.Context, f *finder) (complete bool) {
	known := r.poolKeys()
	f.addLists(newKeyLists(r.keys, known))
	_, complete, failure := r.searchAll(ctx, f)
	for _, found := range []foundKeys{f.same, f.like} {
		for i := range found.keys {
			failure = cmp.Or(failure, r.lookUp(&found.keys[i], known))
			found.keys[i].ID = keyID(found.keys[i].raw)
		}
	}
	return complete && failure == nil
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
	raw := make([]any, len(keys))
	for i, k := range keys {
		raw[i] = k.raw
	}
	e.mu.found[[2]string{text, id}] = raw
}

// maxShown is the least length of a text that was cut.
const maxShown = maxKey - utf8.UTFMax + 1

// finder collects keys that are called text, and keys whose texts contain it.
type finder struct {
	text, id string
	// escaped reports that text may be what the page shows of a key, instead of all of it.
	escaped    bool
	same, like foundKeys
}

func newFinder(text, id string) *finder {
	return &finder{text: text, id: id, escaped: len(text) >= maxShown || strings.Contains(text, `\`)}
}

// listFor returns the list to which key belongs, or nil.
func (f *finder) listFor(key any) *foundKeys {
	switch text := keyText(key); {
	case text == f.text || f.escaped && newLabel(text, maxKey).Text == f.text:
		if f.id == "" || keyID(key) == f.id {
			return &f.same
		}
	case f.id == "" && f.text != "" && strings.Contains(text, f.text):
		return &f.like
	}
	return nil
}

func (f *finder) addLists(lists keyLists) {
	for i, keys := range lists.all() {
		for _, k := range *keys {
			k.State = states[i]
			if found := f.listFor(k.raw); found != nil {
				found.add(k)
			}
		}
	}
}

// foundKeys are the first keys that were found, each once.
type foundKeys struct {
	keys []keyReport
	more bool
}

func (f *foundKeys) add(k keyReport) {
	if f.more || slices.ContainsFunc(f.keys, func(have keyReport) bool { return have.raw == k.raw && have.Queue == k.Queue }) {
		return
	}
	if f.more = len(f.keys) == maxFound; !f.more {
		f.keys = append(f.keys, k)
	}
}

// addFrom adds what was found in e.
func (f *foundKeys) addFrom(e *entry, found foundKeys) {
	for _, k := range found.keys {
		k.Queue = &queueName{e.id, e.name}
		f.add(k)
	}
	f.more = f.more || found.more
}
