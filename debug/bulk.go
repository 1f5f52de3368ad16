package debug

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
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
	text     string
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
	retries bool
	result  bulkResult
	// step are the keys that were retried since the queue was last known to be open.
	step []any
	// unsure counts given-up keys that the queue did not find since then: they are gone, or it is shut down.
	unsure int
	// failed is why the others are left, or nil.
	failed error
}

// actOnMany retries or forgets all keys of the set that form names, as far as the time suffices.
func (h *Handler) actOnMany(ctx context.Context, r *reading, form url.Values) (*bulkResult, error) {
	if r.missing != nil {
		return nil, r.missing
	}
	set := form.Get("of")
	if !isSet(set) {
		return nil, errNoSuchSet
	}
	ctx, next, noTurn := searchTurn(ctx, h.acting, bulkTime+countTime)
	defer next()
	if noTurn != nil {
		return nil, noTurn
	}
	acting, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	b := &bulk{reading: r, retries: form.Get("action") == "retry"}
	r.err = nil
	more := r.visit(ctx, set, form.Get("error"), func(f failure) {
		if b.failed != nil || acting.Err() != nil {
			b.result.Left++
		} else {
			b.one(f)
		}
	})
	b.endStep()
	b.result.LeftMore = more
	if confirmed, err := strconv.Atoi(form.Get("count")); err == nil {
		b.result.Gone = max(b.result.Gone, confirmed-b.result.Keys-b.result.Left)
	}
	done := "Forgot the failures of"
	if b.retries {
		done = "Retried"
	}
	b.result.text = b.result.sentence(done)
	if b.failed != nil {
		b.failed = refuse(statusOf(b.failed), "%s %s", b.failed, b.result.text)
	}
	return &b.result, cmp.Or(b.failed, r.err)
}

// one acts on a key.
func (b *bulk) one(f failure) {
	do := b.forget
	if b.retries {
		do = b.retry
	}
	began := time.Now()
	switch {
	case !f.isGone() && do(f.Key, f.kept):
		b.result.Keys++
		if b.retries {
			b.step = append(b.step, f.Key)
		}
		if len(b.step) == stepKeys {
			b.endStep()
		}
	case b.noteMissing(began) != nil: // It may be there still.
		b.result.Left, b.failed = b.result.Left+1, b.missing
	case f.kept: // So may this one, if the queue has ended.
		if b.unsure++; b.unsure == stepKeys {
			b.endStep()
		}
	default:
		b.result.Gone++
	}
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
