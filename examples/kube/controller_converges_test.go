package main

import (
	"context"
	"io"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/handlertest/kubetest"
)

// However late its informer is, it reports a Pod that restarts too often, and no other. (A crash loses what
// it has counted, as its help says. It writes nothing, so it does not crash here.)
func TestConverges(t *testing.T) {
	handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		others := &fake.Clientset{}
		cluster.Attach(&others.Fake, nil)
		ctx := context.Background()
		pods := others.CoreV1().Pods("default")
		must := func(_ any, err error) {
			if err != nil {
				panic(err)
			}
		}
		restarted := func(name string, count int32) {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			must(pod, err)
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: count}}
			must(pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}))
		}
		for _, name := range []string{"bad", "good"} {
			must(pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}},
				metav1.CreateOptions{}))
			restarted(name, 7) // Before the start.
		}
		for i := range int32(4) {
			s.At(time.Duration(20+i)*time.Second, func() { restarted("bad", 8+i) })
		}
		s.At(25*time.Second, func() { restarted("good", 8) })

		var out locked.Buffer
		seen := make(map[string]bool)
		s.Settle, s.Runs = time.Minute, 200
		s.Measure = func() any {
			for _, match := range regexp.MustCompile(`(?m)^default/(\w+): `).FindAllStringSubmatch(out.Take(), -1) {
				seen[match[1]] = true
			}
			return seen
		}
		s.Program = func(p *handlertest.Process) {
			client := &fake.Clientset{}
			cluster.Attach(&client.Fake, p)
			_ = watch(p.Context(), client, options{restarts: 3, within: 10 * time.Minute, workers: 2}, &out,
				io.Discard)
		}
	})
}
