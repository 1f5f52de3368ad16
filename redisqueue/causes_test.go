package redisqueue

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
)

// now is the time as the server keeps it.
func now() time.Time { return time.UnixMicro(time.Now().UnixMicro()) }

func wantCauses(t testing.TB, when string, got, want workqueue.Causes) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: causes %+v, want %+v", when, got, want)
	}
}

// The causes of adds are merged on the server as workqueue.Causes merges them, from all replicas, in however
// many batches, and with any bytes in them. They come with the key, and are gone with it.
func TestCauses(t *testing.T) {
	s, a, b := twoReplicas(t, Config[string]{})
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 0))
		key := fmt.Sprint("key ", seed)
		var want workqueue.Causes
		began := now()
		for n := range 1 + random.IntN(20) {
			q := []*Queue[string]{a, b}[random.IntN(2)]
			cause := workqueue.Cause{
				Reason: strings.Repeat("Überraschung\x00 12 ", random.IntN(20)),
				Time:   began.Add(time.Duration(n) * time.Second),
				TraceParent: []string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
					"x y"}[random.IntN(3)],
				Quiet: random.IntN(2) == 0,
			}
			if random.IntN(2) == 0 {
				cause.Reason = fmt.Sprint(random.IntN(12))
			}
			want = want.Plus(cause)
			q.AddCause(key, cause)
			if random.IntN(3) == 0 {
				q.Add(key)
			}
			// Otherwise several are merged in the buffer. Those of two replicas have no order there.
			flush(t, q)
		}
		if k, found := a.SnapshotKey(key); !found || k.Causes == nil {
			t.Errorf("SnapshotKey() = %+v, %v", k, found)
		} else {
			wantCauses(t, "queued", *k.Causes, want)
		}
		mustGet(t, b, key)
		wantCauses(t, "held", b.Causes(key), want)
		wantCauses(t, "held elsewhere", a.Causes(key), workqueue.Causes{})
		if k, _ := a.SnapshotKey(key); k.Causes == nil {
			t.Error("SnapshotKey() has no causes of a held key")
		} else {
			wantCauses(t, "held, for the server", *k.Causes, want)
		}
		later := workqueue.Cause{Reason: "later", Time: began}
		a.AddCause(key, later)
		flush(t, a)
		wantCauses(t, "held and added again", b.Causes(key), want)
		b.Done(key)
		mustGet(t, b, key)
		wantCauses(t, "again", b.Causes(key), workqueue.Causes{}.Plus(later))
		b.Done(key)
		addAndGet(t, b, key)
		wantCauses(t, "without causes", b.Causes(key), workqueue.Causes{})
		b.Done(key)
	}
	flush(t, b)
	must(t, checkInvariants(s.client(), b))
}

// Merging in the buffer gives the same as merging on the server. (If a part is merged here and a part there,
// only the number of others may differ: of causes that are dropped and added again.)
func TestCausesInTheBuffer(t *testing.T) {
	s := startServer(t)
	client, f := s.faultyClient()
	q := newTestQueue(t, client, Config[string]{})
	f.gate.Lock()
	q.Add("holds up the call")
	waitForCall(t, q) // All that follows is in the buffer.
	var want workqueue.Causes
	for i := range 30 {
		cause := workqueue.Cause{Reason: fmt.Sprint(i % 11), Time: now().Add(time.Duration(i) * time.Second)}
		want = want.Plus(cause)
		q.AddCause("x", cause)
		if i == 5 {
			q.Add("x")
		}
	}
	q.AddCause("quiet", workqueue.Cause{Quiet: true})
	q.AddCause("loud", workqueue.Cause{Reason: "loud"})
	q.AddCause("loud", workqueue.Cause{Quiet: true})
	q.mu.Lock()
	if s := q.shards[0]; s.buffer.len() != 3 || !s.buffer.merging[addKey{codeAdd, "quiet"}].quiet ||
		s.buffer.merging[addKey{codeAdd, "loud"}].quiet || s.buffer.merging[addKey{codeAdd, "x"}].quiet {
		t.Errorf("%d operations for adds of three keys, one of them quiet: %+v", s.buffer.len(), s.buffer.merging)
	}
	q.mu.Unlock()
	f.gate.Unlock()
	mustGet(t, q, "holds up the call")
	mustGet(t, q, "x")
	wantCauses(t, "merged in the buffer", q.Causes("x"), want)
	q.Done("x")
	getEach(t, q, "quiet", "loud")
	q.Done("holds up the call")
}

// During an outage adds with a delay or a priority are merged as well: the earliest delay and the highest priority count.
func TestDelaysAndPrioritiesInTheBuffer(t *testing.T) {
	s := startServer(t)
	client, f := s.faultyClient()
	q := newTestQueue(t, client, Config[string]{})
	f.gate.Lock()
	q.Add("holds up the call")
	waitForCall(t, q)
	keys := keysNamed("k", 10)
	for i := range 1000 {
		for _, key := range keys {
			q.AddAfter(key, time.Hour+time.Duration((500-i)*(500-i))*time.Second)
			q.AddWithPriority(key, -(i-300)*(i-300), 2*time.Hour)
			q.AddWithPriority("now "+key, 7-(i-300)*(i-300), 0)
		}
	}
	q.mu.Lock()
	if n := q.shards[0].buffer.len(); n != 2*len(keys) {
		t.Errorf("%d operations are in the buffer", n)
	}
	q.mu.Unlock()
	f.gate.Unlock()
	flush(t, q)
	for _, key := range keys {
		k, err := q.key(within(t, time.Minute), key)
		if must(t, err); k.State != workqueue.KeyWaiting || time.Until(k.Due) > time.Hour || k.Priority != 0 {
			t.Errorf("%+v", k)
		}
		if k, err = q.key(within(t, time.Minute), "now "+key); err != nil || k.State != workqueue.KeyQueued || k.Priority != 7 {
			t.Errorf("%+v", k)
		}
	}
	q.AddAfter(keys[0], time.Minute)
	q.Remove(keys[0])
	q.AddAfter(keys[0], 2*time.Minute)
	flush(t, q)
	if k, err := q.key(within(t, time.Minute), keys[0]); err != nil || time.Until(k.Due) < time.Minute {
		t.Errorf("after a Remove: %+v, %v", k, err)
	}
}

// The causes of a hand-out that was not finished come with the next one, together with those that were added
// meanwhile; those of a key that was removed are forgotten.
func TestCausesOfUnfinishedKeys(t *testing.T) {
	s := startServer(t)
	ctx := within(t, time.Minute)
	client, f := s.faultyClient()
	config := Config[string]{Lease: time.Second}
	q, other := newTestQueue(t, client, config), newTestQueue(t, s.client(), Config[string]{Lease: time.Minute})
	first := workqueue.Cause{Reason: "first", Time: now()}
	second := workqueue.Cause{Reason: "second", Time: now().Add(time.Second)}
	q.AddCause("x", first)
	mustGet(t, q, "x")
	q.AddCause("x", second)
	flush(t, q)
	f.down.Store(true)
	mustGet(t, other, "x")
	wantCauses(t, "after a lost lease", other.Causes("x"), workqueue.Causes{}.Plus(first).Plus(second))
	f.down.Store(false)
	q.Done("x")
	other.Done("x")

	other.AddCause("held", first)
	other.AddCause("removed", first)
	flush(t, other)
	mustGet(t, other, "held")
	other.AddCause("held", second)
	for _, key := range []string{"removed", "held"} {
		if found, err := (&Admin{queue: other}).Remove(ctx, key); len(found) != 1 || err != nil {
			t.Fatal(found, err)
		}
	}
	wantCauses(t, "of a removed key that is held", other.Causes("held"), workqueue.Causes{}.Plus(first))
	other.Done("held")
	flush(t, other)
	must(t, checkInvariants(s.client(), other))
}

// A channel of AddedAgain is closed by adds of this replica, of another one and of time, not by quiet ones,
// and is closed already if there was one since the hand-out.
func TestAddedAgain(t *testing.T) {
	_, q, other := twoReplicas(t, Config[string]{Shards: 2})
	ctx := within(t, time.Minute)
	isClosedWithin := func(d time.Duration, c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		case <-time.After(d):
			return false
		}
	}
	isClosed := func(c <-chan struct{}) bool { return isClosedWithin(time.Millisecond, c) }
	if q.AddedAgain("x") != nil {
		t.Error("AddedAgain() of a key that is not held is not nil")
	}
	quiet := workqueue.Cause{Quiet: true, Reason: "its own status"}
	for name, c := range map[string]struct {
		before, after func(key string)
	}{
		"before, here":      {before: q.Add},
		"before, elsewhere": {before: func(key string) { must(t, other.AddContext(ctx, key)) }},
		"before, its time":  {before: func(key string) { q.AddAfter(key, time.Microsecond); flush(t, q) }},
		"here":              {after: q.Add},
		"here, why":         {after: func(key string) { q.AddCause(key, workqueue.Cause{Reason: "why"}) }},
		"elsewhere":         {after: other.Add},
		"its time":          {after: func(key string) { other.AddAfter(key, 100*time.Millisecond) }},
		"quiet and then not": {before: func(key string) { q.AddCause(key, quiet) },
			after: func(key string) { other.Add(key) }},
	} {
		addAndGet(t, q, name)
		if c.before != nil {
			c.before(name)
		}
		asked := time.Now()
		again := q.AddedAgain(name)
		if c.after != nil {
			if isClosed(again) {
				t.Errorf("%s: AddedAgain() is closed before", name)
			}
			c.after(name)
		}
		// It takes less than a second, and is closed already without c.after, unless the machine pauses.
		if pauses := c.after != nil || time.Since(asked) >= 900*time.Millisecond; pauses &&
			!isClosedWithin(10*time.Second, again) || !isClosed(again) {
			t.Errorf("%s: AddedAgain() is not closed", name)
		}
		if !isClosed(q.AddedAgain(name)) {
			t.Errorf("%s: AddedAgain() is not closed when called again", name)
		}
		q.Done(name)
		mustGet(t, q, name)
		q.Done(name)
	}
	// Quiet adds do not close it, and the key is queued again nevertheless.
	addAndGet(t, q, "quiet")
	q.AddCause("quiet", quiet)
	again := q.AddedAgain("quiet")
	other.AddCause("quiet", quiet)
	flush(t, other)
	other.AddCause("quiet", workqueue.Cause{Quiet: true}) // without a reason
	flush(t, other)
	asked := batches(q.client) // It asks again and again.
	waitUntil(t, func() bool { return batches(q.client) >= asked+3 })
	if isClosed(again) {
		t.Error("a quiet add has closed AddedAgain()")
	}
	if k, _ := q.SnapshotKey("quiet"); !k.Again {
		t.Errorf("SnapshotKey() = %+v, want it among those added again", k)
	}
	q.Done("quiet")
	mustGet(t, q, "quiet")
	if c := q.Causes("quiet"); len(c.Last) != 1 || !c.Last[0].Quiet || c.Last[0].Reason != quiet.Reason {
		t.Errorf("Causes() = %+v", c)
	}
	q.Done("quiet")
	flush(t, q)
	// Without such channels nothing is asked. (Each shard may still end the wait of the last Get.)
	before := batches(q.client)
	time.Sleep(6 * watchInterval)
	if n := batches(q.client) - before; n > 2 {
		t.Errorf("%d calls of an idle queue", n)
	}
}

// While the server does not answer, AddedAgain returns after a second, and the channel is closed when the
// server says so.
func TestAddedAgainInOutage(t *testing.T) {
	_, f, q, other := oneFaulty(t, Config[string]{})
	addAndGet(t, q, "x")
	f.down.Store(true)
	again := q.AddedAgain("x")
	if q.AddedAgain("x") != again {
		t.Error("AddedAgain() has two channels")
	}
	must(t, other.AddContext(within(t, 10*time.Second), "x"))
	f.down.Store(false)
	select {
	case <-again:
	case <-time.After(20 * time.Second):
		t.Error("the channel is not closed after the outage")
	}
	q.Done("x")
}
