package sharding

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/priorityqueue"
)

// Keys that are kept aside while their slot stops are queued for all that looks at the queue, and come back
// with the higher priority and all causes. They show the time of the first add.
func TestKeysAsideAreQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := holdingAll(1)
		inner := priorityqueue.New(priorityqueue.Config[string]{Name: "q", MetricsProvider: readsStats{}})
		q := mustQueue[string](inner, m, QueueConfig[string]{Keys: noKeys[string]})
		operable := q.(operate.Operable[string])
		added := time.Now()
		q.AddCause("key", workqueue.Cause{Reason: "created"})
		operable.AddWithPriority("key", 7, 0)
		q.Add("removed")
		m.setState(0, stopping)
		ended := make(chan struct{})
		go func() { q.Get(); close(ended) }() // It keeps both aside, and gets "last".
		synctest.Wait()
		time.Sleep(time.Second)
		q.AddCause("key", workqueue.Cause{Reason: "changed"}) // with priority 0
		synctest.Wait()
		k, found := q.SnapshotKey("key")
		if !found || k.State != workqueue.KeyQueued || k.Priority != 7 || !k.Since.Equal(added) ||
			k.Causes == nil || k.Causes.String() != "created; changed" {
			t.Errorf("FAILURE: %+v", k)
		}
		if st := q.Stats(); st.Queued != 2 || st.Blocked != 2 || q.Len() != 2 || len(q.Snapshot(9).Queued) != 2 ||
			len(q.Snapshot(1).Queued) != 1 {
			t.Errorf("FAILURE: %+v", st)
		}
		n := 0
		for range q.SnapshotKeys() {
			n++
		}
		if n != 2 || operable.PriorityOf("key") != 7 {
			t.Errorf("FAILURE: %d keys, priority %d", n, operable.PriorityOf("key"))
		}
		if !operable.Remove("removed") || operable.Remove("removed") {
			t.Error("FAILURE: Remove does not find a key that is aside")
		}
		m.setState(0, held)
		q.Add("last")
		<-ended
		q.Done("last")
		(*m.queues.Load())[0].noLongerStopping([]int{0})
		h, err := q.Next(t.Context())
		if err != nil || h.Key != "key" || h.Priority != 7 || !h.HasCauses ||
			q.Causes("key").String() != "created; changed" {
			t.Errorf("FAILURE: %+v, %v, because %v", h, err, q.Causes("key"))
		}
		q.Done("key")
		if q.Len() != 0 {
			t.Errorf("FAILURE: %d keys are left", q.Len())
		}
		q.ShutDown()
	})
}

// Causes get through, to a queue that keeps them and to one that does not. Adds of others' keys are dropped.
func TestCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, inner := range map[string]workqueue.TypedRateLimitingInterface[string]{
			"root": newRoot(),
			"without causes": struct {
				workqueue.TypedRateLimitingInterface[string]
			}{newRoot()},
		} {
			m := holdingAll(1)
			q := mustQueue(inner, m, QueueConfig[string]{Keys: noKeys[string]})
			q.AddCause("key", workqueue.Cause{Reason: "Secret default/db changed"})
			m.setState(0, stopping)
			got := make(chan string)
			go func() { key, _ := q.Get(); got <- key }()
			synctest.Wait() // The key is aside.
			m.setState(0, held)
			(*m.queues.Load())[0].noLongerStopping([]int{0})
			if key := <-got; key != "key" {
				t.Errorf("FAILURE: %s: %s", name, key)
			}
			if causes := q.Causes("key").String(); name == "root" && causes != "Secret default/db changed" {
				t.Errorf("FAILURE: %s: because %q", name, causes)
			}
			again := q.AddedAgain("key")
			q.Add("key")
			<-again
			m.setState(0, absent)
			if q.AddCause("other", workqueue.Cause{}); q.Len() != 0 {
				t.Errorf("FAILURE: %s: a key of another replica was added", name)
			}
			q.Done("key")
			q.ShutDown()
		}
	})
}

// Keys that are aside at the end are dropped with those that are queued.
func TestKeysAsideAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := holdingAll(1)
		q := mustQueue(newRoot(), m, QueueConfig[string]{Keys: noKeys[string]})
		q.Add("key")
		m.setState(0, stopping)
		go q.Get()
		synctest.Wait()
		q.ShutDown()
		if keys := q.DropQueued(); len(keys) != 1 || keys[0] != "key" || q.Len() != 0 {
			t.Errorf("FAILURE: %q were dropped", keys)
		}
	})
}
