package observe

import (
	"fmt"
	"math"
	"math/big"
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
		worked := 0.0
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
					o.Taken(s, o.Now())
					started[s] = c.Now()
					order = append(order, s)
				}
			case 4:
				if _, ok := added[s]; running && rng.IntN(2) == 0 {
					worked += c.Now().Sub(started[s]).Seconds()
					o.Finished(s, o.Now())
				} else if ok {
					o.Untake(s) // changes nothing if it is not running
				}
				drop(s)
			}
			if _, _, sum := o.WorkDuration.Read(); math.Abs(sum-worked) > 1e-6*max(1, math.Abs(worked)) {
				t.Fatalf("seed %d, step %d: workers worked for %v s, want %v", seed, step, sum, worked)
			}
			if err := compare(o, c.Now(), added, started, order); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
	}
}

func compare(o *Observer, now time.Time, added, started map[keytable.Slot]time.Time, order []keytable.Slot) error {
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
	if gotSum, gotLongest := o.Unfinished(o.Now()); gotSum != max(0, sum) || gotLongest != max(0, longest) {
		return fmt.Errorf("unfinished %v, longest %v, want %v, %v", gotSum, gotLongest, sum, longest)
	}
	return nil
}

// Sums that are longer than a Duration can be, against big integers.
func TestDurationSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		var s durationSum
		want := new(big.Int)
		n := 1 + rng.IntN(50)
		for range n {
			d := time.Duration(rng.Uint64()) >> rng.IntN(64)
			s.add(d)
			want.Add(want, big.NewInt(int64(d)))
			if rng.IntN(3) == 0 {
				s.sub(d)
				want.Sub(want, big.NewInt(int64(d)))
			}
		}
		checkSum(t, s, want)
		now := time.Duration(rng.Uint64()) >> rng.IntN(64)
		since := new(big.Int).Mul(big.NewInt(int64(now)), big.NewInt(int64(n)))
		checkSum(t, s.since(now, n), since.Sub(since, want))
	}
}

func checkSum(t *testing.T, s durationSum, want *big.Int) {
	t.Helper()
	f, _ := new(big.Float).Quo(new(big.Float).SetInt(want), big.NewFloat(1e9)).Float64()
	if got := s.seconds(); math.Abs(got-f) > 1e-12*math.Abs(f) {
		t.Fatalf("%v s, want %v", got, f)
	}
	nearest := time.Duration(math.MaxInt64)
	switch {
	case want.IsInt64():
		nearest = time.Duration(want.Int64())
	case want.Sign() < 0:
		nearest = math.MinInt64
	}
	if got := s.duration(); got != nearest {
		t.Fatalf("%d ns, want %v", got, want)
	}
}
