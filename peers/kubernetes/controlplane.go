package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// controlPlane runs the workload on control planes of both variants in turn, and compares them.
func controlPlane(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	list := flags.String("variants", "stock,swapped", "the variants of each round, in this order")
	rounds := flags.Int("rounds", 3, "how often each variant runs")
	w := workload{namespace: "load"}
	flags.IntVar(&w.deployments, "deployments", 200, "how many Deployments to create")
	flags.IntVar(&w.pods, "pods", 10, "how many Pods each Deployment has")
	flags.IntVar(&w.jobs, "jobs", 2000, "how many Jobs of one Pod to create")
	timeout := flags.Duration("timeout", 15*time.Minute, "how long a phase of a run may take")
	build := flags.Bool("build", true, "build the servers first; if not, those of the last build run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	variants, err := serversOf(ctx, *list, *build)
	if err != nil {
		return err
	}
	fmt.Printf(
		"Workload: %d Deployments of %d Pods, %d Jobs, in one namespace, which is deleted when all is done\n",
		w.deployments, w.pods, w.jobs)
	var all []*observation
	for range *rounds {
		for _, v := range variants {
			o, err := observe(ctx, v, w, *timeout)
			if err != nil {
				return fmt.Errorf("%s: %w", v, err)
			}
			all = append(all, o)
		}
	}
	printTable(all)
	return compareObjects(all)
}

// An observation is what one run showed.
type observation struct {
	variant            variant
	busy, gone         inventory // The objects when all had converged, and when the namespace was gone.
	converged, deleted time.Duration
	manager, server    costs
	latency            latency
}

// costs are what one program takes.
type costs struct {
	cpu        float64 // Seconds, until the namespace was gone.
	goroutines float64 // When all had converged.
	peak       int64   // Bytes.
}

// observe runs the workload once, on a control plane of the variant.
func observe(ctx context.Context, v variant, w workload, timeout time.Duration) (*observation, error) {
	load := machineLoad()
	c, err := startCluster(ctx, v, filepath.Join("out", "controlplane-"+v.name))
	if err != nil {
		return nil, err
	}
	defer c.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := &observation{variant: v}

	kubelet := newKubelet(c, w)
	kubeletEnded := make(chan error, 1)
	go func() { kubeletEnded <- kubelet.run(ctx) }()
	began := time.Now()
	if err := w.create(ctx, c); err != nil {
		return nil, err
	}
	if err := c.poll(ctx, timeout, kubelet.converged); err != nil {
		return nil, err
	}
	o.converged = time.Since(began)
	if o.busy, err = c.steadyInventory(ctx, timeout); err != nil {
		return nil, err
	}
	if err := o.measure(ctx, c, func(p *costs,
		f families) {
		p.goroutines = f.value("go_goroutines")
	}); err != nil {
		return nil, err
	}

	began = time.Now()
	if err := c.client.CoreV1().Namespaces().Delete(ctx, w.namespace, metav1.DeleteOptions{}); err != nil {
		return nil, err
	}
	err = c.poll(ctx, timeout, func() (string, bool) {
		_, err := c.client.CoreV1().Namespaces().Get(ctx, w.namespace, metav1.GetOptions{})
		return "the namespace is still there", apierrors.IsNotFound(err)
	})
	if err != nil {
		return nil, err
	}
	o.deleted = time.Since(began)
	if o.gone, err = c.steadyInventory(ctx, timeout); err != nil {
		return nil, err
	}
	if err := o.measure(ctx, c, func(p *costs,
		f families) {
		p.cpu = f.value("process_cpu_seconds_total")
	}); err != nil {
		return nil, err
	}
	cancel()
	if err := <-kubeletEnded; err != nil {
		return nil, err
	}
	c.stop()
	o.manager.peak, o.server.peak = c.manager.peakMemory(), c.server.peakMemory()
	fmt.Printf(
		"%s: converged in %.1f s with %d objects, deleted in %.1f s with %d left; %d Pods had their status set; load before it %s\n",
		v, o.converged.Seconds(), o.busy.total(), o.deleted.Seconds(), o.gone.total(), kubelet.writes.Load(), load)
	return o, nil
}

// measure reads both programs' metrics, and leaves to take what to keep of them. Latencies are those since
// the start.
func (o *observation) measure(ctx context.Context, c *cluster, take func(*costs, families)) error {
	manager, err := scrape(ctx, insecure, c.managerURL)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return err
	}
	server, err := scrape(ctx, client, c.serverURL)
	if err != nil {
		return err
	}
	take(&o.manager, manager)
	take(&o.server, server)
	if o.latency = manager.latency(); o.latency.keys == 0 {
		return fmt.Errorf("%s serves no latencies of queues", kubeManager)
	}
	return nil
}

// poll calls done until it reports true. It returns an error if a part of the control plane ends, and after
// timeout one with the state that done reported last.
func (c *cluster) poll(ctx context.Context, timeout time.Duration, done func() (string, bool)) error {
	deadline := time.Now().Add(timeout)
	for {
		state, ok := done()
		if ok {
			return nil
		}
		if err := c.check(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %s", timeout, state)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// steadyInventory waits until the objects stay the same for five seconds.
func (c *cluster) steadyInventory(ctx context.Context, timeout time.Duration) (inventory, error) {
	deadline := time.Now().Add(timeout)
	last, err := takeInventory(ctx, c)
	if err != nil {
		return nil, err
	}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Second):
		}
		now, err := takeInventory(ctx, c)
		if err != nil {
			return nil, err
		}
		changes := last.differences(now)
		if len(changes) == 0 {
			return now, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("after %v the objects still change: %s", timeout,
				strings.Join(changes[:min(len(changes), 10)], "; "))
		}
		last = now
	}
}

// machineLoad returns the machine's load averages, which show whether other programs are running.
func machineLoad() string {
	data, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}
