package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// shardingCommand runs histories of replicas that divide the ConfigMaps of a namespace, and checks each.
func shardingCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("sharding", flag.ContinueOnError)
	histories := flags.Int("histories", 200, "how many histories")
	first := flags.Uint64("seed", 1, "the seed of the first history; the others have the following ones")
	lease := flags.Duration("lease", 2*time.Second, "the members' lease")
	objects := flags.Int("objects", 100, "how many objects there are")
	name := flags.String("variant", "swapped", "the control plane that they run on: stock or swapped")
	build := flags.Bool("build", true, "build the server first; if not, that of the last build runs")
	people := flags.Bool("people", false,
		"operators restore a backup of etcd, or forbid writes, in each history")
	if err := flags.Parse(args); err != nil {
		return err
	}
	variants, err := variantsNamed(*name)
	if err != nil || len(variants) != 1 {
		return errors.Join(err, fmt.Errorf("-variant %s: want one variant", *name))
	}
	programs := []string{apiServer}
	if *build {
		err = variants[0].buildServers(ctx, programs)
	} else {
		err = variants[0].checkQueue(ctx, programs)
	}
	if err != nil {
		return err
	}
	c, err := startAPI(ctx, variants[0], filepath.Join("out", "sharding"))
	if err != nil {
		return err
	}
	defer c.stop()
	began := time.Now()
	total := &shardingTotal{gaps: make(map[string][]time.Duration)}
	for seed := *first; seed < *first+uint64(*histories); seed++ {
		h := &history{
			cluster: c, variant: variants[0], seed: seed, random: rand.New(rand.NewPCG(seed, 0)), lease: *lease,
			isEdited:  *people,
			namespace: fmt.Sprint("history-", seed), versions: make(map[string]string),
		}
		if err := h.run(ctx, *objects, total); err != nil {
			return fmt.Errorf("history %d (its logs are in %s): %w", seed, c.dir, err)
		}
	}
	fmt.Printf(
		"\n%d histories, %d handlers: no key was with two replicas at once, and every key's last version was handled; %.0f s\n\n",
		*histories, total.handlers, time.Since(began).Seconds())
	total.print(*lease)
	return nil
}

// history is a run of some replicas through some events.
type history struct {
	*cluster
	variant   variant
	seed      uint64
	random    *rand.Rand
	lease     time.Duration
	namespace string

	started  int
	running  []*child
	children []*child // also those that have ended
	events   []event

	isEdited bool // people do something in it

	writing sync.Mutex // is locked while an object is written

	mu       sync.Mutex // guards what follows
	versions map[string]string
}

// child is a replica.
type child struct {
	*process
	proxy *proxy
	stops []stopped
	end   time.Duration // 0 while it runs
}

type event struct {
	at   time.Duration
	name string
}

func (h *history) run(ctx context.Context, objects int, total *shardingTotal) (err error) {
	began := time.Now()
	defer func() {
		for _, c := range h.running {
			c.kill()
			c.proxy.close()
		}
	}()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.namespace}}
	if _, err := h.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	err = inParallel(ctx, objects, func(ctx context.Context, i int) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: objectName(i)},
			Data: map[string]string{"version": "0"}}
		_, err := h.client.CoreV1().ConfigMaps(h.namespace).Create(ctx, m, metav1.CreateOptions{})
		h.setVersion(objectName(i), "0")
		return err
	})
	if err != nil {
		return err
	}
	for range 2 + h.random.IntN(3) {
		if err := h.start(); err != nil {
			return err
		}
	}
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	var writer sync.WaitGroup
	writer.Go(func() { h.write(writing, objects) })
	err = h.settle(ctx)
	for _, step := range h.script() {
		if err == nil {
			h.events = append(h.events, event{monotonic(), step.name})
			err = step.do(ctx)
		}
		if err == nil {
			err = h.settle(ctx)
		}
	}
	stopWriting()
	writer.Wait()
	if err != nil {
		return err
	}
	logs, err := h.awaitAll(ctx)
	if err != nil {
		return err
	}
	if errs := checkTwice(logs); len(errs) > 0 {
		return errors.Join(errs...)
	}
	names := h.measure(logs, total)
	fmt.Printf("history %d: %d replicas, %s: %.0f s\n", h.seed, h.started, names, time.Since(began).Seconds())
	ended := monotonic()
	for _, c := range h.running {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, c := range slices.Clone(h.running) {
		h.end(c, c.stop)
	}
	if took := monotonic() - ended; took > 30*time.Second {
		return fmt.Errorf("the replicas took %v to leave", took)
	}
	return nil
}

type shardingStep struct {
	name string
	do   func(context.Context) error
}

// script returns what is to happen: three events, and now and then a rolling update or a restart of the API
// server.
func (h *history) script() (steps []shardingStep) {
	kinds := []shardingStep{
		{"join", func(context.Context) error { return h.start() }},
		{"SIGTERM", func(context.Context) error { return h.leave() }},
		{"SIGKILL", h.killOne},
		{"SIGSTOP beyond the lease", h.stopOne},
		{"cut off", func(ctx context.Context) error { return h.cutOff(ctx, true, false) }},
		{"requests arrive late", func(ctx context.Context) error { return h.cutOff(ctx, false, true) }},
	}
	h.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	steps = kinds[:3]
	switch h.seed % 5 {
	case 0:
		steps = []shardingStep{{"rolling update", h.rollingUpdate}}
	case 3:
		steps[2] = shardingStep{"API server restarts", h.restartServer}
	}
	if people := h.people(); h.isEdited {
		steps = append(steps[:min(len(steps), 2)], people[h.seed%uint64(len(people))],
			people[h.random.IntN(len(people))])
	}
	return steps
}

// start starts a replica. Every other one is a manager of controller-runtime.
func (h *history) start() error {
	h.started++
	p, err := newProxy(strings.TrimPrefix(h.serverURL, "https://"))
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s-replica-%d", h.namespace, h.started)
	process, err := startProcess(h.dir, name, program, "replica", "-kubeconfig="+h.kubeconfig,
		"-server=https://"+p.listener.Addr().String(),
		"-namespace="+h.namespace, fmt.Sprint("-name=replica-", h.started), "-lease="+h.lease.String(),
		fmt.Sprintf("-manager=%t", h.started%2 == 0))
	if err != nil {
		return err
	}
	c := &child{process: process, proxy: p}
	h.running, h.children = append(h.running, c), append(h.children, c)
	return nil
}

// end ends a replica.
func (h *history) end(c *child, how func()) {
	how()
	c.end = monotonic()
	c.proxy.close()
	h.running = slices.DeleteFunc(h.running, func(r *child) bool { return r == c })
}

func (h *history) any() *child { return h.running[h.random.IntN(len(h.running))] }

func (h *history) leave() error {
	c := h.any()
	h.end(c, c.stop)
	return nil
}

func (h *history) killOne(context.Context) error {
	c := h.any()
	h.end(c, c.kill)
	return h.start() // As a Deployment would do.
}

func (h *history) stopOne(ctx context.Context) error {
	c := h.any()
	from := monotonic()
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := pause(ctx, 2*h.lease)
	err = errors.Join(err, c.cmd.Process.Signal(syscall.SIGCONT))
	c.stops = append(c.stops, stopped{from, monotonic()})
	return err
}

func (h *history) cutOff(ctx context.Context, cut, stalled bool) error {
	c := h.any()
	c.proxy.set(cut, stalled)
	defer c.proxy.set(false, false)
	return pause(ctx, 2*h.lease)
}

func (h *history) restartServer(ctx context.Context) error {
	h.server.kill()
	if err := pause(ctx, time.Duration(h.random.Int64N(int64(2*h.lease)))); err != nil {
		return err
	}
	return h.startServer(ctx, h.variant)
}

// rollingUpdate replaces ten replicas one by one, with a surge of one.
func (h *history) rollingUpdate(ctx context.Context) error {
	for len(h.running) < 10 {
		if err := h.start(); err != nil {
			return err
		}
	}
	if err := h.settle(ctx); err != nil {
		return err
	}
	for _, old := range slices.Clone(h.running) {
		if err := h.start(); err != nil {
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		h.end(old, old.stop)
	}
	return nil
}

// settle waits until the replicas that run hold all slots in shares that differ by one at most.
func (h *history) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute+10*h.lease)
	defer cancel()
	for {
		logs, err := h.logs()
		if err != nil {
			return err
		}
		least, most, sum := shardingSlots, 0, 0
		for i, l := range logs {
			if h.children[i].end != 0 {
				continue
			}
			n := 0
			if len(l.holds) > 1 { // The last one is the end.
				for s := l.holds[len(l.holds)-2].slots; s != 0; s &= s - 1 {
					n++
				}
			}
			least, most, sum = min(least, n), max(most, n), sum+n
		}
		if sum == shardingSlots && most-least <= 1 {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("the slots are not divided evenly: %d to %d, %d in all: %w", least, most, sum, err)
		}
	}
}

// logs reads the logs of all replicas.
func (h *history) logs() (logs []*shardingLog, err error) {
	for _, c := range h.children {
		end := c.end
		if end == 0 {
			select {
			case <-c.ended:
				return nil, fmt.Errorf("%s has ended (%v):\n%s", c.name, c.cmd.ProcessState, c.tail())
			default:
			}
			end = monotonic()
		}
		l, err := readLog(c.name, c.log, end, c.stops)
		if err != nil {
			return nil, err
		}
		logs = append(logs, l)
	}
	return logs, nil
}

// awaitAll waits until the last version of every object is handled.
func (h *history) awaitAll(ctx context.Context) ([]*shardingLog, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		logs, err := h.logs()
		if err != nil {
			return nil, err
		}
		left := unhandled(logs, h.versions)
		if len(left) == 0 {
			return logs, nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, fmt.Errorf("the last versions of %d objects are not handled, such as version %s of %s: %w",
				len(left), h.versions[left[0]], left[0], err)
		}
	}
}

// write changes objects until ctx ends.
func (h *history) write(ctx context.Context, objects int) {
	for n := 1; pause(ctx, 20*time.Millisecond) == nil; n++ {
		name := objectName(n * 7 % objects)
		version := fmt.Sprint(n)
		patch := fmt.Sprintf(`{"data":{"version":%q}}`, version)
		// With the server away, a patch may succeed and report an error. So it is repeated until it is known.
		h.writing.Lock()
		for {
			_, err := h.client.CoreV1().ConfigMaps(h.namespace).Patch(context.WithoutCancel(ctx), name,
				types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			if err == nil {
				h.setVersion(name, version)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		h.writing.Unlock()
	}
}

func (h *history) setVersion(name, version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions[name] = version
}

func objectName(i int) string { return fmt.Sprintf("object-%03d", i) }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
