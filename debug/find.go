package debug

import (
	"strings"
	"time"
)

const (
	// maxSearched is how many keys of each state a search looks at.
	maxSearched = 1_000_000
	// maxFound is how many keys a search returns.
	maxFound = 25
)

// States of a key that was found. The first one that fits is its state.
var states = []string{"processing", "queued", "waiting", "failing", "given_up"}

// foundReport is what a search has found.
type foundReport struct {
	Search string `json:"search"`
	// Exact reports that the keys are called exactly that. If none is, they are those whose texts contain it.
	Exact bool        `json:"exact"`
	Keys  []keyReport `json:"keys"`
	// More reports that there are more keys than those.
	More bool `json:"more"`
}

// search looks for the keys that are called text, or else for those whose texts contain it.
func (h *Handler) search(e *entry, pools []*pool, text string, now time.Time) (r *foundReport, err string) {
	h.searching.Lock()
	defer h.searching.Unlock()
	queue, snapshots, err := e.keys(pools, maxSearched)
	lists := newKeyLists(queue, snapshots, maxSearched)
	same := finder{wanted: func(s string) bool { return s == text || newLabel(s, maxKey).Text == text }}
	like := finder{wanted: func(s string) bool { return strings.Contains(s, text) }}
	same.look(&lists)
	r = &foundReport{Search: newLabel(text, maxKey).short(), Exact: true, Keys: same.keys, More: same.more}
	if len(same.keys) == 0 {
		like.look(&lists)
		r.Exact, r.Keys, r.More = false, like.keys, like.more
	}
	for i := range r.Keys {
		r.Keys[i].finish(now)
	}
	return r, err
}

// finder collects keys whose texts are wanted.
type finder struct {
	wanted func(text string) bool
	keys   []keyReport
	byKey  map[any]int
	more   bool
}

func (f *finder) look(l *keyLists) {
	f.byKey = make(map[any]int)
	f.keys = []keyReport{}
	for i, keys := range l.all() {
		for _, k := range *keys {
			if f.wanted(keyText(k.raw)) {
				k.State = states[i]
				f.found(k)
			}
		}
	}
}

// found adds k. If the key was found in another state before, it only fills in what is missing there.
func (f *finder) found(k keyReport) {
	i, known := f.byKey[k.raw]
	if !known {
		if f.more = f.more || len(f.keys) == maxFound; !f.more {
			f.byKey[k.raw] = len(f.keys)
			f.keys = append(f.keys, k)
		}
		return
	}
	have := &f.keys[i]
	if have.Due.IsZero() {
		have.Due = k.Due
	}
	if have.FailedAt.Before(k.FailedAt) {
		have.FailedAt, have.Error = k.FailedAt, k.Error
	}
	have.Attempt = max(have.Attempt, k.Attempt)
	have.Requeues = max(have.Requeues, k.Requeues)
}
