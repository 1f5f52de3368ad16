package alarm

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestSet(t *testing.T) {
	c := testingclock.NewFakeClock(time.Unix(0, 0))
	due := c.Now().Add(time.Minute)
	left := func() time.Duration { return due.Sub(c.Now()) }
	timer := c.NewTimer(time.Second)
	c.Step(time.Second) // It has fired, unnoticed.
	if !Set(timer, false, left) {
		t.Error("Set() = false, and 59 seconds are left")
	}
	select {
	case <-timer.C():
		t.Error("the timer has what it fired before")
	default:
	}
	c.Step(59 * time.Second)
	select {
	case <-timer.C():
	default:
		t.Error("the timer has not fired")
	}
	if Set(timer, false, left) {
		t.Error("Set() = true, and no time is left")
	}
}

// The clock is stepped between its reading and the start of the timer.
func TestSetOnAClockThatMoves(t *testing.T) {
	for _, tt := range []struct {
		name         string
		moves        int
		isReal       bool
		reads, fires int
	}{
		{"not at all", 0, false, 2, 60},
		{"once", 1, false, 3, 60},
		{"always", 1000, false, 1 + maxStarts, 60 + 1}, // and so is late, by one step
		{"by itself", 1000, true, 2, 60 + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Unix(0, 0)
			c := testingclock.NewFakeClock(start)
			reads := 0
			left := func() time.Duration {
				d := start.Add(time.Minute).Sub(c.Now())
				if reads++; reads <= tt.moves {
					c.Step(time.Second)
				}
				return d
			}
			timer := c.NewTimer(time.Hour)
			if !Set(timer, tt.isReal, left) {
				t.Error("Set() = false")
			}
			if reads != tt.reads {
				t.Errorf("the time was read %d times, want %d", reads, tt.reads)
			}
			for {
				c.Step(time.Second)
				select {
				case <-timer.C():
					if s := int(c.Since(start) / time.Second); s != tt.fires {
						t.Errorf("the timer fired after %d seconds, want %d", s, tt.fires)
					}
					return
				default:
				}
				if c.Since(start) > time.Hour {
					t.Fatal("the timer does not fire")
				}
			}
		})
	}
}
