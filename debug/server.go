package debug

import (
	"net/http"
	"time"

	"github.com/keyedqueue/workqueue/leasing"
)

// This file watches whether the server of a queue, if it has one, answers a reading.

// patience is for how long a queue waits for its server.
const patience = time.Second

var errNoAnswer = refuse(http.StatusServiceUnavailable,
	"The queue's server did not answer in time. Its numbers are those of its last answer; keys may be missing.")

// askServer calls f, in which the queue may ask its server. It does not if r.missing is set, and sets it if
// there is no time left.
func (r *reading) askServer(f func()) {
	switch {
	case r.missing != nil:
	case r.ctx.Err() != nil:
		r.missing = errNoTime
	default:
		began := time.Now()
		f()
		r.checkServer(began)
	}
}

// checkServer sets r.missing if the queue's server may not have answered since began (in real time): the
// queue reports an outage, or it took so long that the queue has given up. It returns r.missing.
func (r *reading) checkServer(began time.Time) error {
	if r.missing == nil {
		s := leasing.StatsOf(r.entry.queue.Stats())
		if s != nil && (s.Outage || time.Since(began) >= patience) {
			r.missing = errNoAnswer
		}
	}
	return r.missing
}

// HasNoAnswer reports that the queue's server did not answer in time.
func (r *reading) HasNoAnswer() bool { return r.missing == errNoAnswer }

// Missing says why not all of the queue is known, or nothing.
func (r *reading) Missing() string {
	if r.missing == nil {
		return ""
	}
	return r.missing.Error()
}
