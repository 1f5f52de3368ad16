package redisqueue

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/worker"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Package worker runs over the queue: two pools share keys, failed keys come again after their backoff, and are dropped
// after too many failures, which all replicas count together; the end of a pool leaves the rest to the other.
func TestWorker(t *testing.T) {
	s := startServer(t)
	const keys = 200
	var mu sync.Mutex
	handled, failures, dropped, pools := make(map[string]int), make(map[string]int), make(map[string]int), make(map[int]int)
	running := make(map[string]bool)
	both := make(chan struct{}) // Both pools have a key. Until then handlers wait, so that one pool does not handle all.
	errFailed := errors.New("failed")
	handle := func(pool int) worker.Handler[string] {
		return func(ctx context.Context, key string) error {
			if _, ok := Fence(ctx); !ok {
				t.Errorf("%s: the handler's context has no fence", key)
			}
			mu.Lock()
			if running[key] {
				t.Errorf("%s is with two handlers", key)
			}
			running[key] = true
			if pools[pool]++; pools[pool] == 1 && len(pools) == 2 {
				close(both)
			}
			fails := key == "bad" || strings.HasSuffix(key, "7") && failures[key] < 2
			if fails {
				failures[key]++
			} else {
				handled[key]++
			}
			mu.Unlock()
			<-both
			time.Sleep(time.Millisecond)
			mu.Lock()
			running[key] = false
			mu.Unlock()
			if fails {
				return errFailed
			}
			return nil
		}
	}
	start := func(pool int) (stop func()) {
		config := Config[string]{}
		config.Backoff.Base = time.Millisecond
		q := newTestQueue(t, s.client(), config)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- worker.Run(ctx, q, handle(pool), worker.Options[string]{
				Workers: 8, MaxRetries: 3, DrainTimeout: 5 * time.Second,
				OnDrop: func(_ context.Context, r worker.Result[string]) { mu.Lock(); dropped[r.Key]++; mu.Unlock() },
			})
		}()
		return func() {
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("Run() = %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Error("Run has not ended")
			}
			must(t, q.ShutDownContext(within(t, 5*time.Second)))
		}
	}
	stopFirst, stopSecond := start(1), start(2)
	producer := newTestQueue(t, s.client(), Config[string]{})
	for i, key := range keysNamed("order", keys) {
		producer.Add(key)
		if i == keys/2 {
			producer.Add("bad")
			flush(t, producer)
			select {
			case <-both:
			case <-time.After(20 * time.Second):
				t.Fatal("one of the pools gets no key")
			}
			stopFirst()
		}
	}
	eventually(t, 20*time.Second, func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(handled) != keys || dropped["bad"] != 1 {
			return fmt.Errorf("%d keys are handled, dropped: %v", len(handled), dropped)
		}
		return nil
	})
	stopSecond()
	mu.Lock()
	defer mu.Unlock()
	if failures["order/7"] != 2 || failures["bad"] != 4 {
		t.Errorf("failures: %v", failures)
	}
	given, err := producer.GivenUp(within(t, 5*time.Second), 10)
	if err != nil || len(given) != 1 || given[0].Key != "bad" || given[0].Attempts != 4 || given[0].Reason != errFailed.Error() || time.Since(given[0].At) > time.Minute {
		t.Errorf("GivenUp() = %+v, %v", given, err)
	}
	wantNoKeys(t, producer)
	if n := requeues(t, producer, "order/7"); n != 0 {
		t.Errorf("%d failures of a key that was handled", n)
	}
}

// Package prom exports the queue's series, and no gauges any more of a replica that has ended.
func TestProm(t *testing.T) {
	registry := prometheus.NewRegistry()
	client, f := startServer(t).faultyClient()
	q := newTestQueue(t, client, Config[string]{
		Name: "orders", Logger: discard, MetricsProvider: prom.NewProvider(registry, prom.Options{}),
	})
	f.down.Store(true)
	q.AddRateLimited("failing")
	q.GiveUp("given up", 3, nil)
	waitUntil(t, func() bool { return q.Info().Errors > 0 })
	f.down.Store(false)
	flush(t, q)
	mustGet(t, q, "failing")
	q.Done("failing")
	failures := float64(q.Info().Errors)
	addAll(q, keysNamed("k", 5)...)
	q.AddAfter("later", time.Hour)
	mustGet(t, q, "k/0")
	mustGet(t, q, "k/1")
	q.Done("k/0")
	q.Done("never held")
	want := map[string]float64{
		"workqueue_depth": 3, "workqueue_adds_total": 6, "workqueue_retries_total": 2, "workqueue_waiting_keys": 1,
		"workqueue_unmatched_dones_total": 1, "workqueue_queue_duration_seconds": 3, "workqueue_work_duration_seconds": 2,
		"workqueue_paused": 0, "workqueue_shared_outage": 0, "workqueue_shared_unsent_operations": 0,
		"workqueue_shared_errors_total": failures, "workqueue_shared_failing_keys": 1, "workqueue_shared_given_up_keys": 1,
		"workqueue_shared_lost_leases_total": 0, "workqueue_shared_lost_dones_total": 0,
		"workqueue_shared_set_aside_keys": 0, "workqueue_shared_repaired_entries": 0,
	}
	eventually(t, 5*time.Second, func() error {
		families, err := registry.Gather()
		if err != nil {
			return err
		}
		got := make(map[string]float64)
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if len(m.GetLabel()) != 1 || m.GetLabel()[0].GetValue() != "orders" {
					return fmt.Errorf("%s has the labels %v", family.GetName(), m.GetLabel())
				}
				got[family.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		for name, value := range want {
			if v, ok := got[name]; !ok || v != value {
				return fmt.Errorf("%s is %v, %v, want %v", name, v, ok, value)
			}
		}
		if got["workqueue_shared_call_duration_seconds"] < 3 {
			return fmt.Errorf("calls: %v", got)
		}
		if got["workqueue_unfinished_work_seconds"] <= 0 || got["workqueue_longest_running_processor_seconds"] <= 0 {
			return fmt.Errorf("unfinished work: %v", got)
		}
		return nil
	})
	q.Done("k/1")
	endQueue(t, q)
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetMetric()[0].Gauge != nil {
			t.Errorf("%s of a replica that has ended", family.GetName())
		}
	}
}

// Package debug shows the queue, as a page and as JSON.
func TestDebug(t *testing.T) {
	q := newTestQueue(t, startServer(t).client(), Config[string]{Name: "orders"})
	addAndGet(t, q, "held/1")
	q.Add("queued/1")
	q.AddAfter("waiting/1", time.Hour)
	q.AddRateLimited("failing/1")
	q.GiveUp("givenup/1", 3, errors.New("the card was declined"))
	flush(t, q)
	h := debug.NewHandler(debug.Options{})
	defer h.Close()
	debug.Register(h, "orders", q)
	get := func(query string) string {
		t.Helper()
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest("GET", "/?"+query, nil))
		if r.Code != 200 {
			t.Fatalf("%s: %d %s", query, r.Code, r.Body)
		}
		return r.Body.String()
	}
	for _, query := range []string{"", "format=json"} {
		if list := get(query); !strings.Contains(list, "orders") {
			t.Errorf("%q does not list the queue: %.500s", query, list)
		}
	}
	for _, query := range []string{"queue=orders", "queue=orders&format=json"} {
		page := get(query)
		for _, key := range []string{"held/1", "queued/1", "waiting/1", "failing/1", "givenup/1", "the card was declined", "1 shards, keys: string"} {
			if !strings.Contains(page, key) {
				t.Errorf("%q does not show %s: %.2000s", query, key, page)
			}
		}
	}
	if one := get("queue=orders&key=waiting/1&format=json"); !strings.Contains(one, "waiting") {
		t.Errorf("one key: %s", one)
	}
	q.Done("held/1")
}

// selfSigned writes a certificate for 127.0.0.1 and its key, and returns their files and the pool that trusts it.
func selfSigned(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	key, err := x509.MarshalPKCS8PrivateKey(web.TLS.Certificates[0].PrivateKey)
	must(t, err)
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: web.Certificate().Raw}, keyFile: {Type: "PRIVATE KEY", Bytes: key},
	} {
		must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	pool = x509.NewCertPool()
	pool.AddCert(web.Certificate())
	return certFile, keyFile, pool
}

// The queue works over TLS, with a server that has no other port.
func TestTLS(t *testing.T) {
	cert, key, pool := selfSigned(t)
	s := &server{t: t, dir: t.TempDir(), addr: freeAddr(t), tls: &tls.Config{RootCAs: pool}}
	s.args = []string{
		"--port", "0", "--tls-port", s.port(), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert,
		"--tls-auth-clients", "no",
	}
	s.start()
	t.Cleanup(s.kill)
	q, other := newTestQueue(t, s.client(), Config[string]{}), newTestQueue(t, s.client(), Config[string]{})
	handleWhileAsleep(t, s, other, "x", func() { must(t, q.AddContext(within(t, 5*time.Second), "x")) })
	plain := newClient(t, &redis.Options{Addr: s.addr, MaxRetries: -1})
	if _, err := New(within(t, 5*time.Second), plain, Config[string]{Name: "test"}); err == nil {
		t.Error("New() without TLS returns no error")
	}
}
