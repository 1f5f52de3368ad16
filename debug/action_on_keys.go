package debug

import (
	"cmp"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	// actionTime is how long an action may take. One on a set then counts the keys that are left, for countTime.
	actionTime = 10 * time.Second
	countTime  = 5 * time.Second
)

var (
	errNoTime = refuse(http.StatusServiceUnavailable, "There was no time to look at all keys.")
	errNoSet  = refuse(http.StatusBadRequest, "The sets of keys are failing, given_up and all.")
	errEnded  = refuse(http.StatusConflict, "The queue was shut down meanwhile, and has not taken all keys.")
)

// keyAction is an action on keys, and what has become of it.
type keyAction struct {
	walk  *keyWalk
	do    *action
	until time.Time // when it must end
	done  keysDone
	// failed is why the others are left, or nil.
	failed error
}

// actOnKeys does what form asks for to the key that it names, or to a set. Text says what was done.
func (h *Handler) actOnKeys(r *reading, do *action, form url.Values) (done keysDone, text string, err error) {
	r.readKeys()
	if r.missing != nil && !do.ofPools {
		return done, "", r.missing
	}
	a := &keyAction{walk: &keyWalk{reading: r}, do: do, until: time.Now().Add(actionTime)}
	if form.Has("of") {
		text, err = a.set(form.Get("of"), form.Get("error"), form.Get("count"))
	} else {
		text, err = a.single(form.Get("key"), form.Get("id"))
	}
	return a.done, text, err
}

// set acts on all keys of a set whose errors contain text. confirmed is how many the reader has expected.
func (a *keyAction) set(set, text, confirmed string) (string, error) {
	states := statesOf(set)
	if states == nil {
		return "", errNoSet
	}
	a.each(a.walk.keys(text, states...))
	d := &a.done
	d.LeftMore = a.walk.isPartial()
	if n, err := strconv.Atoi(confirmed); err == nil {
		d.Gone = max(d.Gone, n-d.Keys-d.Left)
	}
	text = d.sentence(a.do.doneToAll)
	if err := cmp.Or(a.failed, a.walk.missing); err != nil {
		return text, refuse(statusOf(err), "%s %s", err, text)
	}
	return text, nil
}

// single acts on one key.
func (a *keyAction) single(text, id string) (string, error) {
	keys, err := a.find(text, id)
	switch {
	case err != nil:
		return "", err
	case len(keys) > 1:
		return "", refuse(http.StatusConflict, "More than one key is called that.")
	}
	a.each(slices.Values(keys))
	switch {
	case a.failed != nil:
		return "", a.failed
	case a.done.Keys == 0:
		return "", refuse(http.StatusNotFound, "%s", a.do.noKey)
	case a.do.Name == "retry":
		return a.walk.retryText(keys[0].key()), nil
	}
	return fmt.Sprintf(a.do.done, called(short(text, maxKey))), nil
}

// find returns the keys that the page shows with that text and, unless it is empty, that id. If the queue
// does not answer, the keys that the pools know must do for an action of theirs.
func (a *keyAction) find(text, id string) (keys []knownKey, err error) {
	w, s := a.walk, a.walk.startSearch(text, id)
	switch {
	case s.exact:
	case a.do.ofPools:
		s.goOver(concat(w.listed(stateOnHold), w.listed(stateProcessing)))
	default:
		s.goOver(w.all())
	}
	s.look(w.reading)
	switch {
	case w.missing != nil && !a.do.ofPools:
		return nil, w.missing
	case w.ctx.Err() != nil:
		return nil, errNoTime
	case !s.exact:
		return nil, nil
	}
	return s.keys, nil
}

// each acts on the keys until the time is over, or the queue's server does not answer any more.
func (a *keyAction) each(keys iter.Seq[knownKey]) {
	for k := range keys {
		began := time.Now()
		switch {
		case a.failed != nil || !began.Before(a.until):
			a.done.Left++
		case a.do.toKey(a.walk.reading, k):
			a.done.Keys++
		case !a.do.ofPools && a.walk.noteMissing(began) != nil: // It may be there still.
			a.done.Left++
			a.failed = a.walk.missing
		default:
			a.done.Gone++
		}
	}
	if a.failed == nil && a.do.ifShutDown != "" && a.walk.entry.queue.Stats().ShuttingDown {
		a.failed = errEnded
	}
}

// countPage reports how many keys of r an action would be for: those in the set that the field count of query
// names.
func (h *Handler) countPage(r *reading, query url.Values) (status int, p page) {
	n, isPartial, err := h.count(r, query.Get("count"), query.Get("error"))
	report := countReport{Count: n, More: isPartial}
	if err != nil {
		report.Error = err.Error()
	}
	return statusOf(err), page{json: report}
}

// count counts the keys of a set whose errors contain text. If isPartial, there may be more.
func (h *Handler) count(r *reading, set, text string) (n int, isPartial bool, err error) {
	states := statesOf(set)
	if states == nil {
		return 0, false, errNoSet
	}
	r.readKeys()
	if r.missing != nil {
		return 0, true, r.missing
	}
	done, err := h.turnFor(r, states...)
	defer done()
	if err != nil {
		return 0, true, err
	}
	w := &keyWalk{reading: r}
	for range w.keys(text, states...) {
		n++
	}
	return n, w.isPartial(), nil
}
