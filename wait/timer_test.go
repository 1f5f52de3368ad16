package wait_test

import (
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue/wait"
)

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

// The timer of a Backoff fires after each of its delays, and one without steps on a grid: time between a tick and
// Next does not move it.
func TestBackoffTimerFires(t *testing.T) {
	for _, c := range []struct {
		b    wait.Backoff
		want []time.Duration // in seconds
	}{
		{wait.Backoff{Duration: time.Second, Factor: 2, Steps: 5}, []time.Duration{1, 3, 7}},
		{wait.Backoff{Duration: time.Second}, []time.Duration{1, 2, 3}},
	} {
		synctest.Test(t, func(t *testing.T) {
			timer, begin := c.b.Timer(), time.Now()
			defer timer.Stop()
			for _, want := range c.want {
				<-timer.C()
				if at := time.Since(begin); at != want*time.Second {
					t.Errorf("%+v: fires after %v, want %d s", c.b, at, want)
				}
				if c.b.Steps == 0 {
					time.Sleep(time.Second / 2)
				}
				timer.Next()
			}
		})
	}
}
