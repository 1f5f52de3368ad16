package redisqueue

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// silence is go-redis's logger: it reports each connection that a test cuts.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(silence{})
	os.Exit(m.Run())
}

// server is a redis-server process of a test's own, on a port of its own.
type server struct {
	t    testing.TB
	dir  string
	addr string
	args []string
	tls  *tls.Config // nil: plain TCP

	mu  sync.Mutex
	cmd *exec.Cmd
}

// serverBinary returns the path of the server: redis-server, or what WORKQUEUE_REDIS_SERVER says. Without one the tests
// fail: install-redis.sh installs it.
func serverBinary(t testing.TB) string {
	path, err := exec.LookPath(cmp.Or(os.Getenv("WORKQUEUE_REDIS_SERVER"), "redis-server"))
	if err != nil {
		t.Fatalf("%v: run redisqueue/install-redis.sh, which installs it", err)
	}
	return path
}

// startServer starts a server with those settings beside the usual.
func startServer(t testing.TB, settings ...string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), addr: freeAddr(t), args: settings}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *server) port() string {
	_, port, _ := net.SplitHostPort(s.addr)
	return port
}

func (s *server) start() {
	s.t.Helper()
	args := append([]string{
		"--bind", "127.0.0.1", "--port", s.port(), "--dir", s.dir, "--save", "", "--loglevel", "warning",
		"--logfile", filepath.Join(s.dir, "log"), "--daemonize", "no",
	}, s.args...)
	cmd := exec.Command(serverBinary(s.t), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.cmd = cmd
	s.mu.Unlock()
	client := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, TLSConfig: s.tls})
	defer client.Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := client.Ping(context.Background()).Err()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.t.Fatalf("redis-server %s does not answer: %v\n%s", strings.Join(args, " "), err, log)
		}
	}
}

// kill ends the server as a crash does.
func (s *server) kill() {
	s.mu.Lock()
	cmd := s.cmd
	s.cmd = nil
	s.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func (s *server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(sig)
	}
}

// client returns a client of the server, which is closed with the test.
func (s *server) client() *redis.Client {
	return newClient(s.t, &redis.Options{Addr: s.addr, TLSConfig: s.tls})
}

func clientOf(t testing.TB, addr string) *redis.Client {
	return newClient(t, &redis.Options{Addr: addr})
}

func newClient(t testing.TB, options *redis.Options) *redis.Client {
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

// newTestQueue returns a queue that is shut down with the test.
func newTestQueue(t testing.TB, client redis.UniversalClient, config Config[string]) *Queue[string] {
	t.Helper()
	if config.Name == "" {
		config.Name = "test"
	}
	q, err := New(context.Background(), client, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endQueue(t, q) })
	return q
}

func endQueue[T comparable](t testing.TB, q *Queue[T]) {
	q.ShutDown()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		select {
		case <-q.ending.ended:
			return
		default:
		}
		q.mu.Lock()
		holds := len(q.held)
		q.mu.Unlock()
		if holds > 0 {
			return
		}
	}
	t.Errorf("the queue has not ended 10 s after ShutDown: %+v", q.Info())
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustGet(t testing.TB, q *Queue[string], want string) {
	t.Helper()
	key, err := q.GetContext(within(t, 5*time.Second))
	if err != nil || key != want {
		t.Fatalf("GetContext() = %q, %v, want %q", key, err, want)
	}
}

// eventually waits until f returns no error.
func eventually(t testing.TB, d time.Duration, f func() error) {
	t.Helper()
	deadline := time.Now().Add(d)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

func keysNamed(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s/%d", prefix, i)
	}
	return keys
}
