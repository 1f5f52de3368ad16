package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// crash kills a controller on our queue half-way, starts it again, and checks what it has done.
func crash(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("crash", flag.ContinueOnError)
	objects := flags.Int("objects", 10000, "how many objects the controller has")
	timeout := flags.Duration("timeout", 15*time.Minute, "how long it may take")
	build := flags.Bool("build", true, "build the servers first; if not, those of the last build run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *objects < 10 {
		return fmt.Errorf("-objects %d: want 10 or more, because each kind of object is a tenth of them", *objects)
	}
	variants, err := serversOf(ctx, swapped.name, *build)
	if err != nil {
		return err
	}
	c, err := startCluster(ctx, variants[0], filepath.Join("out", "crash"))
	if err != nil {
		return err
	}
	defer c.stop()
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("it took longer than %v", *timeout))
	defer cancel()
	if err := crashManager(ctx, c, *objects); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	fmt.Printf("manager: all is as it should be, after %.0f s\n", time.Since(began).Seconds())
	return nil
}

// crashManager crashes the program of manager.go.
func crashManager(ctx context.Context, c *cluster, objects int) error {
	const namespace = "crash-manager"
	if err := c.createNamespace(ctx, namespace); err != nil {
		return err
	}
	maps := c.client.CoreV1().ConfigMaps(namespace)
	err := inParallel(ctx, objects, func(ctx context.Context, i int) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: inputName(i)},
			Data: map[string]string{"value": firstValue(i)}}
		_, err := maps.Create(ctx, m, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	start := func(run string) (*process, error) {
		program, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return startProcess(c.dir, "manager-"+run, program, "manager", "-kubeconfig="+c.kubeconfig,
			"-namespace="+namespace)
	}
	first, err := start("first")
	if err != nil {
		return err
	}
	if err := first.waitForLines(ctx, objects/2, "reconciled "); err != nil {
		return err
	}
	first.kill()
	fmt.Printf("manager: %d objects; killed with SIGKILL after %s\n", objects, first.summary())

	// Some inputs change, and some go, while no controller runs.
	err = inParallel(ctx, objects, func(ctx context.Context, i int) error {
		switch i % 10 {
		case 0:
			return maps.Delete(ctx, inputName(i), metav1.DeleteOptions{})
		case 1, 2, 3:
			patch := fmt.Sprintf(`{"data":{"value":%q}}`, lastValue(i))
			_, err := maps.Patch(ctx, inputName(i), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	second, err := start("second")
	if err != nil {
		return err
	}
	for {
		wrong, err := wrongMaps(ctx, c.client, namespace, objects)
		if err != nil {
			return err
		}
		if len(wrong) == 0 {
			break
		}
		select {
		case <-second.ended:
			return fmt.Errorf("the manager has ended (%v):\n%s", second.cmd.ProcessState, second.tail())
		case <-ctx.Done():
			return fmt.Errorf("%d objects are not in their final state: %s", len(wrong),
				strings.Join(wrong[:min(len(wrong), 10)], "; "))
		case <-time.After(2 * time.Second):
		}
	}
	// Nothing may spoil what is finished.
	time.Sleep(5 * time.Second)
	if wrong, err := wrongMaps(ctx, c.client, namespace, objects); err != nil {
		return err
	} else if len(wrong) > 0 {
		return fmt.Errorf("%d objects are no longer in their final state: %s", len(wrong),
			strings.Join(wrong, "; "))
	}
	second.stop()
	fmt.Printf("manager: started again; finished after %s\n", second.summary())
	if state := second.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("the manager ended with %v after SIGTERM", state)
	}
	for _, p := range []*process{first, second} {
		if p.lines("twice ") > 0 || p.lines("failed ") > 0 {
			return fmt.Errorf("%s: see %s", p.summary(), p.log)
		}
	}
	return nil
}

func firstValue(i int) string { return fmt.Sprintf("first of %d", i) }
func lastValue(i int) string  { return fmt.Sprintf("last of %d", i) }

// wrongMaps describes every ConfigMap that is not in its final state.
func wrongMaps(ctx context.Context, client kubernetes.Interface, namespace string,
	objects int) (wrong []string, err error) {
	list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	have := map[string]*corev1.ConfigMap{}
	for i := range list.Items {
		have[list.Items[i].Name] = &list.Items[i]
	}
	delete(have, "kube-root-ca.crt")
	for i := range objects {
		name := inputName(i)
		input, output := have[name], have[outputName(name)]
		delete(have, name)
		delete(have, outputName(name))
		value := firstValue(i)
		switch i % 10 {
		case 0:
			if input != nil || output != nil {
				wrong = append(wrong, name+" or its output is not deleted")
			}
			continue
		case 1, 2, 3:
			value = lastValue(i)
		}
		switch {
		case input == nil || output == nil:
			wrong = append(wrong, name+" or its output is missing")
		case input.Annotations[handled] != value || input.Data["value"] != value:
			wrong = append(wrong, name+" is not handled")
		case output.Data["result"] != resultOf(value):
			wrong = append(wrong, name+" has the wrong output")
		case !metav1.IsControlledBy(output, input):
			wrong = append(wrong, name+" does not own its output")
		}
	}
	for name := range have {
		wrong = append(wrong, name+" should not exist")
	}
	return wrong, nil
}

// summary counts the lines that a manager has printed.
func (p *process) summary() string {
	return fmt.Sprintf(
		"%d reconciliations, %d with a cache that was behind, %d failed, %d at the same time as another of that object",
		p.lines("reconciled "), p.lines("behind "), p.lines("failed "), p.lines("twice "))
}

// lines returns how many lines of the process's log begin with prefix.
func (p *process) lines(prefix string) (n int) {
	data, _ := os.ReadFile(p.log)
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte(prefix)) {
			n++
		}
	}
	return n
}

// waitForLines waits until n lines of the process's log begin with prefix.
func (p *process) waitForLines(ctx context.Context, n int, prefix string) error {
	for p.lines(prefix) < n {
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended (%v):\n%s", p.name, p.cmd.ProcessState, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s has printed %d lines with %q, want %d:\n%s", p.name, p.lines(prefix), prefix,
				n, p.tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}
