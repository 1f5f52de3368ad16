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
	do      *action
	r       *reading
	walk    *keyWalk
	until   time.Time // when it must end
	outcome outcome
	// failed is why the others are left, or nil.
	failed error
}

// actOnKeys does what form asks for to the key that it names, or to a set. Text says what was done.
func (r *reading) actOnKeys(do *action, form url.Values) (o outcome, text string, err error) {
	r.readKeys()
	if r.missing != nil && !do.ofPools {
		return o, "", refuse(statusOf(r.missing), "%s Nothing was done.", r.missing)
	}
	a := &keyAction{do: do, r: r, walk: &keyWalk{reading: r}, until: time.Now().Add(actionTime)}
	if form.Has("of") {
		text, err = a.onSet(form.Get("of"), form.Get("error"), form.Get("count"))
	} else {
		text, err = a.onKey(form.Get("key"), form.Get("id"))
	}
	return a.outcome, text, err
}

// onSet acts on all keys of a set whose errors contain text. confirmed is how many the reader has expected.
func (a *keyAction) onSet(set, text, confirmed string) (string, error) {
	states := statesOf(set)
	if states == nil {
		return "", errNoSet
	}
	a.each(a.walk.keys(text, states...))
	o := &a.outcome
	o.LeftMore = a.walk.isPartial()
	if n, err := strconv.Atoi(confirmed); err == nil && !o.LeftMore {
		o.Gone = max(o.Gone, n-o.Keys-o.Left)
	}
	text = o.sentence(a.do.doneToAll)
	if err := cmp.Or(a.failed, a.r.missing); err != nil {
		return text, refuse(statusOf(err), "%s %s", err, text)
	}
	return text, nil
}

// onKey acts on the key that the page shows with that text and, unless it is empty, that id.
func (a *keyAction) onKey(text, id string) (string, error) {
	s := a.search(text, id)
	switch {
	case a.r.missing != nil && !a.do.ofPools:
		return "", a.r.missing
	case a.r.ctx.Err() != nil:
		return "", errNoTime
	case len(s.keys) == 0 || !s.exact:
		return "", refuse(http.StatusNotFound, "%s", a.do.noKey)
	case len(s.keys) > 1:
		return "", refuse(http.StatusConflict, "More than one key is called that.")
	}
	a.each(slices.Values(s.keys))
	switch {
	case a.failed != nil:
		return "", a.failed
	case a.outcome.Keys == 0:
		return "", refuse(http.StatusNotFound, "%s", a.do.noKey)
	case a.do.Name == "retry":
		return a.r.retryText(s.keys[0].key()), nil
	}
	return fmt.Sprintf(a.do.doneToKey, called(short(text, maxKeyBytes))), nil
}

// search looks for a key. An action of pools needs only those that they hold, so that the queue need not
// answer.
func (a *keyAction) search(text, id string) *search {
	s := a.r.startSearch(text, id)
	switch {
	case s.exact:
	case a.do.ofPools:
		s.goOver(concat(a.walk.listed(stateOnHold), a.walk.listed(stateProcessing)))
	default:
		s.goOver(a.walk.all())
	}
	s.finish(a.r)
	return s
}

// each acts on the keys until the time is over, or the queue's server does not answer any more.
func (a *keyAction) each(keys iter.Seq[knownKey]) {
	for k := range keys {
		began := time.Now()
		switch {
		case a.failed != nil || !began.Before(a.until):
			a.outcome.Left++
		case a.do.toKey(a.r, k):
			a.outcome.Keys++
		case !a.do.ofPools && a.r.checkServer(began) != nil: // It may be there still.
			a.outcome.Left++
			a.failed = a.r.missing
		default:
			a.outcome.Gone++
		}
	}
	if a.failed == nil && a.do.ifShutDown != "" && a.r.entry.queue.Stats().ShuttingDown {
		a.failed = errEnded
	}
}

// countPage reports how many keys an action would be for: those of r in the set that the field count of query
// names, whose errors contain the field error.
func (h *Handler) countPage(r *reading, query url.Values) (status int, p page) {
	states, report := statesOf(query.Get("count")), countReport{}
	err := errNoSet
	if states != nil {
		r.readKeys()
		defer h.takeTurn(r, states...)()
		w := &keyWalk{reading: r}
		for range w.keys(query.Get("error"), states...) {
			report.Count++
		}
		report.More, err = w.isPartial(), r.missing
	}
	if err != nil {
		report.Error = err.Error()
	}
	return statusOf(err), page{json: report}
}
