package debug

import (
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

// onKeys is an action on keys, which the walk finds.
type onKeys struct {
	*walk
	*action
	until  time.Time // when it must end
	result bulkResult
	// failed is why the others are left, or nil.
	failed error
}

// actOnKeys does what form asks for to the keys that it names, or to a set. The result is nil if it names one
// key; text says what was done.
func (h *Handler) actOnKeys(r *reading, do *action, form url.Values) (*bulkResult, string, error) {
	if r.missing != nil && !do.ofPools {
		return nil, "", r.missing
	}
	ids := slices.DeleteFunc(form["id"], func(id string) bool { return id == "" })
	ofSet := form.Has("of") && do.ForAll != ""
	if ofSet || len(ids) != 1 { // One key does not wait for those who go over all.
		done, err := searchTurn(r.ctx, h.acting)
		defer done()
		if err != nil {
			return nil, "", err
		}
	}
	a := &onKeys{walk: &walk{reading: r}, action: do, until: time.Now().Add(actionTime)}
	if ofSet {
		return a.set(form.Get("of"), form.Get("error"), form.Get("count"))
	}
	return a.named(form["key"], ids)
}

// set acts on all keys of a set whose errors contain text. confirmed is how many the reader has expected.
func (a *onKeys) set(set, text, confirmed string) (*bulkResult, string, error) {
	if !isSet(set) {
		return nil, "", errNoSet
	}
	a.each(a.keysWith(set, text))
	a.result.LeftMore = a.isPartial()
	if n, err := strconv.Atoi(confirmed); err == nil {
		a.result.Gone = max(a.result.Gone, n-a.result.Keys-a.result.Left)
	}
	return a.answer()
}

// named acts on the keys that the page shows with these texts and ids, once all are found.
func (a *onKeys) named(texts, ids []string) (*bulkResult, string, error) {
	wasMissing, isOne := a.missing != nil, len(texts) == 1
	if !isOne && len(ids) != len(texts) {
		return nil, "", refuse(http.StatusBadRequest, "Of several keys each needs the field id.")
	}
	keys := a.find(texts, ids)
	if isOne && len(keys) == 1 {
		if a.look(&keys[0]); keys[0].state() == stateAbsent {
			keys = nil
		}
	}
	switch {
	case a.missing != nil && !wasMissing: // Of a queue that had no answer before, the pools' keys must do.
		return nil, "", a.missing
	case a.ctx.Err() != nil:
		return nil, "", errNoTime
	case isOne && len(keys) > 1:
		return nil, "", refuse(http.StatusConflict, "More than one key is called that.")
	}
	a.each(slices.Values(keys))
	a.result.Gone = max(a.result.Gone, len(texts)-a.result.Keys-a.result.Left)
	switch {
	case !isOne:
		return a.answer()
	case a.failed != nil:
		return nil, "", a.failed
	case len(keys) == 0 || a.result.Gone > 0 && a.Name != "forget":
		return nil, "", refuse(http.StatusNotFound, "%s", a.noKey)
	case a.Name == "retry":
		return nil, a.retryText(keys[0]), nil
	}
	return nil, a.doneText(texts[0]), nil
}

// find returns the keys that the page shows with these texts and ids, as far as they are there. Without ids
// it returns all that have the text. It ends early if only the pools' keys matter, which come first.
func (a *onKeys) find(texts, ids []string) (keys []knownKey) {
	wanted, found := make(map[string][]string), make(map[any]bool) // ids by texts
	add := func(k knownKey) (isComplete bool) {
		if k.named = true; !found[k.key()] {
			found[k.key()] = true
			keys = append(keys, k)
		}
		return len(keys) == len(texts) && (len(ids) > 0 || a.ofPools)
	}
	for i, text := range texts {
		wanted[text] = append(wanted[text], ids[min(i, len(ids)):min(i+1, len(ids))]...)
		if k, isThere := a.stringKey(text, wanted[text]); isThere && add(k) {
			return keys
		}
	}
	for k := range a.keysIn("") {
		text := keyText(k.key())
		if _, isWanted := wanted[text]; !isWanted {
			text = cut(text, maxKey)
		}
		of, isWanted := wanted[text]
		if isWanted && (len(of) == 0 || slices.Contains(of, keyID(k.key()))) && add(k) {
			break
		}
	}
	return keys
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
	text := a.result.sentence(a.several)
	if a.failed != nil {
		a.failed = refuse(statusOf(a.failed), "%s %s", a.failed, text)
	}
	return &a.result, text, a.failed
}
