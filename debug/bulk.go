package debug

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
)

// bulkResult is what became of an action on many keys.
type bulkResult struct {
	// Keys is to how many it was done. Gone were there before, and not any more.
	Keys int `json:"keys"`
	Gone int `json:"gone"`
	// Left is how many were not done: the time was over, the queue was shut down, or its server did not answer.
	// LeftMore reports that there may be more than these.
	Left     int  `json:"left"`
	LeftMore bool `json:"left_more,omitempty"`
}

const (
	// bulkTime is how long an action on many keys may take. Then it counts those that are left, for countTime.
	bulkTime = 10 * time.Second
	// stepKeys is after how many keys it looks whether the queue was shut down.
	stepKeys = 128
)

// bulk is an action on many keys.
type bulk struct {
	*reading
	action string
	result bulkResult
	// step are the keys that were retried since the queue was last known to be open.
	step []any
	// unsure counts given-up keys that the queue did not find since then: they are gone, or it is shut down.
	unsure int
	// failed is why the others are left, or nil.
	failed error
}

// actOnMany does what form asks for to the keys that it names or, to retry and forget, to all of a set, as
// far as the time suffices.
func (h *Handler) actOnMany(ctx context.Context, r *reading, form url.Values) (*bulkResult, string, error) {
	ofSet, set := form.Has("of"), form.Get("of")
	switch {
	case r.missing != nil && (ofSet || needsQueue(form.Get("action"))):
		return nil, "", r.missing
	case ofSet && !isSet(set):
		return nil, "", errNoSuchSet
	case !ofSet && len(form["id"]) != len(form["key"]):
		return nil, "", refuse(http.StatusBadRequest, "Of several keys each needs the field id.")
	}
	ctx, done, noTurn := searchTurn(ctx, h.acting, bulkTime+countTime)
	defer done()
	if noTurn != nil {
		return nil, "", noTurn
	}
	acting, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	b := &bulk{reading: r, action: form.Get("action")}
	keys, confirmed, err := r.keysIn(set), len(form["key"]), error(nil)
	if ofSet {
		confirmed, err = strconv.Atoi(form.Get("count"))
	} else {
		named, err := r.named(acting, form["key"], form["id"])
		if err != nil {
			return nil, "", err
		}
		keys = slices.Values(named)
	}
	for k := range keys {
		if ctx.Err() != nil {
			r.more = true
			break
		}
		switch {
		case ofSet && !k.hasError(form.Get("error")):
		case b.failed != nil || acting.Err() != nil:
			b.result.Left++
		default:
			b.one(k)
		}
	}
	b.endStep()
	b.result.LeftMore = ofSet && r.more
	if err == nil {
		b.result.Gone = max(b.result.Gone, confirmed-b.result.Keys-b.result.Left)
	}
	text := b.result.sentence(keyActions[b.action].several)
	if b.failed != nil {
		b.failed = refuse(statusOf(b.failed), "%s %s", b.failed, text)
	}
	return &b.result, text, b.failed
}

// named returns the keys that the page shows with these texts and ids, as far as they are there. It returns
// an error if there was no time to look at all keys, or the queue's server stops answering. Of a queue that
// had no answer before, those that the pools have must do.
func (r *reading) named(ctx context.Context, texts, ids []string) (keys []knownKey, err error) {
	wasMissing := r.missing != nil
	called, wanted := make(map[string]bool), make(map[[2]string]bool)
	for i, text := range texts {
		called[text], wanted[[2]string{text, ids[i]}] = true, true
	}
	for k := range r.keysIn("") {
		if ctx.Err() != nil {
			return nil, errNoTime
		}
		text := keyText(k.key())
		if !called[text] {
			text = cut(text, maxKey)
		}
		if !called[text] {
			continue // Ids are not cheap.
		}
		if name := [2]string{text, keyID(k.key())}; wanted[name] {
			delete(wanted, name)
			k.named = true
			if keys = append(keys, k); len(wanted) == 0 {
				return keys, nil
			}
		}
	}
	if wasMissing {
		return keys, nil
	}
	return keys, r.missing
}

// one acts on a key.
func (b *bulk) one(k knownKey) {
	began := time.Now()
	switch {
	case !b.isForgotten(k) && b.do(b.action, k):
		b.result.Keys++
		if b.action == "retry" {
			b.step = append(b.step, k.key())
		}
		if len(b.step) == stepKeys {
			b.endStep()
		}
	case needsQueue(b.action) && b.noteMissing(began) != nil: // It may be there still.
		b.result.Left, b.failed = b.result.Left+1, b.missing
	case k.kept: // So may this one, if the queue has ended.
		if b.unsure++; b.unsure == stepKeys {
			b.endStep()
		}
	default:
		b.result.Gone++
	}
}

// isForgotten reports that nothing is known of the failures of a key of a set, any more.
func (r *reading) isForgotten(k knownKey) bool {
	if k.kept || k.named || k.failure() == nil {
		return false
	}
	now := knownKey{inQueue: workqueue.KeySnapshot[any]{Key: k.key()}}
	r.look(&now)
	return now.failure() == nil
}

// endStep takes back the keys of the step that the queue did not take, and decides what the unsure ones are.
// It asks the queue, perhaps a server, so it is not called for each key.
func (b *bulk) endStep() {
	if refused := b.refused(b.step); refused > 0 {
		b.result.Keys, b.result.Left = b.result.Keys-refused, b.result.Left+refused
		b.failed = cmp.Or(b.failed, errShutDown)
	}
	b.step = b.step[:0]
	if b.unsure > 0 && b.hasShutDown() {
		b.result.Left, b.failed = b.result.Left+b.unsure, cmp.Or(b.failed, errShutDown)
	} else {
		b.result.Gone += b.unsure
	}
	b.unsure = 0
}

func (b *bulkResult) sentence(done string) string {
	keys := func(n int, one, more string) string {
		if n == 1 {
			return one
		}
		return number(n) + more
	}
	text := done + " " + keys(b.Keys, "one key", " keys")
	if b.Gone > 0 {
		text += "; " + keys(b.Gone, "one was gone", " were gone")
	}
	if b.Left > 0 {
		text += "; " + keys(b.Left, "one is left", " are left")
	}
	if b.LeftMore {
		text += "; there may be more"
	}
	return text + "."
}

var errShutDown = refuse(http.StatusConflict, "The queue was shut down meanwhile, and takes no more keys.")

// hasShutDown reports whether the queue is shut down by now. Then it may keep its given-up keys as they are.
func (r *reading) hasShutDown() bool { return r.entry.queue.Stats().ShuttingDown }

// refused returns how many of keys, which were added, the queue did not take because it was shut down before.
func (r *reading) refused(keys []any) (n int) {
	q := r.entry.queue
	if len(keys) == 0 || !r.hasShutDown() {
		return 0
	}
	for _, key := range keys {
		k, found := q.SnapshotKey(key)
		if !found || k.State != workqueue.KeyQueued && !(k.State == workqueue.KeyProcessing && k.Again) {
			n++
		}
	}
	return n
}

var errNoSuchSet = refuse(http.StatusBadRequest, "The sets of keys are failing, given_up and all.")

// countTime is how long it may take to count keys.
const countTime = 5 * time.Second

// countReport is how many keys an action on many keys would be for.
type countReport struct {
	Count int `json:"count"`
	// More reports that there may be more: there was no time to count all, or only a part was listed.
	More   bool   `json:"more"`
	Error  string `json:"error,omitempty"`
	status int    // of the answer
}

// newCountReport counts the keys of e in the set that the field count of query names.
func (h *Handler) newCountReport(ctx context.Context, e *entry, query url.Values) *countReport {
	c := &countReport{status: http.StatusOK}
	if err := c.fill(ctx, h, e, query.Get("count"), query.Get("error")); err != nil {
		c.Error, c.status = err.Error(), statusOf(err)
		c.More = c.More || c.status == http.StatusServiceUnavailable // no answer of the queue, or no turn
	}
	return c
}

func (c *countReport) fill(ctx context.Context, h *Handler, e *entry, set, text string) error {
	if !isSet(set) {
		return errNoSuchSet
	}
	r := h.read(e, searchLimit)
	if r.missing != nil {
		return r.missing
	}
	ctx, done, noTurn := searchTurn(ctx, h.searching, countTime)
	defer done()
	if noTurn != nil {
		return noTurn
	}
	for k := range r.keysIn(set) {
		if ctx.Err() != nil {
			break
		}
		if k.hasError(text) {
			c.Count++
		}
	}
	c.More = r.more || ctx.Err() != nil
	return nil
}
