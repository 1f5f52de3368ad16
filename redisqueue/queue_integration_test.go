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

	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/prom"
	"github.com/keyedqueue/workqueue/worker"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Package worker runs over the queue: two pools share keys, failed keys are retried after their backoff, and
// are given up after too many failures, which all replicas count together; the end of a pool leaves the rest
// to the other.
func TestWorker(t *testing.T) {
	s := startServer(t)
	var mu sync.Mutex
	handled, failures, pools := make(map[string]bool), make(map[string]int), make(map[int]bool)
	// Both pools have a key. Until then handlers wait, so that one pool does not handle all.
	both := make(chan struct{})
	haveBoth := sync.OnceFunc(func() { close(both) })
	errFailed := errors.New("failed")
	start := func(pool int) (stop func()) {
		config := Config[string]{}
		config.Backoff.Base = time.Millisecond
		q := newTestQueue(t, s.client(), config)
		handle := func(ctx context.Context, key string) error {
			if _, ok := Fence(ctx); !ok {
				t.Errorf("%s: the handler's context has no fence", key)
			}
			mu.Lock()
			defer mu.Unlock()
			if pools[pool] = true; len(pools) == 2 {
				haveBoth()
			}
			mu.Unlock()
			<-both
			mu.Lock()
			if key == "bad" || strings.HasSuffix(key, "7") && failures[key] < 2 {
				failures[key]++
				return errFailed
			}
			handled[key] = true
			return nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- worker.Run(ctx, q, handle, worker.Options[string]{Workers: 8, MaxRetries: 3,
				DrainTimeout: 5 * time.Second})
		}()
		return func() {
			cancel()
			must(t, errors.Join(<-ended, q.ShutDownContext(within(t, 5*time.Second))))
		}
	}
	stopFirst, stopSecond := start(1), start(2)
	producer := newTestQueue(t, s.client(), Config[string]{})
	keys := keysNamed("order", 200)
	addAll(producer, "bad")
	addAll(producer, keys[:100]...)
	var given []operate.GivenUpKey[string]
	waitUntil(t, func() bool {
		given = producer.GivenUpKeys(10)
		return len(given) == 1
	})
	if k := given[0]; k.Key != "bad" || k.Attempts != 4 || k.Err != errFailed.Error() ||
		time.Since(k.Time) > time.Minute {
		t.Errorf("GivenUpKeys() = %+v", given)
	}
	stopFirst()
	addAll(producer, keys[100:]...)
	waitUntil(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(handled) == len(keys)
	})
	stopSecond()
	mu.Lock()
	defer mu.Unlock()
	if failures["order/7"] != 2 || failures["bad"] != 4 {
		t.Errorf("failures: %v", failures)
	}
	wantNoKeys(t, producer)
	wantFailures(t, producer, "order/7", 0)
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
	giveUp(q, "given up", nil)
	waitUntil(t, func() bool { return shared(q).Errors > 0 })
	f.down.Store(false)
	flush(t, q)
	getEach(t, q, "failing")
	failures := float64(shared(q).Errors)
	addAll(q, keysNamed("k", 5)...)
	q.AddAfter("later", time.Hour)
	mustGet(t, q, "k/0")
	mustGet(t, q, "k/1")
	q.Done("k/0")
	q.Done("never held")
	want := map[string]float64{
		"workqueue_depth": 3, "workqueue_adds_total": 6, "workqueue_retries_total": 2, "workqueue_waiting_keys": 1,
		"workqueue_unmatched_dones_total": 1, "workqueue_queue_duration_seconds": 3,
		"workqueue_work_duration_seconds": 2,
		"workqueue_paused":                0, "workqueue_shared_outage": 0, "workqueue_shared_unsent_operations": 0,
		"workqueue_shared_errors_total":      failures,
		"workqueue_shared_given_up_keys":     1,
		"workqueue_shared_lost_leases_total": 0, "workqueue_shared_lost_dones_total": 0,
		"workqueue_shared_repaired_entries": 0,
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
				got[family.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() +
					float64(m.GetHistogram().GetSampleCount())
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
		if got["workqueue_unfinished_work_seconds"] <= 0 ||
			got["workqueue_longest_running_processor_seconds"] <= 0 {
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

// selfSigned writes a certificate for 127.0.0.1 and its key, and returns their files and the pool that trusts
// it.
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
		"--port", "0", "--tls-port", s.port(), "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", cert,
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
