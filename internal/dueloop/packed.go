package dueloop

import "time"

// Packed is a Duration in two halves, the lower one first.
type Packed [2]uint32

// Pack returns d in two halves.
func Pack(d time.Duration) Packed { return Packed{uint32(d), uint32(d >> 32)} }

// Duration returns what was packed.
func (p Packed) Duration() time.Duration { return time.Duration(p[1])<<32 | time.Duration(p[0]) }
