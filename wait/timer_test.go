package wait_test

import (
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue/wait"
)

// When the timers of a Backoff fire is compared with apimachinery in peers/compat.

// receive reports whether timer has fired.
func receive(c <-chan time.Time) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestDelayFuncTimer(t *testing.T) {
	fakeClock := testingclock.NewFakeClock(time.Unix(0, 0))
	calls := 0
	timer := wait.DelayFunc(func() time.Duration {
		calls++
		return time.Duration(calls) * time.Second
	}).Timer(fakeClock)

	timer.Next()
	timer.Stop()
	if calls != 0 || fakeClock.HasWaiters() {
		t.Fatal("has started before C")
	}
	c := timer.C()
	for n := 1; n <= 2; n++ {
		if timer.C() != c || calls != n {
			t.Fatalf("interval %d: same channel %t, %d delays", n, timer.C() == c, calls)
		}
		fakeClock.Step(time.Duration(n)*time.Second - 1)
		if receive(c) {
			t.Fatalf("interval %d: too early", n)
		}
		fakeClock.Step(1)
		if !receive(c) {
			t.Fatalf("interval %d: does not fire", n)
		}
		timer.Next()
	}
	timer.Stop()
	timer.Next()
	if fakeClock.HasWaiters() || calls != 3 {
		t.Fatalf("after Stop: waits %t, %d delays", fakeClock.HasWaiters(), calls)
	}
}

// TestStoppedTimersDoNotFire: a ticker that was forgotten would fire for as long as
// someone has its channel.
func TestStoppedTimersDoNotFire(t *testing.T) {
	for _, b := range []wait.Backoff{
		{Duration: time.Second},
		{Duration: time.Second, Factor: 2, Steps: 5},
		{Duration: -time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			timer := b.Timer()
			c := timer.C()
			<-c
			timer.Next()
			timer.Stop()
			time.Sleep(time.Minute)
			if receive(c) {
				t.Errorf("%+v: fires", b)
			}
		})
	}
}
