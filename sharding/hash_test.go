package sharding

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func hashOf[T comparable](t *testing.T, key T) uint64 {
	t.Helper()
	h, err := newHasher(QueueConfig[T]{})
	if err != nil {
		t.Fatal(err)
	}
	return h.hash(key)
}

// TestHashNeverChanges: replicas of different versions must find the same key in the same slot.
func TestHashNeverChanges(t *testing.T) {
	type number int32
	for i, c := range []struct{ got, want uint64 }{
		{hashOf(t, ""), 0x850f9794d5108b4},
		{hashOf(t, "a"), 0x75ff139f979322b9},
		{hashOf(t, "namespace/name"), 0x4fa37b1731d7a140},
		{hashOf(t, namespacedName{"namespace", "name"}), 0x4fa37b1731d7a140},
		{hashOf(t, 17), 0x3f7d33a68a31831b},
		{hashOf(t, number(-1)), 0x661127ec9005138a},
		{hashOf(t, struct {
			a bool
			b [2]uint8
			c string
		}{true, [2]uint8{1, 2}, "x"}), 0x22a0a9f1bb9040bc},
	} {
		if c.got != c.want {
			t.Errorf("%d: %#x, want %#x", i, c.got, c.want)
		}
	}
	if hashOf(t, "a/b") != HashString("a/b") {
		t.Error("HashString is not the hash of strings")
	}
	if hashOf(t, int64(-5)) != hashOf(t, -5) || hashOf(t, int8(-5)) != hashOf(t, -5) {
		t.Error("the hash depends on the size of a number")
	}
}

// TestHashSpreads: names as people give them come evenly into slots, and so do the slots' shares. A perfectly
// random hash has a chi-squared of n-1 with a deviation of sqrt(2(n-1)) for n slots.
func TestHashSpreads(t *testing.T) {
	names := map[string]func(i int) any{
		"namespace-17":     func(i int) any { return fmt.Sprint("namespace-", i) },
		"17":               func(i int) any { return fmt.Sprint(i) },
		"ns/pod-0017":      func(i int) any { return fmt.Sprintf("ns/pod-%04d", i) },
		"team-17/app":      func(i int) any { return fmt.Sprintf("team-%d/app", i) },
		"aaa17":            func(i int) any { return fmt.Sprint(strings.Repeat("a", i%50), i) },
		"17aaa":            func(i int) any { return fmt.Sprint(i, strings.Repeat("a", i%50)) },
		"ns-1/web-7":       func(i int) any { return fmt.Sprintf("ns-%d/web-%d", i%31, i/31) },
		"{default web-17}": func(i int) any { return namespacedName{"default", fmt.Sprint("web-", i)} },
		"{team-17 web}":    func(i int) any { return namespacedName{fmt.Sprint("team-", i), "web"} },
		"{team-1 web-7}": func(i int) any {
			return namespacedName{fmt.Sprint("team-", i%31),
				fmt.Sprint("web-", i/31)}
		},
		"17 (number)":       func(i int) any { return i },
		"1024*17 (number)":  func(i int) any { return i * 1024 },
		"17<<32 (number)":   func(i int) any { return i << 32 },
		"deployment hashes": func(i int) any { return fmt.Sprintf("web-%x-%05d", i*7919, i%17) },
	}
	for what, name := range names {
		for _, slots := range []int{4, 256, 1000, 4096} {
			const n = 50_000
			count := make([]float64, slots)
			for i := range n {
				var h uint64
				switch key := name(i).(type) {
				case string:
					h = hashOf(t, key)
				case namespacedName:
					h = hashOf(t, key)
				case int:
					h = hashOf(t, key)
				}
				count[slotOf(h, slots)]++
			}
			chi, expected := 0.0, float64(n)/float64(slots)
			for _, c := range count {
				chi += (c - expected) * (c - expected) / expected
			}
			if off := (chi - float64(slots-1)) / math.Sqrt(2*float64(slots-1)); off > 4.5 {
				t.Errorf("%s in %d slots: chi-squared is %.1f deviations too great", what, slots, off)
			}
		}
	}
}

func TestKeysThatNeedAHash(t *testing.T) {
	for _, err := range []error{
		errOf[any](), errOf[*int](), errOf[float64](), errOf[chan int](), errOf[struct{ a, b any }](),
		errOf[[2]complex64](),
	} {
		if err == nil {
			t.Error("no error")
		}
	}
	type padded struct {
		A uint8
		_ float64
		B string
	}
	if err := errOf[padded](); err != nil {
		t.Error(err)
	}
}

func errOf[T comparable]() error {
	_, err := newHasher(QueueConfig[T]{})
	return err
}
