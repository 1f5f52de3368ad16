package workqueuetest

import (
	"fmt"
	"testing/synctest"
	"time"
)

// delayCases are the cases of AddAfter that are too long for a script.
func delayCases() []testCase {
	return []testCase{
		bubbled("NeverEarly", "No key comes a nanosecond before its time or after it, whatever the delay.", tryNeverEarly),
		bubbled("FakeClock", "Nothing happens until the fake clock is stepped, and nothing needs real time.", tryFakeClock),
		bubbled("ManyDelays", "Keys come in the order of their times, whatever the order of the adds.", tryManyDelays),
	}
}

func tryNeverEarly(r *run) {
	for _, d := range []time.Duration{
		1, time.Microsecond, time.Second, 10*time.Second - 1, 10 * time.Second, 10*time.Second + 1, time.Hour, 100 * time.Hour,
	} {
		q := capable[delaying](r, Config[string]{})
		q.AddAfter("a", d)
		for rest := d - 1; rest > 0; {
			step := min(rest, max(d/3, 1))
			r.pass(step)
			rest -= step
		}
		r.wantLen(q, fmt.Sprintf("a nanosecond before %v have passed", d), 0)
		r.pass(1)
		r.process(q, fmt.Sprintf("when %v have passed", d), "a")
		q.ShutDown()
	}
}

func tryManyDelays(r *run) {
	const n = 300
	q := capable[delaying](r, Config[string]{})
	order := r.rand(0).Perm(n)
	want := make([]string, n)
	for key, place := range order {
		// No two at the same time; AddAfterTies is about those.
		q.AddAfter(fmt.Sprint(key), time.Duration(place+1)*time.Second)
		want[place] = fmt.Sprint(key)
	}
	r.pass(100 * time.Second)
	r.process(q, "the first 100 come due at once", want[:100]...)
	for _, key := range want[100:110] {
		r.pass(time.Second)
		r.process(q, "one by one", key)
	}
	r.pass(time.Hour)
	r.process(q, "the rest comes due at once", want[110:]...)
}

func tryFakeClock(r *run) {
	r.needFakeClock()
	q := capable[delaying](r, Config[string]{})
	q.AddAfter("a", time.Second)
	synctest.Wait()
	time.Sleep(100 * time.Hour)
	synctest.Wait()
	r.wantLen(q, "100 hours later, with the clock not stepped", 0)
	r.pass(time.Second)
	r.process(q, "the clock is stepped", "a")
}
