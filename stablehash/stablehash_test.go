package stablehash

import (
	"fmt"
	"testing"
	"time"
)

// (Package sharding tests the hash of keys of each kind, and how evenly it spreads them.)
func TestNeverChanges(t *testing.T) {
	h, err := New[string]()
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Hash("namespace/name"); got != 0x4fa37b1731d7a140 || got != String("namespace/name") {
		t.Errorf("%#x", got)
	}
	if got := Phase(String("namespace/name"), time.Hour); got != 1119917769800 {
		t.Errorf("Phase() = %d", got)
	}
	if _, err := New[any](); err == nil {
		t.Error("an interface has a hash")
	}
}

// Keys are spread evenly over the period: at most 40 of 10,000 come in any of 600 seconds.
func TestPhases(t *testing.T) {
	const period = 10 * time.Minute
	var seconds [600]int
	most := 0
	for i := range 10_000 {
		p := Phase(String(fmt.Sprintf("team-%d/cluster", i)), period)
		if p < 0 || p >= period {
			t.Fatalf("phase %v", p)
		}
		seconds[p/time.Second]++
		most = max(most, seconds[p/time.Second])
	}
	if most > 40 {
		t.Errorf("%d keys have the same second", most)
	}
	for _, hash := range []uint64{0, 1, 1 << 63, 1<<64 - 1} {
		for _, period := range []time.Duration{1, 2, time.Second, 1<<63 - 1} {
			if p := Phase(hash, period); p < 0 || p >= period {
				t.Errorf("Phase(%d, %d) = %d", hash, period, p)
			}
		}
	}
}

func TestUntilPhase(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, tt := range []struct{ phase, now, want time.Duration }{
		{300 * s, 0, 300 * s}, {300 * s, 299 * s, 1 * s}, {300 * s, 299*s + 400*ms, 600*s + 600*ms},
		{300 * s, 299*s + 399*ms, 601 * ms},
		{300 * s, 300 * s, 600 * s}, {300 * s, 301 * s, 599 * s}, {0, 0, 600 * s},
		{0, 599*s + 900*ms, 600*s + 100*ms},
		{0, 1, 600*s - 1}, {600*s - 1, 0, 600*s - 1},
		{300 * s, -100 * s, 400 * s}, {300 * s, -400 * s, 100 * s}, {300 * s, 6e9 * s, 300 * s},
	} {
		const period = 600 * s
		if got := UntilPhase(tt.phase, period, time.Unix(0, int64(tt.now))); got != tt.want {
			t.Errorf("%v after the epoch, until %v of %v: %v, want %v", tt.now, tt.phase, period, got, tt.want)
		}
	}
	// Once in each period, whether the calls come a little early or late.
	now := time.Unix(1_800_000_000, 0)
	for i := range 1000 {
		before := now
		now = now.Add(UntilPhase(100*s, 600*s, now))
		if d := now.Sub(before); i > 0 && (d < 598*s || d > 602*s) {
			t.Fatalf("call %d comes %v after the one before", i, d)
		}
		now = now.Add(time.Duration(i%500-250) * ms)
	}
}
