package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

var rolledOut = regexp.MustCompile(`(?m)^(\S+): (generation \d+).* is rolled out$`)

// However late its informers are, it reports the last generation of each Deployment.
func TestConverges(t *testing.T) {
	handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		others := &fake.Clientset{}
		cluster.Attach(&others.Fake, nil)
		ctx := context.Background()
		deployments, secrets := others.AppsV1().Deployments("default"), others.CoreV1().Secrets("default")
		must := func(_ any, err error) {
			if err != nil {
				panic(err)
			}
		}
		get := func(name string) *appsv1.Deployment {
			d, err := deployments.Get(ctx, name, metav1.GetOptions{})
			must(d, err)
			return d
		}
		ready := func(name string) {
			d := get(name)
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, UpdatedReplicas: *d.Spec.Replicas,
				ReadyReplicas: *d.Spec.Replicas}
			must(deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{}))
		}
		must(secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}},
			metav1.CreateOptions{}))
		for _, name := range []string{"web", "api"} {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}}
			d.Spec.Template.Annotations = map[string]string{"example.com/secret": "db"}
			must(deployments.Create(ctx, d, metav1.CreateOptions{}))
			s.At(time.Second, func() { ready(name) })
		}
		s.At(2*time.Second, func() {
			d := get("web")
			d.Spec.Replicas = new(int32(3))
			must(deployments.Update(ctx, d, metav1.UpdateOptions{}))
		})
		s.At(2500*time.Millisecond, func() {
			secret, err := secrets.Get(ctx, "db", metav1.GetOptions{})
			must(secret, err)
			secret.Data = map[string][]byte{"password": []byte("new")}
			must(secrets.Update(ctx, secret, metav1.UpdateOptions{}))
		})
		s.At(3*time.Second, func() { ready("web") })

		var out locked.Buffer
		last := make(map[string]string)
		s.Settle, s.Runs = time.Minute, 200
		s.Measure = func() any {
			for _, match := range rolledOut.FindAllStringSubmatch(out.Take(), -1) {
				last[match[1]] = match[2]
			}
			var lines []string
			for _, name := range slices.Sorted(maps.Keys(last)) {
				lines = append(lines, fmt.Sprint(name, " ", last[name]))
			}
			return lines
		}
		s.Program = func(p *handlertest.Process) {
			client := &fake.Clientset{}
			cluster.Attach(&client.Fake, p)
			_ = watch(p.Context(), client, &out, io.Discard)
		}
	})
}
