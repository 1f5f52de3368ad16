package worker_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/priorityqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// listing is a List of some keys. It takes so long.
type listing struct {
	mu    sync.Mutex // Time that passes in a bubble orders nothing for the race detector.
	keys  []string
	takes time.Duration
	err   error
	calls int
}

func (l *listing) list(context.Context) (iter.Seq[string], error) {
	l.mu.Lock()
	l.calls++
	takes := l.takes
	l.mu.Unlock()
	time.Sleep(takes)
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Values(l.keys), l.err
}

// change sets what the next lists are.
func (l *listing) change(keys []string, takes time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys, l.takes, l.err = keys, takes, err
}

func (l *listing) called() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

func numbers(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(i))
	}
	return keys
}

// Each key comes at once, and then once in a period, always at the same moment of it. The moments are spread.
func TestResync(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		began := make(map[string][]time.Time)
		l := &listing{keys: numbers(1000)}
		p := worker.New(q, func(_ context.Context, key string) error {
			began[key] = append(began[key], time.Now())
			return nil
		}, options{List: l.list, Resync: time.Hour})
		r := run(t, p)
		r.after(3 * time.Hour)
		minutes := make(map[time.Time]int)
		for key, at := range began {
			if len(at) != 4 || !at[0].Equal(r.begun) || at[2].Sub(at[1]) != time.Hour ||
				at[3].Sub(at[2]) != time.Hour {
				t.Fatalf("%s: %v", key, at)
			}
			minutes[at[1].Truncate(time.Minute)]++
		}
		most := 0
		for _, n := range minutes {
			most = max(most, n)
		}
		if len(began) != 1000 || most > 40 {
			t.Errorf("%d keys came, %d in a minute", len(began), most)
		}
		if s := p.Stats(); s.ListsFailed != 0 || !s.ListedAt.Equal(r.begun.Add(3*time.Hour)) ||
			l.called() != 4 {
			t.Errorf("%+v, %d calls", s, l.called())
		}
		l.change(numbers(1), 0, nil)
		r.after(5 * time.Hour)
		if gone, stays := began["500"], began["0"]; len(gone) > 5 || len(stays) != 6 {
			t.Errorf("%v, %v", gone, stays)
		}
		r.endCleanly()
	})
}

// A list that fails is tried again and delays nothing that is known, and so does a list that takes longer
// than the period.
func TestListFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled atomic.Int64 // Only time orders the calls and this test.
		logger, log := newLogger()
		l := &listing{keys: numbers(100), err: errors.New("no database"), takes: time.Second}
		p := worker.New(newQueue(), func(context.Context, string) error { handled.Add(1); return nil },
			options{List: l.list, Resync: time.Hour, Logger: logger})
		r := run(t, p)
		r.after(11 * time.Second) // It fails after 1 s, 3 s, 6 s and 11 s.
		if s, calls := p.Stats(), handled.Load(); calls != 0 || l.called() != 4 || s.ListsFailed != 4 ||
			!s.ListedAt.IsZero() {
			t.Errorf("%d calls, %d lists, %+v", calls, l.called(), s)
		}
		if !strings.Contains(log.String(), `level=ERROR source=`) &&
			!strings.Contains(log.String(), `err="no database" again=8s`) {
			t.Error(log)
		}
		l.change(numbers(100), time.Second, nil)
		r.after(time.Minute + time.Hour)
		if s, calls := p.Stats(), handled.Load(); calls < 100 || s.ListedAt.IsZero() {
			t.Errorf("%d calls, %+v", calls, s)
		}
		l.change(nil, 5*time.Hour, errors.New("no database"))
		before := handled.Load()
		r.after(time.Minute + 11*time.Hour)
		if calls := handled.Load() - before; calls != 1000 {
			t.Errorf("%d calls", calls)
		}
		end := time.Now()
		r.endCleanly()
		if took := time.Since(end); took > time.Second { // The list runs on after its context has ended.
			t.Errorf("The end took %v", took)
		}
		time.Sleep(6 * time.Hour)
	})
}

// Without Resync the keys come once, at once.
func TestList(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		calls := 0
		l := &listing{keys: numbers(10), err: errBroken}
		r := run(t, worker.New(q, func(context.Context, string) error { calls++; return nil },
			options{List: l.list}))
		l.change(numbers(10), 0, nil)
		r.after(time.Second)
		if calls != 10 {
			t.Errorf("%d calls", calls)
		}
		r.after(time.Hour)
		if calls != 10 || l.called() != 2 {
			t.Errorf("%d calls, %d lists", calls, l.called())
		}
		r.endCleanly()
	})
}

// The keys of the first list come at once, behind those that events bring. With Aging they come even while
// events bring more than the worker can do.
func TestFirstList(t *testing.T) {
	for name, test := range map[string]struct {
		aging      time.Duration
		wantListed int // of 40 keys, how many came in 20 s
	}{
		"low":   {wantListed: 0},
		"aging": {aging: 10 * time.Millisecond, wantListed: 40},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newPriorityQueue(priorityqueue.Config[string]{Aging: test.aging})
				var listed atomic.Int64
				l := &listing{keys: numbers(40), takes: time.Second}
				r := run(t, worker.New(q, func(_ context.Context, key string) error {
					if !strings.HasPrefix(key, "event") {
						listed.Add(1)
					}
					time.Sleep(11 * time.Millisecond)
					return nil
				}, options{List: l.list, Resync: 10 * time.Minute}))
				for i := range 2000 { // An event each 10 ms is 110 % of what the worker can do.
					q.Add(fmt.Sprint("event ", i))
					time.Sleep(10 * time.Millisecond)
				}
				if n := listed.Load(); n != int64(test.wantListed) {
					t.Errorf("%d listed keys came under load", n)
				}
				r.after(40 * time.Second)
				if n := listed.Load(); n < 40 || n > 60 {
					t.Errorf("%d listed keys came", n)
				}
				r.endCleanly()
			})
		})
	}
}

// A resync gives way to other keys, and interrupts no handler that waits for an add.
func TestResyncIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newPriorityQueue(priorityqueue.Config[string]{})
		var j journal
		l := &listing{keys: []string{"low", "waits"}, takes: time.Second}
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			j.add(key)
			if key == "waits" {
				ctx, cancel := context.WithTimeout(worker.CallOf(ctx).UntilAdded(), 150*time.Minute)
				defer cancel()
				<-ctx.Done()
				j.add(context.Cause(ctx).Error())
			}
			return nil
		}, options{List: l.list, Resync: time.Hour}))
		q.Add("waits")
		r.after(140 * time.Minute) // The only worker has "waits", and both keys were added three times.
		if n := q.PriorityOf("low"); n != -100 {
			t.Errorf("priority %d", n)
		}
		q.Add("later")
		r.after(151 * time.Minute)
		// The add of a key that is being handled has priority 0, and came before that of "later".
		equal(t, "calls", j.take(), "waits", "context deadline exceeded", "waits")
		q.Add("waits")
		synctest.Wait()
		equal(t, "calls", j.take(), worker.ErrAdded.Error(), "later", "waits")
		r.cancel()
		<-r.result
	})
}

// What ends the pool ends List, and nothing is added after it.
func TestResyncEnds(t *testing.T) {
	ends := map[string]func(r *running, p *worker.Pool[string]){
		"context": func(r *running, _ *worker.Pool[string]) { r.cancel() },
		"running": func(_ *running, p *worker.Pool[string]) { p.Stop(worker.Running) },
		"all":     func(_ *running, p *worker.Pool[string]) { p.Stop(worker.All) },
		"nothing": func(_ *running, p *worker.Pool[string]) { p.Stop(worker.Nothing) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				listed := false
				p := worker.New(q, takes(time.Second), options{KeepQueue: name != "all", Resync: time.Hour,
					List: func(ctx context.Context) (iter.Seq[string], error) {
						<-ctx.Done()
						listed = true
						return slices.Values(numbers(10)), nil
					}})
				r := run(t, p)
				q.Add("a")
				synctest.Wait()
				end(r, p)
				synctest.Wait()
				if !listed {
					t.Error("List is still running")
				}
				err := <-r.result
				time.Sleep(time.Minute)
				if err != nil || q.Len() != 0 || p.Stats().ListsFailed != 0 {
					t.Errorf("%v, %d keys, %+v", err, q.Len(), p.Stats())
				}
			})
		})
	}
}

// countedAdds is a queue that counts its adds with a cause.
type countedAdds struct {
	extended
	adds atomic.Int32
}

func (q *countedAdds) AddCause(key string, cause workqueue.Cause) {
	q.adds.Add(1)
	q.extended.AddCause(key, cause)
}

// stepClock is a clock that moves by a step each time it is read.
type stepClock struct {
	clock.RealClock
	step time.Duration
}

func (c *stepClock) Now() time.Time {
	time.Sleep(c.step)
	return c.RealClock.Now()
}

func (c *stepClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// A key whose moment comes just when a list does is not left out for a period.
func TestResyncRoundsHaveNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &countedAdds{extended: newQueue()}
		l := &listing{keys: numbers(100)}
		r := run(t, worker.New(q, fine, options{List: l.list, Resync: time.Hour, Clock: &stepClock{step: time.Minute}}))
		r.after(24 * time.Hour)
		if n := q.adds.Load(); n < 2200 {
			t.Errorf("%d adds in 24 hours", n)
		}
		r.cancel()
		<-r.result
		time.Sleep(time.Hour)
	})
}
