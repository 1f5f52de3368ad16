package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

// demo runs the program on a cluster that is made up: client-go's fake, whose Pods restart as script says. It
// ends when the script does. The program and the script print to stdout at the same time, which an [os.File]
// allows.
func demo(ctx context.Context, o options, stdout, stderr io.Writer) error {
	client := fake.NewClientset()
	for _, name := range []string{"db-0", "web-1", "web-2"} {
		if _, err := client.CoreV1().Pods("default").Create(ctx, demoPod(name, 0),
			metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan error, 1)
	go func() { watched <- watch(ctx, client, o, stdout, stderr) }()
	err := script(ctx, client, stdout)
	cancel()
	if watchErr := <-watched; watchErr != nil {
		return watchErr
	}
	if errors.Is(err, context.Canceled) {
		return nil // Ctrl-C.
	}
	return err
}

// script restarts the containers of some Pods, a step every half second, so that each is seen by itself.
func script(ctx context.Context, client kubernetes.Interface, out io.Writer) error {
	for _, step := range []struct {
		pod      string
		restarts int32
	}{
		{"web-1", 1}, {"web-1", 2}, {"db-0", 1}, {"web-1", 3}, {"web-1", 4}, {"web-2", 3},
	} {
		if err := pause(ctx); err != nil {
			return err
		}
		fmt.Fprintf(out, "  (the container of default/%s restarts: %d)\n", step.pod, step.restarts)
		_, err := client.CoreV1().Pods("default").Update(ctx, demoPod(step.pod, step.restarts),
			metav1.UpdateOptions{})
		if err != nil {
			return err
		}
	}
	return pause(ctx)
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(500 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// demoPod returns a Pod whose container has restarted that many times.
func demoPod(name string, restarts int32) *corev1.Pod {
	app := corev1.ContainerStatus{Name: "app", RestartCount: restarts}
	if restarts > 0 {
		app.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		app.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{app}},
	}
}
