package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyedqueue/workqueue/debug"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/keyedqueue/workqueue/worker"
)

var silent = slog.New(slog.DiscardHandler)

// server is a redis-server process of a test's own.
type server struct {
	t         *testing.T
	dir, port string
	cmd       *exec.Cmd
}

var nextPort atomic.Int32

// startServer starts a server that keeps its data when it is killed. Without a redis-server the test fails:
// tools/install-server.sh installs it.
func startServer(t *testing.T) *server {
	t.Helper()
	// Not a port that the system hands out by itself: while the server is down, a connection may get it.
	for {
		port := 10000 + (os.Getpid()*199+int(nextPort.Add(1)))%20000
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		s := &server{t: t, dir: t.TempDir(), port: fmt.Sprint(port)}
		s.start()
		t.Cleanup(s.kill)
		return s
	}
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "always")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("%v: run tools/install-server.sh redis-server", err)
	}
	client := s.client()
	defer client.Close()
	eventually(s.t, func() bool { return client.Ping(context.Background()).Err() == nil })
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *server) signal(what syscall.Signal) {
	if err := s.cmd.Process.Signal(what); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + s.port, MaxRetries: -1})
}

// queue returns a queue on the server.
func (s *server) queue(t *testing.T, c redisqueue.Config[string]) *redisqueue.Queue[string] {
	t.Helper()
	client := s.client()
	q, err := redisqueue.New(t.Context(), client, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		q.ShutDown()
		_ = client.Close()
	})
	return q
}

// eventually waits for what a server takes its time for.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
	}
}

// page returns what the page has for a query.
func page(h *debug.Handler, query string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/"+query, nil))
	return w.Body.String()
}

// While the server is stopped (it accepts connections and is silent) or gone, each page says that the server
// does not answer, and none that a key is not there. Then everything is as before.
func TestPageInAnOutage(t *testing.T) {
	for name, outage := range map[string]struct{ begin, end func(*server) }{
		"stopped": {func(s *server) { s.signal(syscall.SIGSTOP) }, func(s *server) { s.signal(syscall.SIGCONT) }},
		"gone":    {(*server).kill, (*server).start},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			h := debug.NewHandler(debug.Options{})
			defer h.Close()
			q := s.queue(t, redisqueue.Config[string]{Name: "q", MetricsProvider: h})
			pool := worker.New(q, func(context.Context, string) error { return worker.Terminal(errors.New("broken")) },
				worker.Options[string]{Logger: silent, KeepQueue: true})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- pool.Run(ctx) }()
			for i := range 30 {
				q.Add(fmt.Sprint("given up ", i))
			}
			eventually(t, func() bool { return len(q.GivenUpKeys(100)) == 30 })
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			q.AddAfter("a", time.Hour)
			eventually(t, func() bool { _, found := q.SnapshotKey("a"); return found })
			if body := page(h, "?queue=q&key=a"); !strings.Contains(body, "<code>a</code>") {
				t.Fatalf("before: %s", body)
			}
			outage.begin(s)
			eventually(t, func() bool { return leasing.StatsOf(q.Stats()).Outage })
			for query, want := range map[string]string{
				"":                               "did not answer in time</span>",
				"?queue=q":                       "did not answer in time",
				"?queue=q&key=a":                 "did not answer in time",
				"?queue=q&key=b":                 "that was looked at is called",
				"?queue=q&state=failing&error=x": "There may be more keys",
			} {
				body := page(h, query)
				if !strings.Contains(body, want) || strings.Contains(body, "may be done") ||
					strings.Contains(body, "No key waits") {
					t.Errorf("%q: no %q in %s", query, want, body)
				}
			}
			outage.end(s)
			eventually(t, func() bool {
				body := page(h, "?queue=q&key=a")
				return strings.Contains(body, "<code>a</code>") && !strings.Contains(body, "did not answer in time")
			})
		})
	}
}

// The page also shows the outage of a queue without metrics.
func TestPageOutageWithoutMetrics(t *testing.T) {
	s := startServer(t)
	h := debug.NewHandler(debug.Options{})
	defer h.Close()
	q := s.queue(t, redisqueue.Config[string]{Name: "q", Logger: silent})
	defer debug.Register(h, "q", q)()
	shown := func() bool {
		body := page(h, "")
		return strings.Contains(body, "did not answer in time")
	}
	if shown() {
		t.Fatal("the page shows an outage before it")
	}
	s.kill()
	eventually(t, shown)
	s.start()
	eventually(t, func() bool { return !shown() })
}
