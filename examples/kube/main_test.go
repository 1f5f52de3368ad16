package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
	"github.com/keyedqueue/workqueue/examples/internal/readme"
)

// cluster is client-go's fake, with the program running on it.
type cluster struct {
	t              *testing.T
	client         *fake.Clientset
	stdout, stderr locked.Buffer
	cancel         context.CancelFunc
	code           chan int
}

func newCluster(t *testing.T, client *fake.Clientset, args ...string) *cluster {
	ctx, cancel := context.WithCancel(t.Context())
	c := &cluster{t: t, client: client, cancel: cancel, code: make(chan int, 1)}
	go func() {
		c.code <- run(ctx, args, &c.stdout, &c.stderr, func(string) (kubernetes.Interface,
			error) {
			return client, nil
		})
	}()
	c.settle()
	return c
}

// settle lets the informers take in what has happened.
func (c *cluster) settle() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

func (c *cluster) set(p *corev1.Pod) {
	c.t.Helper()
	pods := c.client.CoreV1().Pods(p.Namespace)
	if _, err := pods.Update(c.t.Context(), p, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		_, err = pods.Create(c.t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
	} else if err != nil {
		c.t.Fatal(err)
	}
	c.settle()
}

func (c *cluster) wantOutput(want string) {
	c.t.Helper()
	if got := c.stdout.Take(); got != want {
		c.t.Errorf("printed %q, want %q", got, want)
	}
}

func (c *cluster) end(code int) {
	c.t.Helper()
	c.cancel()
	if got := <-c.code; got != code {
		c.t.Errorf("exit code %d, want %d; stderr:\n%s", got, code, c.stderr.Take())
	}
}

func pod(name, uid string, restarts int32) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", RestartCount: restarts,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137,
				Reason: "OOMKilled"}},
		}}},
	}
}

func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, fake.NewClientset(pod("old", "1", 50)), "-restarts", "3", "-within", "10m",
			"-namespace", "default")
		elsewhere := pod("web", "9", 0)
		elsewhere.Namespace = "kube-system"
		c.set(elsewhere)
		elsewhere.Status.ContainerStatuses[0].RestartCount = 9
		c.set(elsewhere)
		c.wantOutput("")
		c.set(pod("web", "2", 0))
		c.set(pod("web", "2", 2))
		c.set(pod("old", "1", 52))
		c.wantOutput("")
		c.set(pod("web", "2", 3))
		c.wantOutput("default/web: 3 restarts within 10m0s: app (CrashLoopBackOff, last exit 137 OOMKilled)\n")
		c.set(pod("web", "2", 3)) // Nothing new.
		c.wantOutput("")
		c.set(pod("web", "2", 4))
		c.wantOutput("default/web: 4 restarts within 10m0s: app (CrashLoopBackOff, last exit 137 OOMKilled)\n")
		// Restarts that are long ago do not count.
		time.Sleep(time.Hour)
		c.set(pod("web", "2", 6))
		c.set(pod("old", "1", 54))
		c.wantOutput("")
		c.set(pod("web", "2", 7))
		c.wantOutput("default/web: 3 restarts within 10m0s: app (CrashLoopBackOff, last exit 137 OOMKilled)\n")
		// Another Pod of the same name starts afresh, whether or not we have seen the first one go.
		c.set(pod("web", "3", 20))
		c.wantOutput("")
		if err := c.client.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.settle()
		c.set(pod("web", "3", 30))
		c.wantOutput("")
		c.end(0)
	})
}

func TestDemo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr locked.Buffer
		code := run(t.Context(), []string{"-demo"}, &stdout, &stderr, nil)
		want := readme.Output(t, "go run ./examples/kube -demo")
		if got := stdout.Take(); code != 0 || got != want {
			t.Errorf("exit code %d, printed:\n%s%s\nREADME.md shows:\n%s", code, got, stderr.Take(), want)
		}
	})
}

// A cluster that does not allow it ends the program, instead of trying forever.
func TestForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("not you"))
		})
		c := newCluster(t, client)
		code, stderr := <-c.code, c.stderr.Take()
		if code != 1 || !strings.HasPrefix(stderr, "kube: the cluster does not let us watch Pods: ") {
			t.Errorf("exit code %d, stderr:\n%s", code, stderr)
		}
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
