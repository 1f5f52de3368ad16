package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
)

// withContainers is a Pod whose containers "app" and "side" have restarted so often.
func withContainers(name string, app, side int32) *corev1.Pod {
	p := pod(name, name, app)
	p.Status.ContainerStatuses = append(p.Status.ContainerStatuses,
		corev1.ContainerStatus{Name: "side", RestartCount: side})
	return p
}

// A line has what happened since the program began to look, and nothing else.
func TestOnlyNewRestartsCount(t *testing.T) {
	const why = " (CrashLoopBackOff, last exit 137 OOMKilled)\n"
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, fake.NewClientset(), "-restarts", "2", "-within", "10m")
		// An old Pod may be seen before its node has reported its containers.
		silent := pod("old", "1", 0)
		silent.Status = corev1.PodStatus{}
		c.set(silent)
		c.set(pod("old", "1", 50))
		c.wantOutput("")
		c.set(pod("old", "1", 52))
		c.wantOutput("default/old: 2 restarts within 10m0s: app" + why)
		// A node may lose count.
		c.set(pod("lost", "2", 10))
		c.set(pod("lost", "2", 0))
		c.set(pod("lost", "2", 1))
		c.wantOutput("")
		c.set(pod("lost", "2", 5))
		c.wantOutput("default/lost: 5 restarts within 10m0s: app" + why)
		// Containers that run well are not named.
		c.set(withContainers("two", 40, 0))
		c.set(withContainers("two", 40, 3))
		c.wantOutput("default/two: 3 restarts within 10m0s: side\n")
		time.Sleep(time.Hour)
		c.set(withContainers("two", 42, 3))
		c.wantOutput("default/two: 2 restarts within 10m0s: app" + why)
		c.end(0)
	})
}

// full is a disk.
type full struct {
	locked.Buffer
	fails bool
}

func (f *full) Write(p []byte) (int, error) {
	if f.fails {
		return 0, errors.New("no space left")
	}
	return f.Buffer.Write(p)
}

// A line that could not be printed is printed by the retry.
func TestLineIsNotLost(t *testing.T) {
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	out := &full{fails: true}
	r := newReporter(corelisters.NewPodLister(pods), options{restarts: 1, within: time.Hour}, out)
	key := cache.ObjectName{Namespace: "default", Name: "web"}
	look := func() error { return r.look(t.Context(), key) }
	for _, restarts := range []int32{0, 2} {
		if err := pods.Add(pod("web", "1", restarts)); err != nil {
			t.Fatal(err)
		}
		if err := look(); (err != nil) != (restarts > 0) {
			t.Errorf("look returned %v", err)
		}
	}
	out.fails = false
	if err := look(); err != nil {
		t.Error(err)
	}
	if err := look(); err != nil {
		t.Error(err)
	}
	if got := out.Take(); got != "default/web: 2 restarts within 1h0m0s: app (CrashLoopBackOff, last exit 137 OOMKilled)\n" {
		t.Errorf("printed %q", got)
	}
}
