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
	if r.missing != nil {
		return nil, r.missing
	}
	set, do, done, retry := form.Get("of"), r.forget, "Forgot the failures of", form.Get("action") == "retry"
	if retry {
		do, done = r.retry, "Retried"
	}
	if !isSet(set) {
		return nil, refuse(http.StatusBadRequest, noSuchSet)
	}
	ctx, next, noTurn := searchTurn(ctx, h.acting, bulkTime+countTime)
	defer next()
	if noTurn != nil {
		return nil, noTurn
	}
	acting, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	b := new(bulkResult)
	var step []any // retried since the queue was last known to be open
	var err error
	endStep := func() {
		if refused := r.refused(step); refused > 0 {
			b.Keys, b.Left, err = b.Keys-refused, b.Left+refused, errShutDown
		}
		step = step[:0]
	}
	r.err = nil
	b.LeftMore = r.visit(ctx, set, form.Get("error"), func(f failure) {
		if err != nil || acting.Err() != nil {
			b.Left++
			return
		}
		began := time.Now()
		if f.isGone() || !do(f.Key, f.kept) {
			if err = r.noteOutage(began); err != nil { // Nothing is known of the key.
				b.Left++
			} else {
				b.Gone++
			}
			return
		}
		if b.Keys++; retry {
			step = append(step, f.Key)
		}
		if len(step) == stepKeys {
			endStep()
		}
	})
	endStep()
	if confirmed, convErr := strconv.Atoi(form.Get("count")); convErr == nil {
		b.Gone = max(b.Gone, confirmed-b.Keys-b.Left)
	}
	b.text = b.sentence(done)
	if err != nil {
		err = refuse(statusOf(err), "%s %s", err, b.text)
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

var errShutDown = refuse(http.StatusConflict, "The queue was shut down meanwhile, and takes no more keys.")

// refused returns how many of keys, which were added, the queue did not take because it was shut down before.
func (r *reading) refused(keys []any) (n int) {
	q := r.entry.queue
	if len(keys) == 0 || !q.Stats().ShuttingDown {
		return 0
	}
	for _, key := range keys {
		taken := false
		if q.SnapshotKey != nil {
			k, found := q.SnapshotKey(key)
			taken = found && (k.State == workqueue.KeyQueued || k.State == workqueue.KeyProcessing && k.Again)
		}
		if !taken {
			n++
		}
	}
	return n
}
