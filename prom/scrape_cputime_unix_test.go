//go:build unix

package prom_test

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime returns the CPU time that the process has taken.
func cpuTime(tb testing.TB) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
