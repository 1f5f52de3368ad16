package debug_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// counted is how many keys an action would be for.
type counted struct {
	Count int
	More  bool
}

func count(t *testing.T, h http.Handler, set string) counted {
	t.Helper()
	return getJSON[counted](t, h, "?queue=q&count="+set)
}

// All failing keys, all that were given up, or all with an error can be retried and forgotten, with their
// number before.
func TestManyKeysAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		q := newPriorityQueue(t, h, "q")
		repaired := false
		handled := make(map[string]string)
		pool := worker.New(q, func(ctx context.Context, key string) error {
			handled[key] = worker.CallOf(ctx).Causes().String()
			switch kind, _, _ := strings.Cut(key, " "); {
			case repaired:
				return nil
			case kind == "disk":
				return errors.New("no space left\non device")
			case kind == "name":
				return worker.Terminal(errors.New("bad name"))
			default:
				return errors.New("timeout")
			}
		}, worker.Options[string]{MetricsProvider: h})
		start(t, pool)
		for n := range 21 {
			q.Add(fmt.Sprint("disk ", n))
		}
		for n := range 3 {
			q.Add(fmt.Sprint("name ", n))
			q.Add(fmt.Sprint("time ", n))
		}
		synctest.Wait()
		for set, want := range map[string]int{
			"failing": 24, "given_up": 3, "all": 27, "failing&error=space": 21, `all&error=left%5Cnon`: 21,
			"all&error=bad+name": 3,
			"failing&error=bad":  0, "all&error=nothing+like+it": 0,
		} {
			if got := count(t, h, set); got != (counted{want, false}) {
				t.Errorf("%s: %+v, want %d", set, got, want)
			}
		}
		// The page lists the keys with that error, and its buttons are for these.
		wantBody(t, get(h, "?queue=q&state=failing&error=time"), "Failing</h2>", "3 of 3, ",
			`data-action="retry" data-queue="q" data-of="failing" data-error="time"`, "time 2",
			`<a href="?error=time&amp;queue=q&amp;state=given_up">Given-up keys with such an error</a>`)
		wantBody(t, get(h, "?queue=q&state=given_up&error=time"), "Given up</h2>", "No key has such an error.")
		p := getJSON[keysPage](t, h, "?queue=q&state=failing&error=space")
		if len(p.Keys) != 21 || !strings.HasPrefix(p.Keys[0].Key, "disk") {
			t.Errorf("%+v", p)
		}
		clear(handled)
		repaired = true
		b := h.act(t, 200, "q", "retry", "of", "failing", "error", "space", "count", "22")
		if b.Keys != 21 || b.Gone != 1 || b.Left != 0 || b.Text != "Retried 21 keys, 1 gone." {
			t.Errorf("%+v", b)
		}
		if a := h.last(); a.Of != "failing" || a.ErrorContains != "space" || a.Keys != 21 {
			t.Errorf("%+v", a)
		}
		synctest.Wait()
		if len(handled) != 21 || handled["disk 7"] != "retried by hand" || count(t, h, "failing").Count != 3 {
			t.Errorf("handled: %v", handled)
		}
		if b = h.act(t, 200, "q", "forget", "of", "failing"); b.Text != "Forgot the failures of 3 keys." ||
			q.NumRequeues("time 1") != 0 ||
			pool.SnapshotKey("time 1").Failing != nil || count(t, h, "failing").Count != 0 {
			t.Errorf("%+v, %d requeues", b, q.NumRequeues("time 1"))
		}
		if q.Stats().Waiting != 3 {
			t.Errorf("the keys themselves are forgotten: %+v", q.Stats())
		}
		if h.act(t, 200, "q", "forget", "key", "name 1"); count(t, h, "given_up").Count != 2 {
			t.Errorf("given up are %+v", count(t, h, "given_up"))
		}
		if b = h.act(t, 200, "q", "forget", "of", "all"); b.Keys != 2 || count(t, h, "all").Count != 0 ||
			pool.SnapshotKey("name 2").GivenUp != nil {
			t.Errorf("%+v", b)
		}
		h.act(t, 400, "q", "retry", "of", "everything")
		h.act(t, 400, "q", "remove", "of", "all")
		h.act(t, 400, "q", "cancel", "of", "failing")
		h.act(t, 400, "q", "retry", "key", "disk 1", "key", "disk 2")
		if a := h.act(t, 400, "q", "retry", "key", "disk 1", "of", "failing"); a.Error != "The form has both key and of." {
			t.Errorf("%+v", a)
		}
		if w := get(h, "?queue=q&count=everything"); w.Code != 400 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// many shows q with n failing keys, which are made up one by one.
func many(h *debug.Handler, n int, q operate.Inspector) {
	failing := func(key any) workqueue.KeySnapshot[any] {
		return workqueue.KeySnapshot[any]{Key: key, Requeues: 1, Failures: workqueue.Failures{Count: 1, Err: "broken"}}
	}
	q.SnapshotKeys = func() iter.Seq[workqueue.KeySnapshot[any]] {
		return func(yield func(workqueue.KeySnapshot[any]) bool) {
			for i := 0; i < n && yield(failing(i)); i++ {
			}
		}
	}
	q.FailingKeys = func(limit int) (keys []workqueue.KeySnapshot[any]) {
		for i := range min(limit, n) {
			keys = append(keys, failing(i))
		}
		return keys
	}
	q.Snapshot = func(limit int) workqueue.Snapshot[any] {
		return workqueue.Snapshot[any]{Failing: q.FailingKeys(limit)}
	}
	of := q.SnapshotKey
	q.SnapshotKey = func(key any) (workqueue.KeySnapshot[any], bool) {
		k := failing(key)
		if of == nil {
			return k, true
		}
		now, found := of(key)
		k.State = now.State
		return k, found
	}
	inspect(h, "q", q)
	showPool(h, worker.Snapshot[any]{Stats: worker.Stats{Name: "q", Failing: n}})
}

// An action on very many keys keeps none of them, ends after ten seconds, and says how many are left.
func TestVeryManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		var added, slow atomic.Int64
		var before, kept int64
		many(h.Handler, 100_000, operate.Inspector{
			Stats: func() workqueue.Stats { return workqueue.Stats{Adds: uint64(added.Load())} },
			Add: func(any) {
				if added.Add(1) == 99_999 {
					kept = liveHeap() - before
				}
				time.Sleep(time.Duration(slow.Load()))
			},
		})
		if n := count(t, h, "failing"); n.Count != 100_000 {
			t.Errorf("%+v", n)
		}
		before = liveHeap()
		if b := h.act(t, 200, "q", "retry", "of", "failing"); b.Keys != 100_000 || b.Left != 0 || kept == 0 ||
			kept > 40<<20 { // The list alone takes 28 MB.
			t.Errorf("%+v, kept %d bytes", b, kept)
		}
		slow.Store(int64(time.Millisecond))
		began := time.Now()
		b := h.act(t, 200, "q", "retry", "of", "failing", "count", "100000")
		if d := time.Since(began); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("it took %v", d)
		}
		if b.Keys < 9000 || b.Keys > 10_001 || b.Gone != 0 || b.Keys+b.Left != 100_000 ||
			!strings.HasSuffix(b.Text, " left.") || h.last().Keys != b.Keys || h.last().Left != b.Left {
			t.Errorf("%+v, audited %+v", b, h.last())
		}
	})
}

// A queue that is shut down meanwhile takes no more keys, and the answer says so.
func TestRetryWhileShuttingDown(t *testing.T) {
	for _, form := range [][]string{{"retry", "of", "failing"}, {"retry", "key", "1"}} {
		h := newAudited(t)
		q := newQueue[int](t, "q", newClock())
		i := operate.Inspect[int](q)
		i.AddCause = func(any, workqueue.Cause) { q.ShutDown() }
		inspect(h, "q", i)
		fail(t, q, 1)
		fail(t, q, 2)
		if b := h.act(t, 409, "q", form...); !strings.Contains(b.Error, "shut down meanwhile") {
			t.Errorf("%v: %+v", form, b)
		}
	}
}

// Keys that the queue itself keeps as given up are listed beside those of the pools, each once, and are
// retried and forgotten by the queue.
func TestGivenUpKeysOfTheQueue(t *testing.T) {
	h := newAudited(t)
	kept := map[any]string{"a": "broken <b>", "b": "broken", "c": "too large"}
	var did []string
	do := func(what string) func(any) bool {
		return func(key any) bool {
			_, there := kept[key]
			delete(kept, key)
			did = append(did, what+" "+key.(string))
			return there && key != "c"
		}
	}
	inspect(h, "q", operate.Inspector{
		Stats: noStats,
		Add:   func(key any) { did = append(did, "add "+key.(string)) },
		GivenUp: func(limit int) (keys []operate.GivenUpKey[any]) {
			for key, err := range kept {
				keys = append(keys, operate.GivenUpKey[any]{Key: key, Attempts: 4, Err: err, Time: time.Now()})
			}
			return keys[:min(limit, len(keys))]
		},
		RetryGivenUp: do("retry"), ForgetGivenUp: do("forget"),
		Facts: func() []operate.Fact { return []operate.Fact{{Name: "Server <b>", Value: "10.0.0.1 <i>"}} },
	})
	showPool(h, worker.Snapshot[any]{Stats: worker.Stats{Name: "q", GivenUpKeys: 2},
		GivenUp: []worker.FailedKey[any]{{Key: "b", Err: "broken"}, {Key: "d", Err: "broken", Attempt: 1}}})
	d := getJSON[detail](t, h, "?queue=q")
	if len(d.GivenUp) != 4 || d.GivenUp[3].Key != "d" || d.GivenUp[0].Attempt != 4 {
		t.Errorf("%+v", d.GivenUp)
	}
	wantBody(t, get(h, "?queue=q"), "Given up</h2>", "4 of 4", "Facts</h2>", "Server &lt;b&gt;",
		"10.0.0.1 &lt;i&gt;")
	wantBody(t, get(h, "?queue=q"), "broken &lt;b&gt;")
	wantBody(t, get(h, "?queue=q&format=json"),
		`"facts":[{"name":"Server \u003cb\u003e","value":"10.0.0.1 \u003ci\u003e"}]`)
	if n, failing := count(t, h, "given_up"), count(t, h, "failing"); n.Count != 4 || failing.Count != 0 {
		t.Errorf("%+v, failing %+v", n, failing)
	}
	if s := getJSON[story](t, h, linksToKeys(h, "?queue=q&key=a")[0]); s.Key.State != "given_up" ||
		s.Key.Error != "broken <b>" || s.Key.Attempt != 4 {
		t.Errorf("%+v", s)
	}
	if h.act(t, 200, "q", "retry", "key", "a"); strings.Join(did, ", ") != "retry a" {
		t.Errorf("%v", did)
	}
	kept["a"], did = "broken", nil
	b := h.act(t, 200, "q", "retry", "of", "given_up")
	slices.Sort(did)
	if b.Keys != 3 || b.Gone != 1 || strings.Join(did, ", ") != "add d, retry a, retry b, retry c, retry d" {
		t.Errorf("%+v %v", b, did)
	}
	kept["a"], did = "broken", nil
	if b := h.act(t, 200, "q", "forget", "of", "given_up"); b.Keys != 3 ||
		strings.Join(did, ", ") != "forget a, forget b, forget d" {
		t.Errorf("%+v %v", b, did)
	}
}

// keeper is a queue that keeps n keys as given up.
func keeper(h *debug.Handler, n int) (left func() int) {
	kept := make([]operate.GivenUpKey[any], n)
	for i := range kept {
		kept[i] = operate.GivenUpKey[any]{Key: i, Attempts: 1, Err: "broken"}
	}
	retried := make(map[any]bool)
	inspect(h, "q", operate.Inspector{
		Stats: noStats,
		Add:   func(any) {},
		GivenUp: func(limit int) []operate.GivenUpKey[any] {
			kept = slices.DeleteFunc(kept, func(k operate.GivenUpKey[any]) bool { return retried[k.Key] })
			return slices.Clone(kept[:min(limit, len(kept))])
		},
		RetryGivenUp: func(key any) bool { retried[key] = true; return true },
	})
	return func() int { return n - len(retried) }
}

// A list that has not all keys is no secret: neither in a count nor in the answer to an action, nor on the
// page.
func TestMoreKeysThanAreListed(t *testing.T) {
	h := newAudited(t)
	left := keeper(h.Handler, 15_000)
	for _, set := range []string{"given_up", "all", "all&error=broken"} {
		if c := count(t, h, set); c != (counted{10_000, true}) {
			t.Errorf("%s: %+v", set, c)
		}
	}
	wantBody(t, get(h, "?queue=q&state=given_up&error=broken"), "There may be more keys than these.")
	b := h.act(t, 200, "q", "retry", "of", "given_up", "count", "12000")
	if b.Keys != 10_000 || b.Gone != 0 || b.Left != 0 || !b.LeftMore ||
		b.Text != "Retried 10,000 keys; there may be more." || left() != 5000 {
		t.Errorf("%+v, %d are left", b, left())
	}
	b = h.act(t, 200, "q", "retry", "of", "given_up")
	if b.Keys != 5000 || b.LeftMore || b.Text != "Retried 5,000 keys." || left() != 0 {
		t.Errorf("%+v, %d are left", b, left())
	}

	exact := newHandler(t, debug.Options{})
	keeper(exact, 10_000)
	if c := count(t, exact, "given_up"); c != (counted{10_000, false}) {
		t.Errorf("all are listed: %+v", c)
	}
}

// A key is found and forgotten among more given-up keys than a page reads.
func TestOneOfManyGivenUpKeys(t *testing.T) {
	h := newAudited(t)
	left := keeper(h.Handler, 1000)
	for _, query := range []string{"?queue=q&key=999", linksToKeys(h, "?queue=q&key=999")[0]} {
		if f := getJSON[found](t, h, query); len(f.Keys) != 1 || f.Keys[0].State != "given_up" || f.Incomplete {
			t.Errorf("%s: %+v", query, f)
		}
	}
	if h.act(t, 200, "q", "retry", "key", "999"); left() != 999 {
		t.Errorf("%d are left", left())
	}
}

// An action does not wait for a search.
func TestActionsDoNotWaitForReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newAudited(t)
		inspect(h, "endless", (&manyKeys{n: 1 << 30, each: time.Millisecond}).inspector())
		many(h.Handler, 12_000, operate.Inspector{Stats: noStats, Add: func(any) {}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET",
				"/?queue=endless&key=none", nil))
		})
		time.Sleep(time.Second)
		began := time.Now()
		if b := h.act(t, 200, "q", "retry", "of", "failing"); b.Keys != 12_000 || time.Since(began) > time.Second {
			t.Errorf("after %v: %+v", time.Since(began), b)
		}
		// What does wait for it, and gives up, does not say that there are no keys.
		if w := get(h, "?queue=q&count=failing"); w.Code != 503 ||
			!strings.Contains(w.Body.String(), "try again in a minute") {
			t.Errorf("a count during a search: %d %s", w.Code, w.Body)
		}
		began = time.Now()
		if w := get(h, "?queue=q&count=everything"); w.Code != 400 || time.Since(began) > time.Second {
			t.Errorf("a count of no set: %d after %v", w.Code, time.Since(began))
		}
		// What is listed completely does not.
		began = time.Now()
		wantBody(t, get(h, "?queue=q&state=queued"), "No key waits for a worker.")
		if c := count(t, h, "given_up"); c != (counted{}) || time.Since(began) > time.Second {
			t.Errorf("%+v after %v", c, time.Since(began))
		}
		wantBody(t, get(h, "?queue=q&state=failing"), "try again in a minute", "There may be more keys", "250 of 10,000")
		wantBody(t, get(h, "?queue=q&state=failing&error=none"), "try again in a minute", "Not known.")
		if p := getJSON[keysPage](t, h, "?queue=q&state=failing"); !strings.Contains(p.Error,
			"try again in a minute") || len(p.Keys) != 250 || !p.More {
			t.Errorf("a page during a search: %+v", p)
		}
		wantBody(t, get(h, "?queue=q&state=failing&error=x"), "There may be more keys", "Not known.")
		cancel()
		wg.Wait()
	})
}
