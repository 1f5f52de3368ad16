package workqueue_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/testkit"
)

// storied is a queue that says why its keys came, and that they are added again.
type storied[T comparable] = workqueue.Extended[T]

func because(reason string) workqueue.Cause { return workqueue.Cause{Reason: reason} }

func quietly(reason string) workqueue.Cause { return workqueue.Cause{Reason: reason, Quiet: true} }

func wantOpen(t *testing.T, c <-chan struct{}, when string) {
	t.Helper()
	select {
	case <-c:
		t.Errorf("AddedAgain is closed: %s", when)
	default:
		if c == nil {
			t.Errorf("AddedAgain is nil: %s", when)
		}
	}
}

func wantClosed(t *testing.T, c <-chan struct{}, when string) {
	t.Helper()
	select {
	case <-c:
	default:
		t.Errorf("AddedAgain is not closed: %s", when)
	}
}

// A key that waits in the delaying layer and comes due while a worker holds it is added again then.
func TestAddedAgainByTime(t *testing.T) {
	everyDelayingLayer(t, func(t *testing.T, build delayerBuilder[string]) {
		q := build(options[string]{})
		defer q.ShutDown()
		s := q.(storied[string])
		q.Add("a")
		hold(t, q, "a")
		q.AddAfter("a", time.Second)
		again := s.AddedAgain("a")
		time.Sleep(time.Second - 1)
		synctest.Wait()
		wantOpen(t, again, "before the time")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantClosed(t, again, "when the time has come")
		q.Done("a")
		process(t, q, "a")
	})
}

func TestCausesAreBounded(t *testing.T) {
	q := workqueue.NewTyped[string]()
	long := strings.Repeat("x", 255) + "é" + strings.Repeat("y", 1000)
	q.AddCause("a", workqueue.Cause{Reason: long, TraceParent: strings.Repeat("t", 65)})
	q.AddCause("a", workqueue.Cause{Reason: strings.Repeat("é", 200), TraceParent: strings.Repeat("t", 64)})
	q.AddCause("a", workqueue.Cause{TraceParent: strings.Repeat("t", 65)}) // nothing stays
	if c := q.Causes("a"); c.First.IsZero() || c.Last[1].Time.Before(c.First) {
		t.Errorf("Causes have the times %v and %v", c.First, c.Last[1].Time)
	}
	last := q.Causes("a").Last
	if len(last) != 2 {
		t.Fatalf("Causes are %+v, want 2", last)
	}
	if got := last[0]; got.Reason != strings.Repeat("x", 255) || got.TraceParent != "" {
		t.Errorf("cut in the middle of a rune, the reason is %q, and the trace %q", got.Reason, got.TraceParent)
	}
	if got := last[1]; len(got.Reason) != 256 || !utf8.ValidString(got.Reason) || len(got.TraceParent) != 64 {
		t.Errorf("cut between runes, the reason is %q, and the trace %q", got.Reason, got.TraceParent)
	}
}

// Plus does not change the Causes that somebody else has.
func TestCausesPlus(t *testing.T) {
	var all workqueue.Causes
	if !all.IsZero() || all.String() != "" {
		t.Errorf("zero Causes: %v, %q", all.IsZero(), all)
	}
	for n := range 8 {
		all = all.Plus(because(fmt.Sprint(n)))
	}
	before := slices.Clone(all.Last)
	for _, reason := range []string{"0", "7", "new"} {
		all.Plus(because(reason))
		if !slices.Equal(all.Last, before) {
			t.Fatalf("Plus(%s) changes its receiver to %v", reason, all.Last)
		}
	}
	traced := all.Plus(workqueue.Cause{Reason: "7", TraceParent: "00-…"})
	if got := traced.String(); got != "1; 2; 3; 4; 5; 6; 7; 1 others before" ||
		traced.Last[7].TraceParent == "" {
		t.Errorf("causes that differ in the trace are %q: %+v", got, traced.Last)
	}
	var only workqueue.Causes
	text, err := json.Marshal(only.Plus(workqueue.Cause{TraceParent: "00-…", Time: time.Unix(0, 0).UTC()}))
	if want := `{"last":[{"traceparent":"00-…","time":"1970-01-01T00:00:00Z"}],"first":"1970-01-01T00:00:00Z"}`; err != nil || string(text) != want {
		t.Errorf("as JSON: %s, %v, want %s", text, err, want)
	}
}

// story is what TestCausesAgainstModel believes of a key.
type story struct {
	queued, held, again bool
	loud                bool // has been added since Get, and not only quietly
	next, current       []string
	added               []<-chan struct{} // of this hand-out
	ended               []<-chan struct{} // of earlier ones, which nothing closed
}

func (k *story) because(reason string) {
	if reason != "" {
		k.next = append(slices.DeleteFunc(k.next, func(r string) bool { return r == reason }), reason)
	}
}

// Random calls give the causes, and close the channels, that one would expect of each key by itself.
func TestCausesAgainstModel(t *testing.T) {
	for _, l := range layers[string]() {
		t.Run(l.name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				testkit.InBubble(t, func() { compareStories(r, l.build(options[string]{})) })
			})
		})
	}
}

func compareStories(t *rapid.T, q workqueue.Extended[string]) {
	defer q.ShutDown()
	s := q
	keys, down := map[string]*story{"a": {}, "b": {}, "c": {}}, false
	names := rapid.SampledFrom([]string{"a", "b", "c"})
	add := func(k *story, cause workqueue.Cause) {
		if down {
			return
		}
		k.again = k.held
		k.queued = !k.held
		k.loud = k.held && (k.loud || !cause.Quiet)
		k.because(cause.Reason)
	}
	addCause := func(t *rapid.T) {
		name := names.Draw(t, "key")
		cause := workqueue.Cause{Reason: rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(t, "reason"),
			Quiet: rapid.Bool().Draw(t, "quiet")}
		s.AddCause(name, cause)
		add(keys[name], cause)
	}
	t.Repeat(map[string]func(*rapid.T){
		"add cause": addCause, "add another cause": addCause,
		"add": func(t *rapid.T) {
			name := names.Draw(t, "key")
			q.Add(name)
			add(keys[name], workqueue.Cause{})
		},
		"get": func(t *rapid.T) {
			if q.Len() == 0 {
				t.Skip("would block")
			}
			name, _ := q.Get()
			k := keys[name]
			k.queued, k.held, k.current, k.next = false, true, k.next, nil
		},
		"done": func(t *rapid.T) {
			name := names.Draw(t, "key")
			q.Done(name)
			if k := keys[name]; k.held {
				if !k.loud {
					k.ended = append(k.ended, k.added...)
				}
				k.queued, k.held, k.again, k.loud, k.current, k.added = k.again, false, false, false, nil, nil
			}
		},
		"shut down": func(t *rapid.T) {
			if rapid.IntRange(0, 20).Draw(t, "really") > 0 {
				t.Skip("another action: a shutdown is rare")
			}
			q.ShutDown()
			down = true
		},
		"added again": func(t *rapid.T) {
			name := names.Draw(t, "key")
			c := s.AddedAgain(name)
			if k := keys[name]; k.held {
				k.added = append(k.added, c)
			} else if c != nil {
				t.Fatalf("AddedAgain(%s) is not nil", name)
			}
		},
		"": func(t *rapid.T) {
			isClosed := func(c <-chan struct{}) bool {
				select {
				case <-c:
					return true
				default:
					return false
				}
			}
			for name, k := range keys {
				for _, c := range k.added {
					if isClosed(c) != k.loud {
						t.Fatalf("AddedAgain(%s) is closed: %v, added loudly: %v", name, isClosed(c), k.loud)
					}
				}
				if slices.ContainsFunc(k.ended, isClosed) {
					t.Fatalf("AddedAgain(%s) is closed after Done", name)
				}
				want := k.next
				if k.held {
					want = k.current
				}
				if got := s.Causes(name).String(); got != strings.Join(want, "; ") {
					t.Fatalf("Causes(%s) are %q, want %q", name, got, want)
				}
			}
			if err := workqueue.CheckInvariants[string](q); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// Handlers that wait for the next add, and callers that add in each way, at once: none waits forever, and no
// note stays.
func TestStressOfCauses(t *testing.T) {
	const keys, workers, adders, adds = 4, 3, 3, 300
	for _, l := range layers[int]() {
		t.Run(l.name, func(t *testing.T) {
			q := l.build(options[int]{})
			s := q
			var working, adding sync.WaitGroup
			stop := make(chan struct{})
			for range workers {
				working.Go(func() {
					for key, shutdown := q.Get(); !shutdown; key, shutdown = q.Get() {
						s.Causes(key)
						if rand.IntN(4) == 0 {
							select {
							case <-s.AddedAgain(key): // An adder adds every key now and then.
							case <-stop:
							}
						}
						q.Done(key)
					}
				})
			}
			for range adders {
				adding.Go(func() {
					for n := range adds {
						key := rand.IntN(keys)
						switch rand.IntN(4) {
						case 0:
							q.Add(key)
						case 1:
							s.SnapshotKey(key)
							q.Snapshot(2)
							for range s.SnapshotKeys() {
							}
						default:
							s.AddCause(key, workqueue.Cause{Reason: fmt.Sprint(n % 10), Quiet: n%2 == 0})
						}
					}
				})
			}
			adding.Wait()
			close(stop)
			q.ShutDownWithDrain()
			working.Wait()
			if err := workqueue.CheckInvariants[int](q); err != nil {
				t.Error(err)
			}
			if st := q.Stats(); st.Queued+st.Processing != 0 {
				t.Errorf("Stats() = %+v", st)
			}
		})
	}
}

// Keys without a cause cost no allocation, also in a queue in which another key has one.
func TestKeysWithoutCausesDoNotAllocate(t *testing.T) {
	if testkit.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	q := workqueue.NewTyped[string]()
	cycle := func() {
		q.Add("a")
		q.Get()
		q.Add("a")
		q.Done("a")
		q.Get()
		q.Done("a")
	}
	cycle()
	q.AddCause("b", because("1"))
	q.Get()
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// clientGoQueue has the methods of client-go's queues, and no others.
type clientGoQueue struct {
	workqueue.TypedRateLimitingInterface[string]
}

// AddCause needs no type assertion: a queue that knows no causes gets the key alone. Adds are merged in both.
func TestAddCauseToAnyQueue(t *testing.T) {
	newQueue := func() workqueue.TypedRateLimitingInterface[string] {
		return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	}
	for want, q := range map[string]workqueue.TypedInterface[string]{
		"created; changed": newQueue(),
		"":                 clientGoQueue{newQueue()},
	} {
		workqueue.AddCause(q, "a", because("created"))
		workqueue.AddCause(q, "a", quietly("changed"))
		if n := q.Len(); n != 1 {
			t.Errorf("%T: %d keys", q, n)
		}
		key, _ := q.Get()
		var got workqueue.Causes
		if c, ok := q.(workqueue.Extended[string]); ok {
			got = c.Causes(key)
		}
		if key != "a" || got.String() != want || got.IsZero() != (want == "") {
			t.Errorf("%T: the causes of %s are %q, want %q", q, key, got, want)
		}
		workqueue.AddCause(q, "a", because("again")) // While it is held: it is queued again.
		q.Done(key)
		if n := q.Len(); n != 1 {
			t.Errorf("%T: %d keys after Done", q, n)
		}
		q.ShutDown()
		workqueue.AddCause(q, "b", because("too late"))
		if n := q.Len(); n != 1 {
			t.Errorf("%T: %d keys after ShutDown", q, n)
		}
	}
}
