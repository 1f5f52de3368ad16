package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// startWorkers runs workers with a sync function of the test's own, until the test ends.
func startWorkers(t *testing.T, n int, f func(key string) (time.Duration, error)) *workers {
	t.Helper()
	checkGoroutines(t)
	w := newWorkers(newQueue(nil), newReport(t.Output()))
	w.maxRetries = 3
	w.fatal = func(err error) { t.Errorf("fatal: %v", err) }
	w.sync = func(_ context.Context, key string) (time.Duration, error) { return f(key) }
	var wg sync.WaitGroup
	t.Cleanup(func() {
		w.queue.ShutDown()
		wg.Wait()
	})
	wg.Go(func() { w.work(t.Context(), n) })
	return w
}

func TestRetryHeals(t *testing.T) {
	looks := make(map[string]int)
	w := startWorkers(t, 1, func(key string) (time.Duration, error) {
		if looks[key]++; key == "bad" && looks[key] <= 3 {
			return 0, errors.New("not yet")
		}
		return 0, nil
	})
	w.note("good") // holds back the first idle moment until both are in
	w.add("bad")
	w.add("good")
	<-w.idle
	if looks["bad"] != 4 || looks["good"] != 1 {
		t.Errorf("looks: %v", looks)
	}
	if n := w.rep.retried.Load(); n != 3 {
		t.Errorf("retried: %d", n)
	}
	if n := w.queue.NumRequeues("bad"); n != 0 {
		t.Errorf("the limiter still counts %d failures", n)
	}
	if n := w.rep.summary(t.Output()); n != 0 {
		t.Errorf("%d failed", n)
	}
}

func TestRetryGivesUp(t *testing.T) {
	looks := 0
	w := startWorkers(t, 1, func(key string) (time.Duration, error) {
		looks++
		return 0, errors.New("never")
	})
	w.add("bad")
	<-w.idle
	if looks != 4 || w.rep.summary(t.Output()) != 1 {
		t.Errorf("%d looks, failed: %v", looks, w.rep.failed)
	}
}

// A key that asks for another look gets it no earlier than it asked, and is no failure.
func TestLooksAgain(t *testing.T) {
	const wait = 30 * time.Millisecond
	var looks []time.Time
	w := startWorkers(t, 2, func(key string) (time.Duration, error) {
		if looks = append(looks, time.Now()); len(looks) <= 3 {
			return wait, nil
		}
		return 0, nil
	})
	w.add("young")
	<-w.idle
	for i := range len(looks) - 1 {
		if d := looks[i+1].Sub(looks[i]); d < wait {
			t.Errorf("look %d came after %v", i+1, d)
		}
	}
	if len(looks) != 4 || w.rep.retried.Load() != 0 || w.rep.summary(t.Output()) != 0 {
		t.Errorf("%d looks, %d retries", len(looks), w.rep.retried.Load())
	}
}

// With -once there is an end to it.
func TestLooksAgainTooOften(t *testing.T) {
	w := startWorkers(t, 2, func(key string) (time.Duration, error) { return time.Millisecond, nil })
	w.maxLooks = 5
	w.add("busy")
	<-w.idle
	if err := w.rep.failed["busy"]; !errors.Is(err, errBusy) {
		t.Errorf("got %v", err)
	}
}

// What the whole program relies on: a key has one worker at a time, no add is lost, and the adds
// that were not handed out are the merged ones.
func TestOneWorkerAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, adds = 10, 2000
		var mu sync.Mutex
		var wanted, done, busy [keys]int
		looks := 0
		index := func(key string) (i int) {
			fmt.Sscan(key, &i)
			return i
		}
		w := startWorkers(t, 8, func(key string) (time.Duration, error) {
			i := index(key)
			mu.Lock()
			looks++
			if busy[i]++; busy[i] > 1 {
				t.Errorf("key %s has two workers", key)
			}
			version := wanted[i]
			mu.Unlock()
			time.Sleep(50 * time.Microsecond)
			mu.Lock()
			busy[i]--
			done[i] = version
			mu.Unlock()
			return 0, nil
		})
		for n := range adds {
			mu.Lock()
			wanted[n%keys]++
			mu.Unlock()
			w.add(fmt.Sprint(n % keys))
		}
		eventually(t, "every version is done", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return done == wanted
		})
		w.queue.ShutDownWithDrain()
		if merged := w.merged(); looks+merged != adds || merged == 0 {
			t.Errorf("%d looks + %d merged, of %d adds", looks, merged, adds)
		}
		if left := w.left(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}
