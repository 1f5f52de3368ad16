//go:build !unix

package prom_test

import (
	"testing"
	"time"
)

// cpuTime is not measured here: the benchmarks of scrapes then show 0 for it.
func cpuTime(testing.TB) time.Duration { return 0 }
