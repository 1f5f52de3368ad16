package priorityqueue_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/operate"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

func TestGetBatch(t *testing.T) {
	script(t, pq.Config[string]{}, func(t *testing.T, q *pq.Queue[string]) {
		batch := testkit.Start(func() []string { b, _ := q.GetBatch(context.Background(), 2); return keysOf(b) })
		batch.MustBlock(t, "GetBatch")
		q.AddWithOpts(pq.AddOpts{}, []string{"a", "b", "c"}...)
		if got := batch.MustReturn(t, "GetBatch"); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("GetBatch(2) = %v", got)
		}
		if got, err := q.GetBatch(context.Background(), math.MaxInt); !slices.Equal(keysOf(got), []string{"c"}) ||
			err != nil {
			t.Errorf("GetBatch(math.MaxInt) = %v, %v", got, err)
		}
		testkit.WantPanic(t, "GetBatch(0)", func() { _, _ = q.GetBatch(context.Background(), 0) },
			"priorityqueue: GetBatch")
		ctx, cancel := context.WithCancel(context.Background())
		canceled := testkit.Start(func() error { _, err := q.GetBatch(ctx, 1); return err })
		canceled.MustBlock(t, "GetBatch")
		cancel()
		if err := canceled.MustReturn(t, "GetBatch, canceled"); err != context.Canceled {
			t.Error(err)
		}
		q.ShutDown()
		if _, err := q.GetBatch(context.Background(), 1); err != workqueue.ErrShutDown {
			t.Errorf("GetBatch() after shutdown = %v", err)
		}
	})
}

// A batch says what is known of its keys. It does not ask the limiter, whose panic would lose keys that were
// taken.
func TestGetBatchSaysWhatIsKnown(t *testing.T) {
	h := &hooked{fixed: fixed(time.Second)}
	script(t, pq.Config[string]{Group: byPrefix, RateLimiter: h}, func(t *testing.T, q *pq.Queue[string]) {
		q.AddWithOpts(pq.AddOpts{Priority: 7}, "a/1")
		hold(t, q, "a/1")
		q.AddRateLimited("a/1")
		q.Done("a/1")
		q.AddCause("a/2", *because("1"))
		time.Sleep(time.Second)
		h.onRequeues = func() { panic("NumRequeues") }
		batch, err := q.GetBatch(t.Context(), 5)
		if len(batch) != 2 || err != nil {
			t.Fatalf("GetBatch() = %+v, %v", batch, err)
		}
		want := workqueue.KeySnapshot[string]{Key: "a/1", State: workqueue.KeyProcessing, Priority: 7, Group: "a",
			Requeues: 1, Failures: q.Failures("a/1")}
		if batch[0] != want || batch[1].Causes.String() != "1" {
			t.Errorf("GetBatch() = %+v, want first %+v", batch, want)
		}
	})
}

// All keys of a batch are handed out at the time at which the wait for the first has ended.
func TestBatchAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := pq.New(pq.Config[int]{MinInterval: time.Minute})
		q.Pause(operate.UntilResumed)
		for i := range 1000 {
			q.Add(i)
		}
		batch := testkit.Start(func() []workqueue.KeySnapshot[int] {
			batch, _ := q.GetBatch(t.Context(), 1000)
			return batch
		})
		batch.MustBlock(t, "GetBatch of a paused queue")
		time.Sleep(time.Hour)
		q.Resume()
		keys := batch.MustReturn(t, "GetBatch")
		for _, k := range keys {
			q.Add(k.Key)
			q.Done(k.Key)
		}
		if n := q.Len(); len(keys) != 1000 || n != 0 {
			t.Errorf("%d keys, %d of them within MinInterval", len(keys), n)
		}
		q.ShutDown()
	})
}
