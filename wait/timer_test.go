package wait_test

import (
	"slices"
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

func TestBackoffTimer(t *testing.T) {
	tests := []struct {
		name string
		b    wait.Backoff
		want []time.Duration // when it fires, since its start
	}{
		{"grows", wait.Backoff{Duration: time.Second, Factor: 2, Steps: 3}, []time.Duration{1, 3, 7, 15, 23}},
		{"is fixed without steps", wait.Backoff{Duration: time.Second, Factor: 2}, []time.Duration{1, 2, 3, 4}},
		{"is fixed for a single step", wait.Backoff{Duration: time.Second, Factor: 2, Steps: 1}, []time.Duration{1, 2, 3, 4}},
		{"negative jitter is not fixed", wait.Backoff{Duration: time.Second, Factor: 2, Steps: 1, Jitter: -1}, []time.Duration{1, 3, 5, 7}},
		{"fires always", wait.Backoff{}, []time.Duration{0, 0, 0}},
		{"fires always for a negative duration", wait.Backoff{Duration: -time.Second}, []time.Duration{0, 0, 0}},
		{"growth of nothing", wait.Backoff{Factor: 2, Steps: 5}, []time.Duration{0, 0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timer := tt.b.Timer()
				time.Sleep(time.Hour) // it has not started
				begin := time.Now()
				for i, want := range tt.want {
					if i > 0 {
						timer.Next()
					}
					<-timer.C()
					if got := time.Since(begin); got != want*time.Second {
						t.Fatalf("fires after %v instead of %v (number %d)", got, want*time.Second, i+1)
					}
				}
				timer.Stop()
				timer.Stop()
			})
		})
	}
}

// TestFixedTimerKeepsItsGrid: a slow receiver finds one tick, and the next where it
// would have been anyway.
func TestFixedTimerKeepsItsGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := wait.Backoff{Duration: 10 * time.Second}.Timer()
		defer timer.Stop()
		begin := time.Now()
		var at []time.Duration
		timer.C()
		time.Sleep(35 * time.Second)
		for range 3 {
			<-timer.C()
			timer.Next()
			at = append(at, time.Since(begin)/time.Second)
		}
		if want := []time.Duration{35, 40, 50}; !slices.Equal(at, want) {
			t.Errorf("fires at %v, want %v", at, want)
		}
	})
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

func TestTimersOnTheRealClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := wait.DelayFunc(func() time.Duration { return time.Minute }).Timer(nil)
		defer timer.Stop()
		begin := time.Now()
		<-timer.C()
		<-wait.RealTimer(time.Minute).C()
		if d := time.Since(begin); d != 2*time.Minute {
			t.Errorf("both have fired after %v", d)
		}
	})
}

// TestStoppedTimersDoNotFire: a ticker that was forgotten would go on for as long as
// someone has its channel.
func TestStoppedTimersDoNotFire(t *testing.T) {
	for _, b := range []wait.Backoff{
		{Duration: time.Second},
		{Duration: time.Second, Factor: 2, Steps: 5},
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
