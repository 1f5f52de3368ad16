package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/redis/go-redis/v9"
)

// A pause holds for all replicas and all shards, until one of them resumes. Sleeping getters get the keys
// then at once.
func TestPause(t *testing.T) {
	_, q, other := twoReplicas(t, Config[string]{Shards: 2, PollInterval: 9 * time.Second})
	addAndGet(t, q, "held")
	other.Pause(operate.UntilResumed)
	flush(t, other)
	keys := keysNamed("k", 20)
	addAll(q, keys...)
	q.Done("held")
	getNothing(t, q, 200*time.Millisecond)
	if st := freshStats(t, q); !st.Paused || st.Queued != 20 || st.OldestQueued <= 0 {
		t.Errorf("Stats() = %+v, want a paused queue with 20 keys", st)
	}
	came := make(chan struct{})
	go func() {
		defer close(came)
		getEach(t, q, keys...)
	}()
	waitForGetters(t, q, 1)
	before := batches(q.client)
	time.Sleep(300 * time.Millisecond)
	if n := batches(q.client) - before; n > 10 {
		t.Errorf("%d calls while the queue is paused", n)
	}
	other.Resume()
	<-came
	if st := freshStats(t, other); st.Paused {
		t.Error("the queue is still paused")
	}
}

// A removed key is gone from every state, on all replicas; a worker that holds it keeps it, and it is not
// handed out again.
func TestDiscard(t *testing.T) {
	s, q, other := twoReplicas(t, Config[string]{})
	ctx := within(t, 20*time.Second)
	addAndGet(t, q, "held")
	q.Add("held")
	q.Add("first")
	q.Add("queued")
	q.AddAfter("waiting", time.Hour)
	q.AddRateLimited("queued")
	flush(t, q)
	for _, key := range []string{"held", "queued", "waiting"} {
		if found, err := (&Admin{queue: other}).Remove(ctx, key); len(found) != 1 || err != nil {
			t.Errorf("DiscardContext(%q) = %v, %v", key, found, err)
		}
	}
	if other.Remove("never added") || other.Remove("queued") {
		t.Error("a key was removed that was not there")
	}
	if st := freshStats(t, q); st.Queued != 1 || st.Processing != 1 || st.Again != 0 || st.Waiting != 0 {
		t.Errorf("Stats() = %+v, want a queued key and a held one", st)
	}
	wantFailures(t, q, "queued", 0)
	getEach(t, q, "first")
	q.Done("held")
	q.Add("queued")
	getEach(t, q, "queued")
	must(t, checkInvariants(s.client(), q))
}

// If a shard does not answer, Keys yields what the others have and then the error.
func TestKeysPartly(t *testing.T) {
	client, errDown := startServer(t).client(), errors.New("down")
	q := newTestQueue(t, client, Config[string]{Shards: 3})
	for i := range 40 {
		giveUp(q, fmt.Sprint(i), nil)
		flush(t, q)
	}
	client.AddHook(hook(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if strings.HasSuffix(cmd.Name(), "_ro") && strings.Contains(fmt.Sprint(cmd.Args()...), q.shards[0].names.prefix) {
				cmd.SetErr(errDown)
				return errDown
			}
			return next(ctx, cmd)
		}
	}))
	var given []time.Time
	var last error
	for k, err := range q.keys(within(t, 20*time.Second), ListGivenUp, 30) {
		if last = err; err == nil {
			given = append(given, k.GivenUp.Time)
		}
	}
	latestFirst := slices.IsSortedFunc(given, func(a, b time.Time) int { return b.Compare(a) })
	if !errors.Is(last, errDown) || len(given) == 0 || !latestFirst {
		t.Errorf("Keys() = %v, %v", given, last)
	}
}

// Keys that were given up are kept for all replicas, not too many and not forever, until they are tried again
// or dropped, or succeed after all.
func TestGivenUp(t *testing.T) {
	q := newShiftedQueue(t, startServer(t).client(), Config[string]{GivenUpLimit: 5, GivenUpAge: time.Hour})
	ctx := within(t, 20*time.Second)
	list := func() (keys []string) {
		t.Helper()
		freshStats(t, q)
		for k, err := range q.keys(ctx, ListGivenUp, 100) {
			must(t, err)
			keys = append(keys, k.Key)
		}
		slices.Sort(keys)
		if n := shared(q).GivenUp; n != len(keys) {
			t.Errorf("Shared.GivenUp = %d, want %d", n, len(keys))
		}
		return keys
	}
	for i := range 8 {
		giveUp(q, fmt.Sprint("key ", i), errors.New(strings.Repeat("x", 2000)))
		flush(t, q)
	}
	if got := list(); !slices.Equal(got, []string{"key 3", "key 4", "key 5", "key 6", "key 7"}) {
		t.Errorf("GivenUp() = %q", got)
	}
	if given := q.GivenUpKeys(1); len(given) != 1 || given[0].Key != "key 7" || given[0].Attempts != 1 ||
		len(given[0].Err) > 1100 {
		t.Errorf("GivenUpKeys(1) = %+v", given)
	}
	if k, err := q.key(ctx, "key 7"); err != nil || k.State != "" || k.GivenUp == nil ||
		k.GivenUp.Attempts != 1 {
		t.Errorf("Key() = %+v, %v", k, err)
	}
	forgotten, err1 := (&Admin{queue: q}).ForgetGivenUp(ctx, "key 3", "unknown")
	retried, err2 := (&Admin{queue: q}).RetryGivenUp(ctx, "key 3", "key 4")
	again, err3 := (&Admin{queue: q}).RetryGivenUp(ctx, "key 4")
	if must(t, errors.Join(err1, err2, err3)); !slices.Equal(forgotten, []string{"key 3"}) ||
		!slices.Equal(retried, []string{"key 4"}) || len(again) > 0 {
		t.Errorf("forgotten: %v, retried: %v, and again: %v", forgotten, retried, again)
	}
	getEach(t, q, "key 4")
	q.Forget("key 5") // It has succeeded after all.
	if got := list(); !slices.Equal(got, []string{"key 6", "key 7"}) {
		t.Errorf("GivenUp() = %q", got)
	}
	// A tool that knows nothing of the limits deletes nothing.
	shiftClock(t, q.client, 2*time.Hour)
	tool, err := Attach(ctx, q.client, "test")
	must(t, err)
	tool.queue.script = q.script
	freshStats(t, tool.queue)
	if given := tool.queue.GivenUpKeys(10); len(given) != 2 {
		t.Errorf("GivenUpKeys() for a tool = %+v", given)
	}
	endQueue(t, tool.queue)
	freshStats(t, q)
	if got := list(); len(got) != 0 {
		t.Errorf("GivenUp() two hours later = %q", got)
	}
}

// One key, and all keys in steps.
func TestKeyReader(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{Shards: 3})
	want := map[string]workqueue.KeyState{}
	addAndGet(t, q, "held")
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
	flush(t, q)
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
		if (k.State == workqueue.KeyWaiting) != !k.Due.IsZero() ||
			k.Since.IsZero() == (k.State != workqueue.KeyWaiting) {
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
	if !found || k.State != workqueue.KeyProcessing || !k.Again || time.Until(k.Due) < 50*time.Minute ||
		time.Since(k.Since) > time.Minute {
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

type watcher struct {
	workqueue.MetricsProvider
	stats func() workqueue.Stats
}

func (w *watcher) HistogramBounds() []float64                        { return nil }
func (w *watcher) WatchQueue(_ string, stats func() workqueue.Stats) { w.stats = stats }

// inspector is a provider that looks at queues.
type inspector struct {
	watcher
	queues map[string]tool
}

func (i *inspector) InspectQueue(name string, q any, untyped workqueue.Extended[any]) {
	i.queues[name] = tool{untyped, untyped.(operate.Operable[any]), q.(operate.FactSource)}
}

// tool has what a tool sees of a queue.
type tool struct {
	workqueue.Extended[any]
	operate.Operable[any]
	operate.FactSource
}

// A queue without a provider of its own uses that of workqueue.SetProvider, and shows itself to a provider that
// inspects queues. Tools, which do not know the type of its keys, see what only the queue knows, and change
// it.
func TestInspector(t *testing.T) {
	p := &inspector{queues: make(map[string]tool)}
	var global any = p
	defer observe.Global.Store(observe.Global.Swap(&global))
	q, err := New(context.Background(), startServer(t).client(), Config[int]{Name: "numbers", Logger: discard})
	must(t, err)
	defer endQueue(t, q)
	i, ok := p.queues["numbers"]
	if !ok || p.stats == nil {
		t.Fatalf("the provider has seen %v", p.queues)
	}
	i.Add(1)
	waitUntil(t, func() bool { return i.Stats().Queued == 1 && p.stats().Queued == 1 })
	if k, found := i.SnapshotKey(1); !found || k.State != workqueue.KeyQueued {
		t.Errorf("SnapshotKey() = %+v, %v", k, found)
	}
	i.Pause(operate.UntilResumed)
	if !i.Remove(1) {
		t.Error("1 was not removed")
	}
	waitUntil(t, func() bool { return i.Stats().Paused })
	i.Resume()
	waitUntil(t, func() bool { return !i.Stats().Paused })

	giveUp(q, 17, errors.New("the card was declined"))
	giveUp(q, 18, nil)
	var given []operate.GivenUpKey[any]
	waitUntil(t, func() bool { given = i.GivenUpKeys(10); return len(given) == 2 })
	if k := given[1]; k.Key != 17 || k.Attempts != 1 || k.Err != "the card was declined" ||
		time.Since(k.Time) > time.Hour {
		t.Errorf("GivenUpKeys() = %+v", given)
	}
	if !i.RetryGivenUp(17) || i.RetryGivenUp(17) || !i.ForgetGivenUp(18) || i.ForgetGivenUp(18) ||
		len(i.GivenUpKeys(10)) != 0 {
		t.Errorf("%+v are left", i.GivenUpKeys(10))
	}
	if key, _ := q.Get(); key != 17 {
		t.Errorf("got %d, want the key that is tried again", key)
	}
	q.Done(17)
	facts := fmt.Sprint(i.Facts())
	for _, want := range []string{"{Server answers; 0 attempts", "1 shards, keys: int",
		"{Not sent yet"} {
		if !strings.Contains(facts, want) {
			t.Errorf("Facts() = %s, want %q", facts, want)
		}
	}
}

// The methods that read keys return in time from a server that hangs, also with a client that waits for its
// reply much longer.
func TestReadersOfHangingServer(t *testing.T) {
	s := startServer(t)
	client := newClient(t, &redis.Options{Addr: s.addr, ReadTimeout: time.Minute})
	q := newTestQueue(t, client, Config[string]{})
	must(t, q.AddContext(within(t, 10*time.Second), "x"))
	s.signal(syscall.SIGSTOP)
	defer s.signal(syscall.SIGCONT)
	began := time.Now()
	var wg sync.WaitGroup
	for name, read := range map[string]func(){
		"Snapshot":    func() { q.Snapshot(10) },
		"SnapshotKey": func() { q.SnapshotKey("x") },
		"SnapshotKeys": func() {
			for range q.SnapshotKeys() {
				t.Error("a server that is stopped has answered")
			}
		},
		"Keys": func() {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			for _, err := range q.keys(ctx, ListGivenUp, 10) {
				wantErr(t, err, context.DeadlineExceeded)
			}
			_, err := (&Admin{queue: q}).Counts(ctx)
			wantErr(t, err, context.DeadlineExceeded)
			_, err = q.key(ctx, "x")
			wantErr(t, err, context.DeadlineExceeded)
		},
	} {
		wg.Go(func() {
			read()
			if d := time.Since(began); d > 20*time.Second {
				t.Errorf("%s() has returned after %v", name, d)
			}
		})
	}
	wg.Wait()
}

// A key that has the name of a list is a key like any other.
func TestKeysNamedLikeLists(t *testing.T) {
	t.Parallel()
	q := newTestQueue(t, startServer(t).client(), Config[string]{})
	for _, key := range []string{"givenup", "processing"} {
		must(t, q.AddContext(t.Context(), key))
		if info, err := q.key(t.Context(), key); err != nil || info.Key != key ||
			info.State != workqueue.KeyQueued {
			t.Errorf("%s: %+v, %v", key, info, err)
		}
	}
}
