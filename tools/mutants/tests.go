package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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
	timedOut        // A test used far too much CPU time.
	hung            // A test was idle for far too long.
	lived
	omitted
)

func (f fate) String() string {
	return [...]string{"not covered", "killed", "timed out", "hung", "lived", "omitted"}[f]
}

// tests is the test binary of a package.
type tests struct {
	binary, dir string
	flags       []string
	// reach has the tests that reach a mutant, by the mutant's number.
	reach map[int][]*test
}

// test is one test, and what it takes without a mutant.
type test struct {
	name      string
	wall, cpu time.Duration
	kills     atomic.Int64
}

// promise is how many mutants the test has killed in a second.
func (t *test) promise() float64 { return float64(1+t.kills.Load()) / t.wall.Seconds() }

// memory is what a run may use in KiB: a mutant may allocate without end.
const memory = 8 << 20

// command returns the command that runs a test in a process group of its own.
func (t *tests) command(ctx context.Context, name string, cpu time.Duration, env ...string) *exec.Cmd {
	script := fmt.Sprintf(`ulimit -v %d -t %d && exec "$0" "$@"`, memory, int(cpu.Seconds()))
	args := []string{"-c", script, t.binary, "-test.short", "-test.failfast", "-test.timeout=0", "-test.run=^" + name + "$"}
	cmd := exec.CommandContext(ctx, "bash", append(args, t.flags...)...)
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
		cmd := t.command(context.Background(), name, time.Hour, "MUTANTS_REACHED="+reached)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s fails without a mutant: %w\n%s", name, err, out)
		}
		test := &test{name: name, wall: time.Since(start), cpu: used(cmd)}
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

// try runs the tests that reach mutant n, one after another, until one fails. The most promising ones come first: some
// tests of a mutant may hang where others fail at once.
func (t *tests) try(n int) fate {
	promising := make(map[*test]float64)
	for _, test := range t.reach[n] {
		promising[test] = test.promise()
	}
	reach := slices.SortedFunc(maps.Keys(promising), func(a, b *test) int { return cmp.Compare(promising[b], promising[a]) })
	for _, test := range reach {
		f := t.run(n, test)
		if f == killed {
			test.kills.Add(1)
		}
		if f != lived {
			return f
		}
	}
	return lived
}

// run runs a test with mutant n. It may use ten times the CPU time that it uses without: that hardly depends on what else
// the machine does. And it may be idle for half a minute.
func (t *tests) run(n int, test *test) fate {
	cpu := max(3*time.Second, 10*test.cpu)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := t.command(ctx, test.name, cpu, "MUTANT="+strconv.Itoa(n))
	err := cmd.Start()
	if err == nil {
		go cancelIdle(ctx, cancel, cmd.Process.Pid, max(30*time.Second, 10*test.wall))
		err = cmd.Wait()
	}
	switch {
	case ctx.Err() != nil:
		return hung
	case err == nil:
		return lived
	case cmd.ProcessState != nil && used(cmd) > cpu-time.Second/2:
		return timedOut
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		panic(err) // The tests did not run.
	}
	return killed
}

// cancelIdle calls cancel when a process has used less than a hundredth of a processor for as long as idle.
func cancelIdle(ctx context.Context, cancel func(), pid int, idle time.Duration) {
	last, ticks := time.Now(), 0
	for ctx.Err() == nil {
		time.Sleep(time.Second / 2)
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if err != nil || len(fields) < 13 {
			return // It has ended.
		}
		user, _ := strconv.Atoi(fields[11]) // in ticks of 10 ms
		system, _ := strconv.Atoi(fields[12])
		if limit := int(time.Since(last) / time.Second); user+system > ticks+limit {
			last, ticks = time.Now(), user+system
		} else if time.Since(last) > idle {
			cancel()
		}
	}
}
