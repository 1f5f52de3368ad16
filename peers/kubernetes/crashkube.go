package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	kubeNamespace = "crash-kube"
	canary        = "canary"
)

// crashKube crashes the program of examples/kube, which reports Pods with three restarts that it has seen itself. Of ten
// Pods, eight restart three times, one twice, and one not at all.
func crashKube(ctx context.Context, c *cluster, objects int) error {
	program := mustAbs("bin/kube")
	cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(repositoryDir, "examples"), "-o", program, "./kube")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	if err := c.createNamespace(ctx, kubeNamespace); err != nil {
		return err
	}
	pods := &restartingPods{cluster: c, counts: map[string]int{}}
	err := inParallel(ctx, objects+1, func(ctx context.Context, i int) error {
		name := podName(i)
		if i == objects {
			name = canary
		}
		return pods.create(ctx, name)
	})
	if err != nil {
		return err
	}
	start := func(run string) (*process, error) {
		p, err := startProcess(c.dir, "kube-"+run, program, "-kubeconfig="+c.kubeconfig, "-namespace="+kubeNamespace,
			"-restarts=3", "-within=1h")
		if err != nil {
			return nil, err
		}
		return p, pods.settle(ctx, p)
	}

	first, err := start("first")
	if err != nil {
		return err
	}
	wanted := 0 // Reports.
	for i := range objects {
		if restartsOften(i) {
			wanted++
		}
	}
	written := make(chan error, 1)
	go func() {
		written <- inParallel(ctx, objects, func(ctx context.Context, i int) error { return pods.restart(ctx, i, firstRestarts(i)) })
	}()
	if err := first.waitForLines(ctx, wanted/2, kubeNamespace+"/pod-"); err != nil {
		return err
	}
	first.kill()
	// The Pods go on restarting while no controller watches.
	if err := <-written; err != nil {
		return err
	}
	before, err := reports(first)
	if err != nil {
		return err
	}
	fmt.Printf("kube: %d Pods; killed with SIGKILL after it had reported %d of the %d that restart three times\n", objects, len(before), wanted)
	if err := checkReports(before, objects, 3, false); err != nil {
		return fmt.Errorf("before the kill: %w", err)
	}

	second, err := start("second")
	if err != nil {
		return err
	}
	if early, err := reports(second); err != nil {
		return err
	} else if len(early) > 0 {
		return fmt.Errorf("%d Pods are reported for restarts from before the second start", len(early))
	}
	for range 2 {
		err := inParallel(ctx, objects, func(ctx context.Context, i int) error { return pods.restart(ctx, i, firstRestarts(i)-1) })
		if err != nil {
			return err
		}
	}
	if err := pods.settle(ctx, second); err != nil {
		return err
	}
	second.stop()
	after, err := reports(second)
	if err != nil {
		return err
	}
	fmt.Printf("kube: started again; it has reported %d of the %d that restarted four more times\n", len(after), wanted)
	if state := second.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("kube ended with %v after SIGTERM", state)
	}
	return checkReports(after, objects, 4, true)
}

func podName(i int) string { return fmt.Sprintf("pod-%05d", i) }

// firstRestarts is how often Pod i restarts before kube's second start. After that its counter grows twice, each time by
// one less: four more restarts for the Pods with three, two for those with two, and none for the others.
func firstRestarts(i int) int {
	switch i % 10 {
	case 8:
		return 2
	case 9:
		return 0
	default:
		return 3
	}
}

// restartsOften reports whether Pod i restarts often enough to be reported.
func restartsOften(i int) bool { return firstRestarts(i) == 3 }

// checkReports checks that only Pods that restart often enough were reported, with the given number of restarts. If all
// is set, it also checks that all of them were.
func checkReports(found map[string]int, objects, restarts int, all bool) error {
	for i := range objects {
		n, ok := found[podName(i)]
		often := restartsOften(i)
		switch {
		case ok && !often:
			return fmt.Errorf("%s is reported with %d restarts, and should not be", podName(i), n)
		case ok && n != restarts:
			return fmt.Errorf("%s is reported with %d restarts, want %d", podName(i), n, restarts)
		case !ok && often && all:
			return fmt.Errorf("%s is not reported", podName(i))
		}
	}
	return nil
}

var report = regexp.MustCompile(`(?m)^` + kubeNamespace + `/(pod-\d+): (\d+) restarts within 1h0m0s: app`)

// reports returns the last report of each Pod in what kube has printed.
func reports(p *process) (map[string]int, error) {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, match := range report.FindAllSubmatch(data, -1) {
		if found[string(match[1])], err = strconv.Atoi(string(match[2])); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// restartingPods are Pods whose containers restart when we say so. They have no node.
type restartingPods struct {
	cluster *cluster

	mu     sync.Mutex
	counts map[string]int // guarded by mu
}

// add adds n to the counter of a Pod, and returns it.
func (r *restartingPods) add(name string, n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[name] += n
	return r.counts[name]
}

func (r *restartingPods) create(ctx context.Context, name string) error {
	template := podTemplate("restarts", corev1.RestartPolicyAlways)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template.Spec}
	if _, err := r.cluster.client.CoreV1().Pods(kubeNamespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	return r.set(ctx, name, 0)
}

// restart adds n to the counter of Pod i.
func (r *restartingPods) restart(ctx context.Context, i, n int) error {
	if n <= 0 {
		return nil
	}
	return r.set(ctx, podName(i), r.add(podName(i), n))
}

func (r *restartingPods) set(ctx context.Context, name string, count int) error {
	patch := fmt.Sprintf(`{"status":{"containerStatuses":[{"name":"app","image":"none","imageID":"","ready":false,"restartCount":%d}]}}`, count)
	_, err := r.cluster.client.CoreV1().Pods(kubeNamespace).
		Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// settle returns when kube has handled all that happened before the call. It restarts the canary until kube reports it:
// the canary's key was queued behind all earlier ones, so those have been handed out by then. It does so twice, to give
// the workers the time to finish them.
func (r *restartingPods) settle(ctx context.Context, kube *process) error {
	prefix := kubeNamespace + "/" + canary + ":"
	for range 2 {
		before := kube.lines(prefix)
		for tries := 0; kube.lines(prefix) == before; tries++ {
			if tries%20 == 0 {
				if err := r.set(ctx, canary, r.add(canary, 3)); err != nil {
					return err
				}
			}
			select {
			case <-kube.ended:
				return fmt.Errorf("kube has ended (%v):\n%s", kube.cmd.ProcessState, kube.tail())
			case <-ctx.Done():
				return fmt.Errorf("kube does not report its canary:\n%s", kube.tail())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}
