package worker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

func TestCancelGrace(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("obeys")
		q.Add("obeys late")
		q.Add("ignores")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			switch key {
			case "obeys":
				<-ctx.Done()
			case "obeys late":
				<-ctx.Done()
				time.Sleep(2 * time.Second)
			default:
				time.Sleep(time.Hour)
			}
			return nil
		}, options{Workers: 3, DrainTimeout: 10 * time.Second, CancelGrace: 3 * time.Second}))
		r.cancel()
		r.after(13*time.Second - 1)
		r.goesOn()
		r.after(13 * time.Second)
		if e := left(t, r.returned()); !slices.Equal(e.Unfinished, []string{"ignores"}) {
			t.Errorf("left: %+v", e)
		}
		r.after(time.Hour)
	})
}

func TestCancelGraceEndsWithTheHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("obeys")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		}, options{DrainTimeout: 10 * time.Second, CancelGrace: time.Hour}))
		r.cancel()
		r.after(11 * time.Second)
		if err := r.returned(); err != nil {
			t.Error(err)
		}
	})
}

// After DrainTimeout no key is started, also while Run still waits for handlers.
func TestNothingStartsDuringTheGrace(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var j journal
		for i := 3; i <= 5; i++ {
			q.Add(fmt.Sprint(i, "s"))
		}
		r := run(t, worker.New(q, sleeper(&j), options{Drain: worker.All, DrainTimeout: 5 * time.Second, CancelGrace: time.Minute}))
		r.cancel()
		r.after(7 * time.Second)
		if e := left(t, r.returned()); e.Unfinished != nil || !slices.Equal(e.NotStarted, []string{"5s"}) {
			t.Errorf("left: %+v", e)
		}
		if got := j.take(); slices.Contains(got, "start 5s") {
			t.Errorf("%q", got)
		}
	})
}

// Without Options.CancelGrace, handlers have a second to notice the end of their contexts.
func TestDefaultCancelGrace(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		q.Add("a")
		r := run(t, worker.New(q, func(context.Context, string) error {
			time.Sleep(time.Hour)
			return nil
		}, options{Drain: worker.Nothing}))
		r.cancel()
		r.after(time.Second - 1)
		r.goesOn()
		r.after(time.Second)
		if e := left(t, r.returned()); !slices.Equal(e.Unfinished, []string{"a"}) {
			t.Errorf("left: %+v", e)
		}
		r.after(time.Hour) // The handler returns.
	})
}
