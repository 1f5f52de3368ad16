//go:build unix

package handlertest_test

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time that the process has taken.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
