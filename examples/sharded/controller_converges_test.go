package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/handlertest/kubetest"
	"github.com/keyedqueue/workqueue/sharding"
)

// No matter how informers lag and processes crash, each ConfigMap gets the checksum of its last data.
func TestConverges(t *testing.T) {
	handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
		cluster := kubetest.NewCluster(s, scheme.Scheme)
		others := &fake.Clientset{}
		cluster.Attach(&others.Fake, nil)
		maps := others.CoreV1().ConfigMaps("default")
		set := func(name, data string) {
			m, err := maps.Get(context.Background(), name, metav1.GetOptions{})
			if err != nil {
				m = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default",
					Labels: map[string]string{"sharded-example": "true"}}}
				m.Data = map[string]string{"data": data}
				_, err = maps.Create(context.Background(), m, metav1.CreateOptions{})
			} else {
				m.Data = map[string]string{"data": data}
				_, err = maps.Update(context.Background(), m, metav1.UpdateOptions{})
			}
			if err != nil {
				panic(err)
			}
		}
		set("a", "1")
		set("b", "1")
		s.At(20*time.Second, func() { set("a", "2") })
		s.At(20*time.Second+5*time.Millisecond, func() { set("a", "3") })
		s.Settle, s.Runs = time.Minute, 30
		s.Measure = func() any {
			all, err := maps.List(context.Background(), metav1.ListOptions{})
			if err != nil {
				panic(err)
			}
			var lines []string
			for _, m := range all.Items {
				sum, _ := checksum(&m)
				lines = append(lines, fmt.Sprint(m.Name, " ", m.Data, " has its checksum: ",
					m.Annotations[checksumAnnotation] == sum))
			}
			slices.Sort(lines)
			return strings.Join(lines, "\n")
		}
		store := sharding.Memory()
		s.Program = func(p *handlertest.Process) {
			client := &fake.Clientset{}
			cluster.Attach(&client.Fake, p)
			_ = control(p.Context(), client, store, options{namespace: "default", workers: 2}, io.Discard)
		}
	})
}
