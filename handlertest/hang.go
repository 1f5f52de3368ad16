package handlertest

import (
	"fmt"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"time"
)

// runLabel is the label of the goroutines of a run. Goroutines that these start inherit it.
const runLabel = "handlertest run"

// patience is how long, in real time, a run may do nothing that is an event.
var patience = 10 * time.Second

// await returns the result of a run when it has ended, or what is known of it when it hangs. A run that has
// not begun has no sim yet.
func await(ended <-chan result, begun *atomic.Pointer[sim], run string) result {
	const looks = 40 // A process that was suspended has missed only one.
	ticker := time.NewTicker(patience / looks)
	defer ticker.Stop()
	for idle, locked, steps := 0, 0, int64(0); ; { // looks in a row that saw no event, and a wait for a lock
		select {
		case res := <-ended:
			return res
		case <-ticker.C:
		}
		s := begun.Load()
		if s == nil || s.steps.Load() != steps {
			if idle, locked = 0, 0; s != nil {
				steps = s.steps.Load()
			}
			continue
		}
		idle++
		if locked++; !waitsForLock(run) {
			locked = 0
		}
		switch res := s.result(); {
		case locked >= 2 && res.crashed:
			// The crash may have ended a goroutine that held a lock, for which another one of the dead
			// process waits.
			res.hangs = true
			return res
		case locked >= 2:
			res.failed = hang("a goroutine waits for a lock, and all others wait as well. If one holds a sync.Mutex, "+
				"RWMutex or Once while it calls the world: testing/synctest cannot see that the others wait. Set "+
				"Options.Workers to 1, or use a channel of size 1 as the lock", run)
			return res
		case idle > looks:
			res.failed = hang(fmt.Sprintf("for %v of real time a goroutine computes, or waits for something "+
				"outside its run", patience), run)
			return res
		}
	}
}

func hang(why, run string) *failure {
	return &failure{kind: "hang", text: fmt.Sprintf("it hangs: %s. (The goroutines of this run stay until "+
		"the test binary ends, since Go cannot end them.)\n%s", why, stacksOf(run))}
}

// goroutines returns the stacks of the goroutines of a run, from the profile that has their labels.
func goroutines(run string) (stacks []string) {
	var profile strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("%q:%q", runLabel, run)) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

func stacksOf(run string) string {
	stacks := goroutines(run)
	return strings.Join(stacks[:min(len(stacks), 20)], "\n\n")
}

// waitsForLock reports whether a goroutine of a run waits for a Mutex, RWMutex or Once, and all are parked.
// Neither testing/synctest nor a label says that.
func waitsForLock(run string) (waits bool) {
	for _, stack := range goroutines(run) {
		var leaf uintptr
		_, counters, _ := strings.Cut(stack, " @ ")
		_, _ = fmt.Sscanf(counters, "0x%x", &leaf)
		if f := runtime.FuncForPC(leaf); f == nil || f.Name() != "runtime.gopark" {
			return false
		}
		isWaitGroup := strings.Contains(stack, "sync.runtime_SemacquireWaitGroup") // synctest sees it wait.
		waits = waits || !isWaitGroup && strings.Contains(stack, "sync.runtime_Sem")
	}
	return waits
}
