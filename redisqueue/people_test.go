package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
)

// A pause holds for all replicas and all shards, until one of them resumes. Sleeping getters get the keys then at once.
func TestPause(t *testing.T) {
	s := startServer(t)
	config := Config[string]{Logger: discard, Shards: 2, PollInterval: 9 * time.Second}
	q, other := newTestQueue(t, s.client(), config), newTestQueue(t, s.client(), config)
	q.Add("held")
	mustGet(t, q, "held")
	other.Pause()
	ctx := within(t, 20*time.Second)
	if err := other.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	keys := keysNamed("k", 20)
	for _, key := range keys {
		q.Add(key)
	}
	q.Done("held")
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if key, err := q.GetContext(short); err == nil {
		t.Fatalf("got %q from a queue that is paused", key)
	}
	if st := freshStats(t, q); !st.Paused || st.Queued != 20 || st.OldestQueued <= 0 {
		t.Errorf("Stats() = %+v, want a paused queue with 20 keys", st)
	}
	got := make(chan string, len(keys))
	for range keys {
		go func() {
			key, err := q.GetContext(ctx)
			if err == nil {
				q.Done(key)
			}
			got <- key
		}()
	}
	waitUntil(t, func() bool { return q.waitingGetters() == len(keys) })
	before := q.Info().Calls
	time.Sleep(300 * time.Millisecond)
	if n := q.Info().Calls - before; n > 10 {
		t.Errorf("%d calls while the queue is paused", n)
	}
	other.Resume()
	var all []string
	for range keys {
		all = append(all, <-got)
	}
	slices.Sort(all)
	if slices.Sort(keys); !slices.Equal(all, keys) {
		t.Errorf("got %q", all)
	}
	if st := freshStats(t, other); st.Paused {
		t.Error("the queue is still paused")
	}
}

// A removed key is gone from every state, on all replicas; a worker that holds it keeps it, and it does not come again.
func TestRemove(t *testing.T) {
	s := startServer(t)
	q, other := newTestQueue(t, s.client(), Config[string]{Logger: discard}), newTestQueue(t, s.client(), Config[string]{Logger: discard})
	ctx := within(t, 20*time.Second)
	q.Add("held")
	mustGet(t, q, "held")
	q.Add("held")
	q.Add("first")
	q.Add("queued")
	q.AddAfter("waiting", time.Hour)
	q.AddRateLimited("queued")
	if err := q.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"held", "queued", "waiting"} {
		if found, err := other.Remove(ctx, key); !found || err != nil {
			t.Errorf("Remove(%q) = %v, %v", key, found, err)
		}
	}
	if other.Discard("never added") || other.Discard("queued") {
		t.Error("a key was removed that was not there")
	}
	if st := freshStats(t, q); st.Queued != 1 || st.Processing != 1 || st.Again != 0 || st.Waiting != 0 {
		t.Errorf("Stats() = %+v, want a queued key and one that is held", st)
	}
	if n := requeues(t, q, "queued"); n != 0 {
		t.Errorf("%d failures of a removed key", n)
	}
	mustGet(t, q, "first")
	q.Done("first")
	q.Done("held")
	q.Add("queued")
	mustGet(t, q, "queued")
	q.Done("queued")
	if err := checkInvariants(s.client(), q); err != nil {
		t.Error(err)
	}
}

// callingCodec calls a function whenever it has decoded a key.
type callingCodec struct{ decoded func() }

func (callingCodec) Encode(key string) (string, error) { return key, nil }

func (c callingCodec) Decode(encoded string) (string, error) { c.decoded(); return encoded, nil }

// If the server stops answering, GivenUp returns the latest of what it has, and no more keys than asked for.
func TestGivenUpPartly(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t, 20*time.Second))
	decoded := 0
	q := newTestQueue(t, startServer(t).client(), Config[string]{Logger: discard, Shards: 3, Codec: callingCodec{func() {
		if decoded++; decoded == 4 {
			cancel() // Two of three shards have answered.
		}
	}}})
	for i := range 40 {
		q.GiveUp(fmt.Sprint(i), 1, nil)
		must(t, q.Flush(ctx))
	}
	given, err := q.GivenUp(ctx, 2)
	if !errors.Is(err, context.Canceled) || len(given) != 2 || given[0].At.Before(given[1].At) {
		t.Errorf("GivenUp() = %+v, %v", given, err)
	}
}

// Keys that were given up are kept for all replicas, not too many and not forever, until they are tried again or dropped, or
// succeed after all.
func TestGivenUp(t *testing.T) {
	s := startServer(t)
	config := Config[string]{Name: "test", Logger: discard, GivenUpLimit: 5, GivenUpAge: time.Hour}
	if err := config.complete(0); err != nil {
		t.Fatal(err)
	}
	q := newQueue(s.client(), config, shiftedScripts())
	t.Cleanup(func() { endQueue(t, q) })
	ctx := within(t, 20*time.Second)
	list := func() (keys []string) {
		t.Helper()
		freshStats(t, q)
		given, err := q.GivenUp(ctx, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range given {
			keys = append(keys, k.Key)
		}
		slices.Sort(keys)
		if n := q.Info().GivenUp; n != len(keys) {
			t.Errorf("Info().GivenUp = %d, want %d", n, len(keys))
		}
		return keys
	}
	for i := range 8 {
		q.GiveUp(fmt.Sprint("key ", i), i, errors.New(strings.Repeat("x", 2000)))
		if err := q.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if got := list(); !slices.Equal(got, []string{"key 3", "key 4", "key 5", "key 6", "key 7"}) {
		t.Errorf("GivenUp() = %q", got)
	}
	if given, err := q.GivenUp(ctx, 1); err != nil || len(given) != 1 || given[0].Key != "key 7" || given[0].Attempts != 7 || len(given[0].Reason) > 1100 {
		t.Errorf("GivenUp(1) = %+v, %v", given, err)
	}
	if found, err := q.DropGivenUp(ctx, "key 3"); !found || err != nil {
		t.Errorf("DropGivenUp() = %v, %v", found, err)
	}
	if found, err := q.Retry(ctx, "key 4"); !found || err != nil {
		t.Errorf("Retry() = %v, %v", found, err)
	}
	if found, err := q.Retry(ctx, "key 4"); found || err != nil {
		t.Errorf("Retry() again = %v, %v", found, err)
	}
	mustGet(t, q, "key 4")
	q.Done("key 4")
	q.Forget("key 5") // It has succeeded after all.
	if got := list(); !slices.Equal(got, []string{"key 6", "key 7"}) {
		t.Errorf("GivenUp() = %q", got)
	}
	// A tool that knows nothing of the limits deletes nothing.
	shiftClock(t, q.client, 2*time.Hour)
	tool, err := Attach(ctx, q.client, "test")
	if err != nil {
		t.Fatal(err)
	}
	tool.script = q.script
	freshStats(t, tool)
	if given, err := tool.GivenUp(ctx, 10); err != nil || len(given) != 2 {
		t.Errorf("GivenUp() for a tool = %+v, %v", given, err)
	}
	endQueue(t, tool)
	freshStats(t, q)
	if got := list(); len(got) != 0 {
		t.Errorf("GivenUp() two hours later = %q", got)
	}
}

// One key, and all keys in steps.
func TestKeyReader(t *testing.T) {
	s := startServer(t)
	q := newTestQueue(t, s.client(), Config[string]{Logger: discard, Shards: 3})
	ctx := within(t, 20*time.Second)
	want := map[string]workqueue.KeyState{}
	q.Add("held")
	mustGet(t, q, "held")
	q.AddAfter("held", time.Hour)
	q.Add("held")
	want["held processing"], want["held waiting"] = "", ""
	for _, key := range keysNamed("k", 1000) {
		q.Add(key)
		want[key+" queued"] = ""
	}
	q.AddRateLimited("failing")
	for _, key := range keysNamed("w", 1000) {
		q.AddAfter(key, time.Hour)
		want[key+" waiting"] = ""
	}
	if err := q.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool {
		freshStats(t, q)
		k, found := q.SnapshotKey("failing")
		return found && k.State == workqueue.KeyQueued
	})
	want["failing queued"] = ""
	for k := range q.SnapshotKeys() {
		name := fmt.Sprint(k.Key, " ", k.State)
		if _, ok := want[name]; !ok {
			continue // Twice is allowed.
		}
		delete(want, name)
		if (k.State == workqueue.KeyWaiting) != !k.Due.IsZero() || k.Since.IsZero() == (k.State != workqueue.KeyWaiting) {
			t.Errorf("%+v", k)
		}
	}
	if len(want) > 0 {
		t.Errorf("%d keys are missing: %.300v", len(want), want)
	}
	for range q.SnapshotKeys() {
		break
	}
	k, found := q.SnapshotKey("held")
	if !found || k.State != workqueue.KeyProcessing || !k.Again || time.Until(k.Due) < 50*time.Minute || time.Since(k.Since) > time.Minute {
		t.Errorf("SnapshotKey(held) = %+v, %v", k, found)
	}
	if k, found := q.SnapshotKey("failing"); !found || k.Requeues != 1 {
		t.Errorf("SnapshotKey(failing) = %+v, %v", k, found)
	}
	if k, found := q.SnapshotKey("unknown"); found {
		t.Errorf("SnapshotKey(unknown) = %+v", k)
	}
	if n := len(q.Snapshot(10_000).Queued); n != 512 {
		t.Errorf("a snapshot has %d queued keys, want 512", n)
	}
	q.Done("held")
}

// inspector is a provider that looks at queues.
type inspector struct {
	watcher
	queues map[string]workqueue.Inspector
}

func (i *inspector) InspectQueue(name string, q workqueue.Inspector) { i.queues[name] = q }

// A queue without a provider of its own uses that of workqueue.SetProvider, and shows itself to one that inspects queues.
func TestGlobalProvider(t *testing.T) {
	p := &inspector{queues: make(map[string]workqueue.Inspector)}
	var global any = p
	defer observe.Global.Store(observe.Global.Swap(&global))
	q := newTestQueue(t, startServer(t).client(), Config[string]{Name: "orders", Logger: discard})
	q.Add("x")
	i, ok := p.queues["orders"]
	if !ok || p.stats == nil {
		t.Fatalf("the provider has seen %v", p.queues)
	}
	waitUntil(t, func() bool { return i.Stats().Queued == 1 && p.stats().Queued == 1 })
	if k, found := i.SnapshotKey("x"); !found || k.State != workqueue.KeyQueued {
		t.Errorf("SnapshotKey() = %+v, %v", k, found)
	}
	i.Pause()
	if !i.Remove("x") {
		t.Error("x was not removed")
	}
	i.Resume()
	waitUntil(t, func() bool { return !i.Stats().Paused })
}
