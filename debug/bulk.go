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
	// Left is how many there was no time for, and LeftMore reports that there may be more than these.
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

// actOnMany retries or forgets all keys of the set that form names, as far as the time suffices.
func (h *Handler) actOnMany(ctx context.Context, r *reading, form url.Values) (*bulkResult, error) {
	if r.late || r.missing != none {
		return nil, cmp.Or(r.err, r.missing.err())
	}
	set, do, done, retry := form.Get("of"), r.forget, "Forgot the failures of", form.Get("action") == "retry"
	if retry {
		do, done = r.retry, "Retried"
	}
	if !isSet(set) {
		return nil, refuse(http.StatusBadRequest, noSuchSet)
	}
	ctx, next := searchTurn(ctx, h.acting, bulkTime+countTime)
	defer next()
	acting, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	if ctx.Err() != nil {
		return nil, refuse(http.StatusServiceUnavailable, "There was no time: another action goes over all keys.")
	}
	b := new(bulkResult)
	var step []any // retried since the queue was last known to be open
	var err error
	r.err = nil
	b.LeftMore = r.visit(ctx, set, form.Get("error"), func(f failure) {
		switch {
		case err != nil || acting.Err() != nil:
			b.Left++
			return
		case f.isGone() || !do(f.Key, f.kept):
			b.Gone++
			return
		}
		if b.Keys++; retry {
			step = append(step, f.Key)
		}
		if len(step) == stepKeys {
			err = r.checkTaken(step, b)
			step = step[:0]
		}
	})
	if err == nil {
		err = r.checkTaken(step, b)
	}
	if confirmed, convErr := strconv.Atoi(form.Get("count")); convErr == nil {
		b.Gone = max(b.Gone, confirmed-b.Keys-b.Left)
	}
	b.text = b.sentence(done)
	if err != nil {
		err = refuse(http.StatusConflict, "%s %s", err, b.text)
	}
	return b, cmp.Or(err, r.err)
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

// checkTaken returns an error if the queue has been shut down before it took all of keys, which were added. The others do
// not count as retried.
func (r *reading) checkTaken(keys []any, b *bulkResult) error {
	q := r.entry.queue
	if len(keys) == 0 || !q.Stats().ShuttingDown {
		return nil
	}
	refused := 0
	for _, key := range keys {
		taken := false
		if q.SnapshotKey != nil {
			k, found := q.SnapshotKey(key)
			taken = found && (k.State == workqueue.KeyQueued || k.State == workqueue.KeyProcessing && k.Again)
		}
		if !taken {
			refused++
		}
	}
	b.Keys, b.Left = b.Keys-refused, b.Left+refused
	return refuse(http.StatusConflict, "The queue was shut down meanwhile, and takes no more keys.")
}
