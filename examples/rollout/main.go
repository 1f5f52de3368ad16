// Command rollout waits for the rollouts of Deployments on a cluster that is made up, and prints how they
// end. It shows what an event handler of client-go's informers says when it adds a key, and a handler that
// stops waiting when there is something newer. README.md says where to look for what.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, os.Stderr); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// run runs the controller on client-go's fake cluster until the script has ended.
func run(ctx context.Context, stdout, stderr io.Writer) error {
	client := fake.NewClientset(secret(1))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan error, 1)
	go func() { watched <- watch(ctx, client, stdout, stderr) }()
	err := script(ctx, client, stdout)
	cancel()
	if watchErr := <-watched; watchErr != nil {
		return watchErr
	}
	return err
}

// script is what happens in the cluster, a step every half second.
func script(ctx context.Context, client kubernetes.Interface, out io.Writer) error {
	deployments, secrets := client.AppsV1().Deployments("default"), client.CoreV1().Secrets("default")
	version := 0
	set := func(generation int64, newReplicas int32) error {
		version++
		_, err := deployments.Update(ctx, deployment(version, generation, newReplicas), metav1.UpdateOptions{})
		return err
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"default/web is created", func() error {
			_, err := deployments.Create(ctx, deployment(version, 1, 0), metav1.CreateOptions{})
			return err
		}},
		{"its 3 replicas are ready", func() error { return set(1, 3) }},
		{"it gets an image that does not start", func() error { return set(2, 0) }},
		{"1 of 3 replicas is ready", func() error { return set(2, 1) }},
		{"it gets another image", func() error { return set(3, 1) }},
		{"its 3 replicas are ready", func() error { return set(3, 3) }},
		{"Secret default/db gets a new password", func() error {
			_, err := secrets.Update(ctx, secret(2), metav1.UpdateOptions{})
			return err
		}},
	} {
		if err := pause(ctx); err != nil {
			return err
		}
		fmt.Fprintf(out, "  (%s)\n", step.what)
		if err := step.do(); err != nil {
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

// deployment returns a Deployment of 3 replicas, as the API server would: each change has a new
// resourceVersion, and a change of the spec a new generation.
func deployment(version int, generation int64, newReplicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", Generation: generation, ResourceVersion: strconv.Itoa(version),
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"example.com/secret": "db"}},
			},
		},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: generation, UpdatedReplicas: newReplicas, ReadyReplicas: newReplicas,
		},
	}
}

func secret(version int) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "db", ResourceVersion: strconv.Itoa(version),
	}}
}
