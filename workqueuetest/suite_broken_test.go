package workqueuetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
)

// brokenQueue is a queue with one bug, and the cases that must find it. Other cases may find it as well.
type brokenQueue struct {
	name   string
	caught []string
	// bug changes methods of a correct queue. Without a bug, new builds the queue.
	bug    func(q *hooked, c Config[string])
	new    func(Config[string]) fifo
	newAny func(Config[any]) workqueue.TypedInterface[any]
	merges bool // with Suite.OneEntry, PlaceOfAdd and MergesRetries
	shared bool // with Suite.Shared
}

func (b brokenQueue) suite() Suite {
	s := Suite{New: b.new, NewAny: b.newAny, NoMetrics: b.merges, OneEntry: b.merges,
		PlaceOfAdd: b.merges, MergesRetries: b.merges,
		Shared: b.shared}
	if b.bug != nil {
		s.New = func(c Config[string]) fifo {
			q := hook(newHolding(c))
			b.bug(q, c)
			return q
		}
	}
	return s
}

var broken = []brokenQueue{
	{name: "loses adds of held keys", caught: []string{"AddWhileHeld", "GetWaits",
		"DrainWaitsForKeysAddedWhileHeld", "Model", "Linearizable", "StressEveryAddIsProcessed"},
		bug: func(q *hooked, _ Config[string]) {
			q.add = func(key string) {
				if !q.holds(key) {
					q.whole.Add(key)
				}
			}
		}},
	{name: "two workers hold a key", caught: []string{"AddWhileHeld", "GetWaits", "Model", "Linearizable",
		"StressEveryAddIsProcessed", "StressShutDown"},
		bug: func(q *hooked, _ Config[string]) {
			q.add = func(key string) {
				if h := q.whole.(*holding); h.note(key, false) {
					h.whole.Done(key)
				}
				q.whole.Add(key)
			}
		}},
	{name: "Done queues keys", caught: []string{"DoneOfUnheldKey", "ModelWithUnmatchedDone",
		"LinearizableWithUnmatchedDone"},
		bug: func(q *hooked, _ Config[string]) {
			q.done = func(key string) {
				if !q.holds(key) {
					q.whole.Add(key)
				}
				q.whole.Done(key)
			}
		}},
	{name: "AddedAt of the last add", caught: []string{"AddedAt", "AddedAtOfDelays", "AddedAtOfUnnamedQueue"},
		bug: func(q *hooked, c Config[string]) {
			last := make(map[string]time.Time)
			q.add = func(key string) { last[key] = c.Clock.Now(); q.whole.Add(key) }
			q.addedAt = func(key string) time.Time { return last[key] }
		}},
	{name: "Next returns the key alone", caught: []string{"Next", "NextOfAFailingKey"},
		bug: func(q *hooked, _ Config[string]) {
			q.next = func(ctx context.Context) (workqueue.HandOut[string], error) {
				h, err := q.whole.Next(ctx)
				return workqueue.HandOut[string]{Key: h.Key}, err
			}
		}},
	{name: "a hold is work", caught: []string{"PutOnHold",
		"SnapshotsOfAKeyOnHold", "WorkOfAKeyOnHold", "MetricsOfAKeyOnHold"},
		bug: func(q *hooked, _ Config[string]) { q.putOnHold = func(string) {} }},
	{name: "Fail asks no limiter", caught: []string{"Fail"},
		bug: func(q *hooked, _ Config[string]) {
			q.fail = func(_ context.Context, key string, f workqueue.Failure) (workqueue.Retry, error) {
				q.AddAfter(key, f.AtLeast)
				return workqueue.Retry{Attempt: 1, Delay: f.AtLeast}, nil
			}
		}},
	{name: "counts every failure", caught: []string{"FailWithinDelay"},
		bug: func(q *hooked, _ Config[string]) {
			q.fail = func(ctx context.Context, key string, f workqueue.Failure) (workqueue.Retry, error) {
				r, err := q.whole.Fail(ctx, key, f)
				if r.Same {
					r.Attempt++
				}
				return r, err
			}
		}},
	{name: "never gives up", caught: []string{"FailGivesUp"},
		bug: func(q *hooked, _ Config[string]) {
			q.fail = func(ctx context.Context, key string, f workqueue.Failure) (workqueue.Retry, error) {
				return q.whole.Fail(ctx, key, workqueue.Failure{AtLeast: f.AtLeast})
			}
		}},
	{name: "a retry is an add like others", caught: []string{"RetryDueWhileHeld", "ModelWithFailures"},
		bug: func(q *hooked, _ Config[string]) {
			var retries uint64
			q.fail = func(ctx context.Context, key string, f workqueue.Failure) (workqueue.Retry, error) {
				r, err := q.whole.Fail(ctx, key, f)
				if !r.GivenUp && !q.ShuttingDown() {
					q.whole.AddAfter(key, r.Delay)
					retries++
				}
				return r, err
			}
			q.stats = func() workqueue.Stats {
				st := q.whole.Stats()
				st.Retries -= retries
				return st
			}
		}},
	{name: "counts all keys as failing", caught: []string{"FailingKeys"},
		bug: func(q *hooked, _ Config[string]) {
			q.stats = func() workqueue.Stats {
				st := q.whole.Stats()
				st.Failing += st.Processing
				return st
			}
		}},
	{name: "counts no failure after shutdown", caught: []string{"FailAfterShutDown"},
		bug: func(q *hooked, _ Config[string]) {
			q.fail = func(ctx context.Context, key string, f workqueue.Failure) (workqueue.Retry, error) {
				if q.ShuttingDown() {
					return workqueue.Retry{}, workqueue.ErrShutDown
				}
				return q.whole.Fail(ctx, key, f)
			}
		}},
	{name: "drops nothing", caught: []string{"DropQueued"},
		bug: func(q *hooked, _ Config[string]) { q.dropQueued = func() []string { return nil } }},
	{name: "forgets causes", caught: []string{"Causes"},
		bug: func(q *hooked, _ Config[string]) {
			q.causes = func(string) (none workqueue.Causes) { return none }
		}},
	{name: "is never added again", caught: []string{"AddedAgain"},
		bug: func(q *hooked, _ Config[string]) {
			q.addedAgain = func(string) <-chan struct{} { return nil }
		}},
	{name: "finds no key", caught: []string{"SnapshotsOfKeys"},
		bug: func(q *hooked, _ Config[string]) {
			q.snapshotKey = func(key string) (workqueue.KeySnapshot[string], bool) {
				return workqueue.KeySnapshot[string]{Key: key}, false
			}
		}},
	{name: "adds later", caught: []string{"AddTwice", "Linearizable"},
		bug: func(q *hooked, _ Config[string]) { q.add = func(key string) { go q.whole.Add(key) } }},
	{name: "Add panics", caught: []string{"Order", "Model", "Linearizable", "StressEveryMethod"},
		bug: func(q *hooked, _ Config[string]) { q.add = func(string) { panic("index out of range") } }},
	{name: "drains early", caught: []string{"DrainWaitsForQueuedKeys", "DrainWaitsForHeldKeys",
		"DrainWaitsForKeysAddedWhileHeld", "StressDrain"},
		bug: func(q *hooked, _ Config[string]) {
			q.shutDownWithDrain = q.ShutDown
			q.shutDownContext = func(context.Context) error { q.ShutDown(); return nil }
		}},
	{name: "one drain ends", caught: []string{"EveryDrainEnds", "ShutDownEndsDrain", "ShutDownTwice"},
		bug: func(q *hooked, _ Config[string]) {
			one := make(chan struct{}, 1)
			q.shutDownWithDrain = func() { q.whole.ShutDownWithDrain(); one <- struct{}{} }
		}},
	{name: "Get does not report the shutdown", caught: []string{"GetAfterShutDown", "ShutDownWakesGetters",
		"ModelWithShutDown"},
		bug: func(q *hooked, _ Config[string]) {
			q.get = func() (string, bool) {
				key, _ := q.whole.Get()
				return key, false
			}
		}},
	{name: "Add waits for the clock", caught: []string{"AddTwice", "NothingWaitsForWorkers", "Model"},
		bug: func(q *hooked, _ Config[string]) {
			q.add = func(key string) {
				time.Sleep(time.Second)
				q.whole.Add(key)
			}
		}},
	{name: "second ShutDown panics", caught: []string{"ShutDownTwice"},
		bug: func(q *hooked, _ Config[string]) {
			down := make(chan struct{})
			q.shutDown = func() { close(down); q.whole.ShutDown() }
		}},
	{name: "nothing comes after shutdown", caught: []string{"GetAfterShutDown", "ModelWithShutDown",
		"Linearizable"},
		bug: func(q *hooked, _ Config[string]) {
			q.get = func() (string, bool) {
				if q.ShuttingDown() {
					return "", true
				}
				return q.whole.Get()
			}
		}},
	// It leaves a goroutine behind when GetContext gives up, which takes the next key.
	{name: "GetContext takes keys along", caught: []string{"GetContextGivesUp", "StressCancel"},
		bug: func(q *hooked, _ Config[string]) {
			q.getContext = func(ctx context.Context) (string, error) {
				if err := ctx.Err(); err != nil {
					return "", err
				}
				ch := make(chan got, 1)
				go func() {
					key, err := q.whole.GetContext(context.Background())
					ch <- got{key, err}
				}()
				select {
				case g := <-ch:
					return g.key, g.err
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
		}},
	{name: "GetContext ignores its context", caught: []string{"GetContextOfDoneContext", "GetContextGivesUp"},
		bug: func(q *hooked, _ Config[string]) {
			q.getContext = func(context.Context) (string, error) { return q.whole.GetContext(context.Background()) }
		}},
	{name: "a nanosecond early", caught: []string{"AddAfter", "NeverEarly"},
		bug: delays(func(_ string, d time.Duration) time.Duration { return max(1, d-1) })},
	{name: "a nanosecond late", caught: []string{"AddAfter", "NeverEarly", "AddAfterOrder", "AddAfterSame",
		"ManyDelays", "ModelWithTies"},
		bug: delays(func(_ string, d time.Duration) time.Duration { return d + 1 })},
	{name: "jitter", caught: []string{"AddAfterTies", "ModelWithTies"},
		bug: delays(func(key string, d time.Duration) time.Duration {
			return d +
				time.Duration(len(key)*int(key[0]))%7
		})},
	// It adds a key in a goroutine of its own for every call of AddAfter, until ShutDown.
	{name: "each delay counts", caught: []string{"AddAfterEarlier", "AddAfterLater",
		"NoGoroutineAfterShutDown", "Model"},
		bug: func(q *hooked, c Config[string]) {
			stop := q.atShutDown()
			q.addAfter = func(key string, d time.Duration) {
				timer := c.Clock.NewTimer(d)
				go func() {
					defer timer.Stop()
					select {
					case <-timer.C():
						q.Add(key)
					case <-stop:
					}
				}()
			}
		}},
	{name: "forgets to forget", caught: []string{"Forget"},
		bug: func(q *hooked, _ Config[string]) { q.forget = func(string) {} }},
	{name: "always runs", caught: []string{"NoGoroutineWhileIdle", "NoTimerWhileIdle"},
		bug: func(q *hooked, c Config[string]) {
			stop, ticker := q.atShutDown(), c.Clock.NewTicker(time.Minute)
			go func() {
				defer ticker.Stop()
				<-stop
			}()
		}},
	{name: "hoards", caught: []string{"ProcessedKeysAreGarbage", "UnhashableKey", "KeyUnequalToItself"},
		newAny: func(c Config[any]) workqueue.TypedInterface[any] {
			return hoardsAny{soundAny(c).(workqueue.TypedRateLimitingInterface[any]), new([]any)}
		}},
	{name: "ignores the clock", caught: []string{
		"FakeClock", "AddAfter", "DueWhileHeld", "DueWhileQueued", "NeverEarly", "ClockJumpsForward",
		"ClockJumpsBack", "StressClock",
	},
		new: func(c Config[string]) fifo { c.Clock = clock.RealClock{}; return sound(c) }},
	{name: "one entry a key, undeclared", caught: []string{
		"AddOfWaitingKey", "AddAfterNothingOfWaitingKey", "AddAfterOfQueuedKey", "AddAfterOfKeyToComeAgain",
		"AddOfHeldWaitingKey", "Model",
	},
		new: newMerging},
	{name: "two entries a key", merges: true, caught: []string{
		"AddOfWaitingKey", "AddAfterNothingOfWaitingKey", "AddAfterOfQueuedKey", "AddAfterOfKeyToComeAgain",
		"AddOfHeldWaitingKey",
		"Model", "ModelWithShutDown", "ModelWithUnmatchedDone", "ModelWithTies",
	},
		new: func(c Config[string]) fifo { return sound(c) }},
	// It ignores an AddAfter that is due before the waiting entry.
	{name: "only later times count", caught: []string{"AddAfterEarlier", "AddRateLimitedOfWaitingKey",
		"AddAfterNewFirst", "Model"},
		bug: func(q *hooked, c Config[string]) {
			var mu sync.Mutex
			dues := make(map[string]time.Time)
			q.addAfter = func(key string, d time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				now := c.Clock.Now()
				if due, ok := dues[key]; ok && due.After(now.Add(d)) && d > 0 {
					return
				}
				dues[key] = now.Add(d)
				q.whole.AddAfter(key, d)
			}
			q.addRateLimited = func(key string) { q.AddAfter(key, time.Hour) }
		}},
	{name: "no limiter", caught: []string{"AddRateLimited", "AddRateLimitedOfWaitingKey"},
		bug: func(q *hooked, _ Config[string]) {
			q.addRateLimited = func(key string) { q.AddAfter(key, time.Millisecond) }
		}},
	{name: "every retry waits", caught: []string{"AddRateLimitedWithoutDelay", "AddAfterWithoutDelay"},
		bug: func(q *hooked, _ Config[string]) {
			q.addAfter = func(key string, d time.Duration) { q.whole.AddAfter(key, max(d, 1)) }
			q.addRateLimited = func(key string) { q.AddAfter(key, 0) }
		}},
	{name: "adds after shutdown", caught: []string{"AddAfterShutDown", "ModelWithShutDown"},
		new: func(Config[string]) fifo { return newPlain(plain{addsAfterShutDown: true}) }},
	{name: "wakes one getter", caught: []string{"AddWakesGetters", "ShutDownWakesGetters"},
		new: func(Config[string]) fifo { return newPlain(plain{wakesOne: true}) }},
	{name: "keeps waiting keys", caught: []string{"AddAfterShutDownOfWaitingKey", "AddRateLimitedAfterShutDown",
		"ShutDownDropsWaiting"},
		new: func(c Config[string]) fifo { return lateAdder{newPlain(plain{addsAfterShutDown: true}), c.Clock} }},
	{name: "drain never gives up", caught: []string{"ShutDownContextGivesUp"},
		bug: func(q *hooked, _ Config[string]) {
			q.shutDownContext = func(context.Context) error { return q.whole.ShutDownContext(context.Background()) }
		}},
	{name: "metrics of every queue", caught: []string{"MetricsOfUnnamedQueue"},
		new: func(c Config[string]) fifo {
			if c.MetricsProvider != nil {
				c.Name = queueName
			}
			return sound(c)
		}},
	{name: "knows keys by their looks", caught: []string{"KeysOfManyTypes"},
		newAny: func(c Config[any]) workqueue.TypedInterface[any] {
			return looks{soundAny(c), make(map[string]bool)}
		}},
	{name: "grows", caught: []string{"IdleQueueIsGarbage", "MemoryIsGivenBack"},
		bug: func(q *hooked, _ Config[string]) {
			all := make(map[string]bool)
			q.done = func(key string) { all[key] = true; q.whole.Done(key) }
		},
		newAny: func(c Config[any]) workqueue.TypedInterface[any] {
			q := soundAny(c)
			neverFreed = append(neverFreed, q)
			return q
		}},
	{name: "not shared", shared: true, caught: []string{"SharedShutDown", "SharedDrain",
		"SharedAddAfterShutDown"},
		new: func(c Config[string]) fifo { return sound(c) }},
	// It counts every Add in its Stats, even if nothing changes.
	{name: "wrong Stats", caught: []string{"AddTwice", "Stats", "Model"},
		bug: func(q *hooked, _ Config[string]) {
			var adds atomic.Uint64
			q.add = func(key string) { adds.Add(1); q.whole.Add(key) }
			q.stats = func() workqueue.Stats {
				st := q.whole.Stats()
				st.Adds = adds.Load()
				return st
			}
		}},
	{name: "wrong depth", caught: []string{"Metrics", "MetricsOfDelays", "MetricsAfterShutDown",
		"StressEveryMethod"},
		new: func(c Config[string]) fifo {
			if c.MetricsProvider != nil {
				c.MetricsProvider = neverSinks{c.MetricsProvider}
			}
			return sound(c)
		}},
}

var neverFreed []any

// delays is a bug that changes the delays of AddAfter, but not a delay of zero.
func delays(change func(key string, d time.Duration) time.Duration) func(*hooked, Config[string]) {
	return func(q *hooked, _ Config[string]) {
		q.addAfter = func(key string, d time.Duration) {
			if d > 0 {
				d = change(key, d)
			}
			q.whole.AddAfter(key, d)
		}
	}
}
