package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

// An error's text may be anything, also bytes at none of which it can be cut as UTF-8.
func TestLongErrorThatIsNotText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		p := worker.New(q, func(context.Context, string) error {
			return errors.New(strings.Repeat("\x80", 2000))
		}, options{})
		r := run(t, p)
		q.Add("a")
		r.after(time.Second)
		if calls := p.SnapshotKey("a").FailedCalls; len(calls) == 0 || len(calls[0].Err) > 1<<10 {
			t.Errorf("%+v", calls)
		}
		q.ShutDown()
		<-r.result
	})
}
