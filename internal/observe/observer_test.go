package observe

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	testingclock "k8s.io/utils/clock/testing"
)

// Random calls, with the clock set forward and back, against times that are added up one by one.
func TestObserverAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
		o := New(c, NewBuckets([]float64{1}), nil)
		added, started := map[keytable.Slot]time.Time{}, map[keytable.Slot]time.Time{}
		worked, waited := 0.0, 0.0
		var order []keytable.Slot // those that run, in the order in which they were taken
		drop := func(s keytable.Slot) {
			order = slices.DeleteFunc(order, func(o keytable.Slot) bool { return o == s })
			delete(started, s)
		}
		for step := range 200 {
			s := keytable.Slot(1 + rng.IntN(12)*150)
			_, running := started[s]
			switch rng.IntN(5) {
			case 0:
				c.SetTime(c.Now().Add(time.Duration(rng.Int64N(int64(3*time.Hour))) - time.Hour))
			case 1:
				o.Added(s, o.Now())
				added[s] = c.Now()
			case 2, 3:
				if !running {
					if _, ok := added[s]; !ok {
						o.Added(s, o.Now())
						added[s] = c.Now()
					}
					waited += max(0, c.Now().Sub(added[s])).Seconds()
					o.Taken(s, o.Now())
					started[s] = c.Now()
					order = append(order, s)
				}
			case 4:
				if running {
					worked += max(0, c.Now().Sub(started[s])).Seconds()
					o.Finished(s, o.Now())
				}
				drop(s)
			}
			if sum := o.WorkDuration.Read().Sum; math.Abs(sum-worked) > 1e-6*max(1, worked) {
				t.Fatalf("seed %d, step %d: workers worked for %v s, want %v", seed, step, sum, worked)
			}
			if sum := o.Latency.Read().Sum; math.Abs(sum-waited) > 1e-6*max(1, waited) {
				t.Fatalf("seed %d, step %d: keys waited for %v s, want %v", seed, step, sum, waited)
			}
			if err := compare(o, c.Now(), added, started, order); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
	}
}

func compare(o *Observer, now time.Time, added, started map[keytable.Slot]time.Time,
	order []keytable.Slot) error {
	if got := slices.Collect(o.Running()); !slices.Equal(got, order) {
		return fmt.Errorf("running are %v, want %v", got, order)
	}
	for s, at := range added {
		if !o.Time(o.AddedAt(s)).Equal(at) || o.SinceAdded(s, o.Now()) != max(0, now.Sub(at)) {
			return fmt.Errorf("slot %d: added at %v, %v ago, want %v", s, o.AddedAt(s), o.SinceAdded(s, o.Now()), at)
		}
	}
	var sum, longest time.Duration
	for s, at := range started {
		if !o.Time(o.StartedAt(s)).Equal(at) {
			return fmt.Errorf("slot %d: started at %v, want %v", s, o.StartedAt(s), at)
		}
		sum += now.Sub(at)
	}
	if len(order) > 0 {
		longest = now.Sub(started[order[0]])
	}
	if gotSum, gotLongest := o.Unfinished(o.Now()); (gotSum-max(0,
		sum)).Abs() > 2*time.Duration(len(order))*time.Microsecond || gotLongest != max(0, longest) {
		return fmt.Errorf("unfinished %v, longest %v, want %v, %v", gotSum, gotLongest, sum, longest)
	}
	return nil
}

// The sum of many long times is the longest Duration, and right again when it has become short enough.
func TestUnfinishedSaturates(t *testing.T) {
	c := testingclock.NewFakeClock(time.Unix(0, 0))
	o := New(c, DefaultBuckets, nil)
	const n, years = 10_000, 20
	for s := range keytable.Slot(n) {
		o.Taken(s+1, o.Now())
	}
	c.Step(years * 365 * 24 * time.Hour)
	if sum, longest := o.Unfinished(o.Now()); sum != math.MaxInt64 || longest != years*365*24*time.Hour {
		t.Errorf("unfinished %v, longest %v", sum, longest)
	}
	for s := range keytable.Slot(n - 1) {
		o.Finished(s+1, o.Now())
	}
	if sum, longest := o.Unfinished(o.Now()); sum != longest || longest != years*365*24*time.Hour {
		t.Errorf("unfinished %v, longest %v of the last key", sum, longest)
	}
}
