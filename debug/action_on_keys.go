package debug

import (
	"cmp"
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

// onKeys is an action on keys, which the keyWalk finds.
type onKeys struct {
	*keyWalk
	*action
	until  time.Time // when it must end
	result bulkResult
	// failed is why the others are left, or nil.
	failed error
}

// actOnKeys does what form asks for to the keys that it names, or to a set. The result is nil if it names one
// key; text says what was done.
func (h *Handler) actOnKeys(r *reading, do *action, form url.Values) (*bulkResult, string, error) {
	if r.readKeys(); r.missing != nil && !do.ofPools {
		return nil, "", r.missing
	}
	ofSet := form.Has("of") && do.ForAll != ""
	if ofSet || form.Get("id") == "" { // A key with an id does not wait for those who go over all.
		done, err := h.acting.take(r.ctx)
		defer done()
		if err != nil {
			return nil, "", err
		}
	}
	a := &onKeys{keyWalk: &keyWalk{reading: r}, action: do, until: time.Now().Add(actionTime)}
	if ofSet {
		return a.set(form.Get("of"), form.Get("error"), form.Get("count"))
	}
	text, err := a.single(form.Get("key"), form.Get("id"))
	return nil, text, err
}

// set acts on all keys of a set whose errors contain text. confirmed is how many the reader has expected.
func (a *onKeys) set(set, text, confirmed string) (*bulkResult, string, error) {
	states := statesOf(set)
	if states == nil {
		return nil, "", errNoSet
	}
	a.each(a.keys(text, states...))
	a.failed = cmp.Or(a.failed, a.missing)
	a.result.LeftMore = a.isPartial()
	if n, err := strconv.Atoi(confirmed); err == nil {
		a.result.Gone = max(a.result.Gone, n-a.result.Keys-a.result.Left)
	}
	return a.answer()
}

// single acts on one key, and says what was done.
func (a *onKeys) single(text, id string) (string, error) {
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
	case a.result.Keys == 0:
		return "", refuse(http.StatusNotFound, "%s", a.noKey)
	case a.Name == "retry":
		return a.retryText(keys[0].key()), nil
	}
	return a.doneText(text), nil
}

// find returns the keys that the page shows with that text and, unless it is empty, that id. If the queue
// does not answer, the keys that the pools know must do for an action of theirs.
func (a *onKeys) find(text, id string) (keys []knownKey, err error) {
	s := a.startSearch(text, id)
	switch {
	case s.exact:
	case a.ofPools:
		s.goOver(concat(a.listed(stateOnHold), a.listed(stateProcessing)))
	default:
		s.goOver(a.all())
	}
	s.look(a.reading)
	switch {
	case a.missing != nil && !a.ofPools:
		return nil, a.missing
	case a.ctx.Err() != nil:
		return nil, errNoTime
	}
	for _, k := range s.keys {
		if s.exact && k.state() != stateAbsent {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// each acts on the keys until the time is over, or the queue's server does not answer any more.
func (a *onKeys) each(keys iter.Seq[knownKey]) {
	for k := range keys {
		if a.failed != nil || !time.Now().Before(a.until) {
			a.result.Left++
		} else {
			a.one(k)
		}
	}
	if a.failed == nil && a.ifShutDown != "" && a.entry.queue.Stats().ShuttingDown {
		a.failed = errEnded
	}
}

func (a *onKeys) one(k knownKey) {
	began := time.Now()
	switch done := a.toKey(a.reading, k); {
	case done:
		a.result.Keys++
	case !a.ofPools && a.noteMissing(began) != nil: // It may be there still.
		a.result.Left, a.failed = a.result.Left+1, a.missing
	default:
		a.result.Gone++
	}
}

func (a *onKeys) answer() (*bulkResult, string, error) {
	text := a.result.sentence(a.doneToAll)
	if a.failed != nil {
		a.failed = refuse(statusOf(a.failed), "%s %s", a.failed, text)
	}
	return &a.result, text, a.failed
}
