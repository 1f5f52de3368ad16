package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// fate is what became of a mutant.
type fate int

const (
	notCovered fate = iota
	killed          // A test failed.
	timedOut        // A test used far too much CPU time, or was idle for far too long.
	lived
	omitted
)

func (f fate) String() string {
	return [...]string{"not covered", "killed", "timed out", "lived", "omitted"}[f]
}

// tests is the test binary of a package.
type tests struct {
	binary, dir string
	flags       []string
	// reach has the tests that reach a mutant, by the mutant's number.
	reach map[int][]*test
}

// test is one test, and the times that it takes without a mutant.
type test struct {
	name      string
	wall, cpu time.Duration
	kills     atomic.Int64
	spent     atomic.Int64 // nanoseconds of all runs, whether they killed a mutant or not
}

// promise is how many mutants the test has killed for each nanosecond spent on it.
func (t *test) promise() float64 { return float64(1+t.kills.Load()) / float64(t.spent.Load()) }

// memory is what a run may use in KiB: a mutant may allocate without end.
const memory = 8 << 20

// command returns the command that runs a test in a process group of its own.
func (t *tests) command(ctx context.Context, name string, env ...string) *exec.Cmd {
	script := fmt.Sprintf(`ulimit -v %d && exec "$0" "$@"`, memory)
	args := []string{"-c", script, t.binary, "-test.short", "-test.failfast", "-test.timeout=0", "-test.run=^" + name + "$"}
	cmd := exec.CommandContext(ctx, "sh", append(args, t.flags...)...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

func used(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// measure runs each test alone and without a mutant, to see what it takes and which mutants it reaches.
func (t *tests) measure(reached string) error {
	list := exec.Command(t.binary, "-test.list", ".")
	list.Dir = t.dir
	names, err := list.Output()
	if err != nil {
		return err
	}
	// A failure is enough: rapid must neither look for a smaller one nor write it down for the next run.
	flags := []string{"-rapid.nofailfile", "-rapid.shrinktime=0s"}
	if exec.Command(t.binary, append(flags, "-test.list=^$")...).Run() == nil {
		t.flags = flags
	}
	t.reach = make(map[int][]*test)
	for _, name := range strings.Fields(string(names)) {
		if strings.HasPrefix(name, "Benchmark") {
			continue
		}
		if err := os.WriteFile(reached, nil, 0o600); err != nil {
			return err
		}
		start := time.Now()
		cmd := t.command(context.Background(), name, "MUTANTS_REACHED="+reached)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s fails without a mutant: %w\n%s", name, err, out)
		}
		test := &test{name: name, wall: time.Since(start), cpu: used(cmd)}
		test.spent.Store(int64(test.wall))
		numbers, err := os.ReadFile(reached)
		if err != nil {
			return err
		}
		for _, field := range strings.Fields(string(numbers)) {
			if n, _ := strconv.Atoi(field); n > 0 {
				t.reach[n] = append(t.reach[n], test)
			}
		}
	}
	return nil
}

// try runs the tests that reach mutant n, one after another, until one fails: the most promising ones first. Those that
// hang where others fail would take most of the time, so each gets a little first and the rest at the end.
func (t *tests) try(n int) fate {
	promising := make(map[*test]float64)
	for _, test := range t.reach[n] {
		promising[test] = test.promise()
	}
	var slow []*test
	for _, test := range slices.SortedFunc(maps.Keys(promising), func(a, b *test) int { return cmp.Compare(promising[b], promising[a]) }) {
		switch t.run(n, test, time.Second/4+2*test.cpu, 2*time.Second+2*test.wall) {
		case killed:
			return killed
		case timedOut:
			slow = append(slow, test)
		}
	}
	// Ten times the CPU time that a test uses without a mutant: that hardly depends on what else the machine does. And it
	// may be idle for half a minute.
	for _, test := range slow {
		if f := t.run(n, test, max(2*time.Second, 10*test.cpu), max(30*time.Second, 10*test.wall)); f != lived {
			return f
		}
	}
	return lived
}

// run runs a test with mutant n. It ends the test after the given CPU time, or when it has been idle for that long.
func (t *tests) run(n int, test *test, cpu, idle time.Duration) fate {
	start := time.Now()
	defer func() { test.spent.Add(int64(time.Since(start))) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := t.command(ctx, test.name, "MUTANT="+strconv.Itoa(n))
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	go watch(ctx, cancel, cmd.Process.Pid, cpu, idle)
	err := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return timedOut
	case err == nil:
		return lived
	}
	test.kills.Add(1)
	return killed
}

// watch calls cancel when a process has used so much CPU time, or has been idle for so long: that is, used less than a
// hundredth of a processor.
func watch(ctx context.Context, cancel func(), pid int, cpu, idle time.Duration) {
	const tick = 10 * time.Millisecond // the unit of /proc
	var last time.Duration
	since := time.Now()
	for ctx.Err() == nil {
		time.Sleep(time.Second / 10)
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if err != nil || len(fields) < 13 {
			return // It has ended.
		}
		user, _ := strconv.Atoi(fields[11])
		system, _ := strconv.Atoi(fields[12])
		used := time.Duration(user+system) * tick
		if used > last+time.Since(since)/100 {
			last, since = used, time.Now()
		}
		if used > cpu || time.Since(since) > idle {
			cancel()
		}
	}
}
