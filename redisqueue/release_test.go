package redisqueue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
)

// A key that is taken from a worker that hangs goes to another replica. The hung handler hears of it, and what it says late of the key
// changes nothing.
func TestRelease(t *testing.T) {
	s, hung, other := twoReplicas(t, Config[string]{Lease: 6 * time.Second, Backoff: noBackoff})
	hung.AddCause("x", workqueue.Cause{Reason: "why"})
	hung.AddWithPriority("x", 3, 0)
	mustGet(t, hung, "x")
	ctx, end := hung.Lease(context.Background(), "x")
	defer end()
	admin := attach(t, s.client())
	if keys, err := admin.Release(within(t, time.Minute), "x", "y"); err != nil || len(keys) != 1 || keys[0] != "x" {
		t.Fatalf("Release() = %q, %v", keys, err)
	}
	mustGet(t, other, "x")
	if c := other.Causes("x"); other.PriorityOf("x") != 3 || len(c.Last) != 1 {
		t.Errorf("x has the priority %d and the causes %+v", other.PriorityOf("x"), c)
	}
	fence := fenceOf(other, "x")
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, ErrReleased) || !errors.Is(err, leasing.ErrLost) {
		t.Errorf("the handler's context ends with %v", err)
	}
	late, end := hung.Lease(context.Background(), "x")
	defer end()
	wantErr(t, context.Cause(late), ErrReleased)
	_, err := hung.Fail(within(t, time.Minute), "x", workqueue.Failure{Terminal: true})
	wantErr(t, err, leasing.ErrLost)
	hung.Forget("x")
	hung.Done("x")
	flush(t, hung)
	wantHeld(t, other, "x")
	if k, err := admin.Key(t.Context(), "x"); err != nil || k.GivenUp != nil || k.LostLeases != 0 || k.Fence != fence {
		t.Errorf("%+v, %v", k, err)
	}
	other.Done("x")
	wantNoKeys(t, other)
	if keys, err := admin.Release(within(t, time.Minute), "x"); err != nil || len(keys) > 0 {
		t.Errorf("Release() of a key that is not held = %q, %v", keys, err)
	}
}

// The process with the handler that hangs gets the released key when that has returned. Until then it asks for it about once a second.
func TestReleaseInOneProcess(t *testing.T) {
	client := startServer(t).client()
	q := newTestQueue(t, client, Config[string]{Lease: 6 * time.Second, PollInterval: time.Second})
	addAndGet(t, q, "x")
	ctx, end := q.Lease(context.Background(), "x")
	defer end()
	came := make(chan string, 1)
	go func() {
		if key, err := q.GetContext(within(t, time.Minute)); err == nil {
			came <- key
		}
	}()
	if keys, err := attach(t, client).Release(within(t, time.Minute), "x"); err != nil || len(keys) != 1 {
		t.Fatalf("Release() = %q, %v", keys, err)
	}
	<-ctx.Done()
	calls := batches(q.client)
	time.Sleep(2500 * time.Millisecond)
	if n := batches(q.client) - calls; n > 100 {
		t.Errorf("%d calls in 2.5 s", n)
	}
	if len(came) > 0 {
		t.Error("two workers of a process have the key")
	}
	q.Done("x")
	if key := <-came; key != "x" {
		t.Errorf("got %q", key)
	}
	q.Done("x")
	flush(t, q)
	must(t, checkInvariants(client, q))
}

// What a worker has said before its key is released counts, also if its replica has not heard of the release yet.
func TestReleaseOfAnsweredKey(t *testing.T) {
	s, f, q, other := oneFaulty(t, Config[string]{Backoff: noBackoff})
	addAndGet(t, q, "x")
	_, err := q.Fail(within(t, time.Minute), "x", workqueue.Failure{AtLeast: time.Hour})
	must(t, err)
	f.gate.Lock() // Its Done does not arrive.
	q.Done("x")
	if keys, err := attach(t, s.client()).Release(within(t, time.Minute), "x"); err != nil || len(keys) != 1 {
		t.Fatalf("Release() = %q, %v", keys, err)
	}
	f.gate.Unlock()
	flush(t, q)
	if k, err := other.key(t.Context(), "x"); err != nil || k.State != workqueue.KeyWaiting || k.Requeues != 1 {
		t.Errorf("%+v, %v", k, err)
	}
}

// A Done forgets lost leases for the Remove behind it, in the same batch too.
func TestRemoveBehindDone(t *testing.T) {
	client := startServer(t).client()
	r := rawSession{t: t, client: client, s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute}
	hand, err := parseReply(r.send(1, 1, "ak"))
	must(t, err)
	must(t, client.HSet(t.Context(), newKeyNames("test", 0).prefix+"troubles", "lk", 1).Err())
	reply, err := parseReply(r.send(2, 0, "D"+hand.keys[0].fence+"k", "xk"))
	must(t, err)
	if reply.opResults[0].n != 0 {
		t.Error("Remove has found the key")
	}
}

// The Done of a key's former holder does not forget the leases that the key has lost since.
func TestLateDoneForgetsNoLosses(t *testing.T) {
	client := startServer(t).client()
	r := rawSession{t: t, client: client, s: batchScript, id: "aaaaaaaaaaa", lease: time.Minute}
	hand, err := parseReply(r.send(1, 1, "ak"))
	must(t, err)
	r.send(2, 1, "rk")
	troubles := newKeyNames("test", 0).prefix + "troubles"
	must(t, client.HSet(t.Context(), troubles, "lk", 1).Err())
	r.send(3, 0, "D"+hand.keys[0].fence+"k")
	if !client.HExists(t.Context(), troubles, "lk").Val() {
		t.Error("the lost lease is forgotten")
	}
}
