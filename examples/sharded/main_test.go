package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/examples/internal/locked"
	"github.com/keyedqueue/workqueue/examples/internal/readme"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/sharding"
)

// The demo ends by itself, and README.md shows what it prints, but for times and which slots move.
func TestDemo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr locked.Buffer
		code := run(t.Context(), []string{"-demo"}, &stdout, &stderr)
		got, want := stdout.Take(), readme.Output(t, "go run ./examples/sharded -demo")
		if code != 0 || shape(got) != shape(want) {
			t.Errorf("exit code %d, printed:\n%s%s\nREADME.md shows:\n%s", code, got, stderr.Take(), want)
		}
		if !strings.Contains(got, "two replicas at once: 0\n") {
			t.Error("two replicas handled a site at the same time")
		}
	})
}

// shape replaces what differs from run to run.
func shape(text string) string {
	text = regexp.MustCompile(`[#.]{64}`).ReplaceAllString(text, "SLOTS")
	return regexp.MustCompile(`(?m)^ +| *[0-9]+(\.[0-9]+)?`).ReplaceAllString(text, " N")
}

// Ctrl-C ends the demo at any moment, and at once but for what its handlers still do.
func TestDemoEndsWithCtrlC(t *testing.T) {
	for after := time.Duration(0); after < 11*time.Second; after += 700 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			var stdout, stderr locked.Buffer
			began := time.Now()
			code := run(ctx, []string{"-demo"}, &stdout, &stderr)
			if took := time.Since(began) - after; code != 0 || took > 5*time.Second {
				t.Errorf("Ctrl-C after %v: exit code %d, %v later: %s", after, code, took, stderr.Take())
			}
		})
	}
}

// On a terminal the picture stays below the lines, and shows handlers at work.
func TestDemoOnTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out locked.Buffer
		if err := demo(t.Context(), &out, true); err != nil {
			t.Fatal(err)
		}
		got := out.Take()
		for _, want := range []string{"\x1b[4A\x1b[J", "*", "every site's last version is handled"} {
			if !strings.Contains(got, want) {
				t.Errorf("the output does not have %q", want)
			}
		}
	})
}

func configMap(i int, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("map-", i),
			Labels: map[string]string{"sharded-example": "true"}},
		Data: map[string]string{"data": data},
	}
}

// Two replicas share the ConfigMaps. When one ends, the other one looks after all of them.
func TestControl(t *testing.T) {
	const n = 40
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		maps := client.CoreV1().ConfigMaps("default")
		for i := range n {
			if _, err := maps.Create(t.Context(), configMap(i, "first"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		wantChecksums := func() {
			t.Helper()
			time.Sleep(5 * time.Second)
			list, err := maps.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list.Items {
				if sum, err := checksum(&m); err != nil || m.Annotations[checksumAnnotation] != sum ||
					m.Annotations[fenceAnnotation] == "" {
					t.Errorf("%s has the annotations %v, want the checksum %s (%v)", m.Name, m.Annotations, sum, err)
				}
			}
		}
		store := sharding.Memory()
		var logs [2]locked.Buffer
		var stop [2]context.CancelFunc
		ended := make(chan error, 2)
		for i := range 2 {
			var ctx context.Context
			ctx, stop[i] = context.WithCancel(t.Context())
			go func() { ended <- control(ctx, client, store, options{workers: 2}, &logs[i]) }()
		}
		wantChecksums()
		stop[0]()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for i := range n {
			if _, err := maps.Update(t.Context(), configMap(i, "second"), metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		wantChecksums()
		if wrote := strings.Count(logs[1].String(), "Wrote the checksum"); wrote < n {
			t.Errorf("the replica that stayed wrote %d checksums, want %d or more", wrote, n)
		}
		stop[1]()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A replica that was stopped, and does not know that it has lost the slot, does not write over a later one.
func TestOldFence(t *testing.T) {
	m := configMap(1, "data")
	m.Annotations = map[string]string{fenceAnnotation: "7"}
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	if err := store.Add(m); err != nil {
		t.Fatal(err)
	}
	c := &controller{client: fake.NewClientset(m), store: store, logger: slog.New(slog.DiscardHandler)}
	if err := c.handle(t.Context(), cache.MetaObjectToName(m)); err == nil ||
		!strings.Contains(err.Error(), "older than 7") {
		t.Errorf("handle returned %v", err)
	}
}

func TestServe(t *testing.T) {
	var log locked.Buffer
	registry := prometheus.NewRegistry()
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{
		Name: "configmaps", MetricsProvider: prom.NewProvider(registry, prom.Options{}),
	})
	defer queue.ShutDown()
	if err := serve(t.Context(), "127.0.0.1:0", registry, queue,
		slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	urls := regexp.MustCompile(`http://\S+/`+`\S*`).FindAllString(log.String(), -1)
	if len(urls) != 2 {
		t.Fatalf("logged %s", log.String())
	}
	for i, want := range []string{"workqueue_depth", "configmaps"} {
		response, err := http.Get(urls[i])
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s (%v) without %q:\n%s", urls[i], response.Status, err, want, body)
		}
	}
}
