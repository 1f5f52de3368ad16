package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/keyedqueue/workqueue"
)

// testOptions are for every package's tests.
type testOptions struct {
	reruns  int
	timeout time.Duration
	dir     string // Where the output of go test goes.
}

// tests runs the tests of all packages that use a work queue, on both queues, and compares them test by test.
func tests(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("tests", flag.ContinueOnError)
	want := flags.String("packages", ".", "test the packages whose paths match this `pattern`")
	skip := flags.String("skip", "", "except those that match this `pattern`")
	parallel := flags.Int("parallel", 1, "how many packages are tested at the same time")
	onlyList := flags.Bool("list", false, "print the packages, and test nothing")
	o := testOptions{dir: filepath.Join("out", "tests")}
	flags.IntVar(&o.reruns, "reruns", 3, "how often to run tests again whose outcomes differ")
	flags.DurationVar(&o.timeout, "timeout", 15*time.Minute, "how long the tests of a package may take")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, v := range []variant{stock, swapped} {
		if err := v.prepare(ctx); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(o.dir, v.name), 0o755); err != nil {
			return err
		}
	}
	all, err := packagesWithQueue(ctx)
	if err != nil {
		return err
	}
	chosen, err := choose(all, *want, *skip)
	if err != nil {
		return err
	}
	if *onlyList {
		for _, p := range chosen {
			fmt.Println(p.path)
		}
		return nil
	}
	if slices.ContainsFunc(chosen, func(p testPackage) bool {
		return strings.HasPrefix(p.path, controllerRuntime)
	}) {
		if err := prepareEnvtest(ctx); err != nil {
			return err
		}
	}
	if err := printVersions(ctx); err != nil {
		return err
	}
	fmt.Printf("%d of %d packages that use a work queue\n", len(chosen), len(all))
	// Some tests of envtest leave their servers running.
	if err := adoptOrphans(); err != nil {
		return err
	}
	var t totals
	workqueue.ParallelizeUntil(ctx, *parallel, len(chosen),
		func(i int) { t.add(compareTests(ctx, chosen[i], o)) })
	if _, err := killChildren(); err != nil {
		return err
	}
	return errors.Join(t.print(len(chosen)), ctx.Err())
}

// prepareEnvtest puts the programs that controller-runtime's tests start into one directory for each variant:
// its kube-apiserver, and etcd.
func prepareEnvtest(ctx context.Context) error {
	etcd, err := exec.LookPath("etcd")
	if err != nil {
		return fmt.Errorf("%w: tools/install-server.sh installs it", err)
	}
	for _, v := range []variant{stock, swapped} {
		if err := v.buildServers(ctx, servers); err != nil {
			return err
		}
		if err := os.Remove(v.binary("etcd")); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := os.Symlink(etcd, v.binary("etcd")); err != nil {
			return err
		}
	}
	return nil
}

// A comparison is what the tests of one package did.
type comparison struct {
	testPackage
	stock, swapped results
	differences    []difference
	took           [2]time.Duration
	err            error
}

// compareTests runs the tests of p on both queues, and then those again whose outcomes differ.
func compareTests(ctx context.Context, p testPackage, o testOptions) *comparison {
	c := &comparison{testPackage: p}
	began := time.Now()
	if c.stock, c.err = runTests(ctx, stock, p, o, "."); c.err != nil {
		return c
	}
	c.took[0] = time.Since(began)
	began = time.Now()
	if c.swapped, c.err = runTests(ctx, swapped, p, o, "."); c.err != nil {
		return c
	}
	c.took[1] = time.Since(began)
	c.differences = c.stock.differences(c.swapped)
	for range o.reruns {
		var open []difference
		for _, d := range c.differences {
			if !d.flaky() {
				open = append(open, d)
			}
		}
		if len(open) == 0 {
			break
		}
		var again [2]results
		for i, v := range []variant{stock, swapped} {
			if again[i], c.err = runTests(ctx, v, p, o, rerunPattern(open)); c.err != nil {
				return c
			}
		}
		for i := range c.differences {
			c.differences[i].see(again[0], again[1])
		}
	}
	return c
}

// runTests runs those tests of a package whose names match pattern. Tests that fail are results, not errors.
func runTests(ctx context.Context, v variant, p testPackage, o testOptions, pattern string) (results, error) {
	base := filepath.Join(mustAbs(o.dir), v.name, strings.ReplaceAll(p.path, "/", "_"))
	specs := base + ".specs.json"
	if err := os.Remove(specs); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	out, err := os.Create(base + ".json")
	if err != nil {
		return nil, err
	}
	defer out.Close()
	stderr, err := os.Create(base + ".stderr")
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	// Without vet, whose findings have nothing to do with the queue.
	args := []string{"-json", "-vet=off", "-count=1", "-timeout=" + o.timeout.String(),
		"-run=" + pattern, p.path}
	if p.ginkgo {
		args = append(args, "-args", "-ginkgo.seed=1", "-ginkgo.json-report="+specs)
	}
	cmd := v.goCommand(ctx, "test", args...)
	cmd.Stdout, cmd.Stderr = out, stderr
	cmd.Env = append(cmd.Env, "KUBEBUILDER_ASSETS="+filepath.Dir(v.binary("etcd")))
	// The test is a child of the go command, and what it starts are its children: all must end with us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var exit *exec.ExitError
	if err := cmd.Run(); ctx.Err() != nil {
		return nil, ctx.Err()
	} else if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	if _, err := out.Seek(0, 0); err != nil {
		return nil, err
	}
	found, err := readResults(out)
	if err != nil {
		return nil, err
	}
	if found[wholePackage] == "" {
		return nil, fmt.Errorf("%s: no result: see %s", cmd, stderr.Name())
	}
	if !p.ginkgo {
		return found, nil
	}
	return found, found.addSpecs(specs)
}

// totals add up comparisons, and print each.
type totals struct {
	mu                                             sync.Mutex
	packages, tests, alike, failing, flaky, differ int
	errs                                           []error
}

func (t *totals) add(c *comparison) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(c.err, context.Canceled) {
		return
	}
	if c.err != nil {
		fmt.Printf("ERROR   %s: %v\n", c.path, c.err)
		t.errs = append(t.errs, fmt.Errorf("%s: %w", c.path, c.err))
		return
	}
	t.packages++
	var alike, failing int
	var failed []string
	for test, outcome := range c.stock {
		if c.swapped[test] != outcome {
			continue
		}
		if outcome == "fail" {
			failed = append(failed, test)
		}
		if test == wholePackage {
			continue
		}
		alike++
		if outcome == "fail" {
			failing++
		}
	}
	fmt.Printf("%s: %d tests alike (%d pass, %d skip, %d fail), %.0f s and %.0f s\n", c.path, alike,
		c.swapped.count("pass"),
		c.swapped.count("skip"), c.swapped.count("fail"), c.took[0].Seconds(), c.took[1].Seconds())
	slices.Sort(failed)
	for _, test := range failed {
		fmt.Printf("\tfails in both: %s\n", test)
	}
	for _, d := range c.differences {
		if d.flaky() {
			t.flaky++
			fmt.Printf("\tflaky: %s\n", &d)
		} else {
			t.differ++
			fmt.Printf("\tDIFFERS: %s\n", &d)
		}
	}
	t.tests += alike + len(c.differences)
	t.alike += alike
	t.failing += failing
}

// print prints the totals. It returns the errors of packages, and errDiffer if a test differs.
func (t *totals) print(chosen int) error {
	fmt.Printf("\n%d packages, %d tests: %d alike (%d of them fail in both), %d flaky, %d differ\n",
		t.packages, t.tests, t.alike, t.failing, t.flaky, t.differ)
	if missed := chosen - t.packages; missed > 0 {
		fmt.Printf("%d packages were not tested\n", missed)
	}
	if t.differ > 0 {
		return errors.Join(append(t.errs, errDiffer)...)
	}
	return errors.Join(t.errs...)
}
