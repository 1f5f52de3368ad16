//go:build !unix

package handlertest_test

import "time"

var started = time.Now()

// cpuTime is not measured here: it is the time that has passed.
func cpuTime() time.Duration { return time.Since(started) }
