package redisqueue

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
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

	hasRun bool // Only until then its port may change.

	mu  sync.Mutex
	cmd *exec.Cmd
}

// serverBinary returns the path of the server: redis-server, or what WORKQUEUE_REDIS_SERVER says. Without one
// the tests fail: tools/install-server.sh installs it.
func serverBinary(t testing.TB) string {
	path, err := exec.LookPath(cmp.Or(os.Getenv("WORKQUEUE_REDIS_SERVER"), "redis-server"))
	if err != nil {
		t.Fatalf("%v: run tools/install-server.sh redis-server, which installs it", err)
	}
	return path
}

// startServer starts a server with those settings beside the usual.
func startServer(t testing.TB, settings ...string) *server {
	t.Helper()
	s := &server{t: t, dir: tempDir(t), addr: freeAddr(t), args: settings}
	s.start()
	t.Cleanup(s.kill)
	return s
}

// tempDir is t.TempDir for a server: a killed one may leave a child that still writes.
func tempDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "redisqueue")
	must(t, err)
	t.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	return dir
}

// nextPort is where freeAddr looks next. Ports that the system hands out by itself would not do: while a
// server is down, a connection may get its port.
var nextPort atomic.Int64

// freeAddr returns an address that no other test of this process uses.
func freeAddr(t testing.TB) string {
	t.Helper()
	const first, ports = 10000, 22000
	for range 1000 {
		port := first + (int64(os.Getpid())*199+nextPort.Add(1))%ports
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// StartServer starts a server for an example, which has no testing.TB, and returns its address.
func StartServer() (addr string, stop func()) {
	t := &exampleTB{}
	s := startServer(t)
	return s.addr, func() {
		for _, f := range slices.Backward(t.cleanups) {
			f()
		}
	}
}

// exampleTB is what startServer needs of a testing.TB.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (t *exampleTB) Helper()                           {}
func (t *exampleTB) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *exampleTB) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (t *exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (s *server) port() string { return portOf(s.addr) }

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
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
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		err := s.check(client)
		if err == nil {
			s.hasRun = true
			return
		}
		if !s.hasRun && strings.Contains(s.log(), "Address already in use") { // Another process was faster.
			s.kill()
			must(s.t, os.Remove(filepath.Join(s.dir, "log")))
			s.addr = freeAddr(s.t)
			s.start()
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("redis-server %s: %v\n%s", strings.Join(args, " "), err, s.log())
		}
	}
}

// check returns an error unless this very server answers: another process may have its port.
func (s *server) check(client *redis.Client) error {
	info, err := client.Info(context.Background(), "server").Result()
	if err != nil {
		return err
	}
	if id := fmt.Sprintf("process_id:%d\r\n", s.cmd.Process.Pid); !strings.Contains(info, id) {
		return errors.New("another server answers")
	}
	return nil
}

func (s *server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(text)
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

var discard = slog.New(slog.DiscardHandler)

// newTestQueue returns a queue that is shut down with the test. It is named "test" and logs nothing unless
// config says otherwise.
func newTestQueue(t testing.TB, client redis.UniversalClient, config Config[string]) *Queue[string] {
	t.Helper()
	config.Name, config.Logger = cmp.Or(config.Name, "test"), cmp.Or(config.Logger, discard)
	q, err := New(context.Background(), client, config)
	must(t, err)
	t.Cleanup(func() { endQueue(t, q) })
	return q
}

// twoReplicas starts a server and two queues on it.
func twoReplicas(t testing.TB, config Config[string]) (*server, *Queue[string], *Queue[string]) {
	s := startServer(t)
	return s, newTestQueue(t, s.client(), config), newTestQueue(t, s.client(), config)
}

// oneFaulty is twoReplicas whose first one has a client that fails when it should.
func oneFaulty(t testing.TB, config Config[string]) (*server, *faulty, *Queue[string], *Queue[string]) {
	s := startServer(t)
	client, f := s.faultyClient()
	return s, f, newTestQueue(t, client, config), newTestQueue(t, s.client(), config)
}

// complete returns what New makes of config, with the name "test" and no logs.
func complete(t testing.TB, config Config[string]) Config[string] {
	config.Name, config.Logger = "test", discard
	must(t, config.complete())
	return config
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

// wantHeld checks that the lease of a key lives.
func wantHeld(t testing.TB, q *Queue[string], key string) {
	t.Helper()
	if !q.holdsForTest(key) {
		t.Errorf("the lease of %s is lost", key)
	}
}

// flush waits until the server has all that q was asked for.
func flush(t testing.TB, q *Queue[string]) {
	t.Helper()
	must(t, q.Flush(within(t, time.Minute)))
}

func addAll(q *Queue[string], keys ...string) {
	for _, key := range keys {
		q.Add(key)
	}
}

// addAndGet makes a worker of q hold the key.
func addAndGet(t testing.TB, q *Queue[string], key string) {
	t.Helper()
	q.Add(key)
	mustGet(t, q, key)
}

// getEach gets each of the keys once, and nothing else.
func getEach(t testing.TB, q *Queue[string], keys ...string) {
	t.Helper()
	left := make(map[string]bool)
	for _, key := range keys {
		left[key] = true
	}
	for len(left) > 0 {
		key, err := q.GetContext(within(t, 20*time.Second))
		if err != nil || !left[key] {
			t.Fatalf("GetContext() = %q, %v; %d keys are left", key, err, len(left))
		}
		delete(left, key)
		q.Done(key)
	}
}

// getNothing checks that no key comes within that time.
func getNothing(t testing.TB, q *Queue[string], d time.Duration) {
	t.Helper()
	if key, err := q.GetContext(within(t, d)); err == nil {
		t.Errorf("got %q", key)
	}
}

// wantNoKeys checks that no key of the queue is in any state.
func wantNoKeys(t testing.TB, q *Queue[string]) {
	t.Helper()
	if st := freshStats(t, q); st.Queued+st.Processing+st.Again+st.Waiting > 0 {
		t.Errorf("Stats() = %+v, want no keys", st)
	}
}

func endQueue[T comparable](t testing.TB, q *Queue[T]) {
	q.ShutDown()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		select {
		case <-q.ended:
			return
		default:
		}
		if held(q) > 0 {
			return
		}
	}
	t.Errorf("the queue has not ended a minute after ShutDown: %+v", shared(q))
}

// giveUp makes the server give key up. If the server does not answer, it does so later.
func giveUp[T comparable](q *Queue[T], key T, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, _ = q.Fail(ctx, key, workqueue.Failure{Err: err, Terminal: true})
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// withoutServer returns a queue for tests that do themselves what its goroutines would do.
func withoutServer(t testing.TB) *Queue[string] {
	t.Helper()
	return newQueue(nil, complete(t, Config[string]{}), batchScript)
}

// handleWhileAsleep calls add while a getter of q, and no other getter, sleeps. It returns when q has got and
// handled the key.
func handleWhileAsleep(t testing.TB, s *server, q *Queue[string], key string, add func()) {
	t.Helper()
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		mustGet(t, q, key)
		q.Done(key)
	}()
	waitForSleepers(t, s.client(), 1)
	add()
	<-handled
}

// mustGet gets a key within less than the poll interval of the tests of wake-ups.
func mustGet(t testing.TB, q *Queue[string], want string) {
	t.Helper()
	key, err := q.GetContext(within(t, 8*time.Second))
	if err != nil || key != want {
		t.Fatalf("GetContext() = %q, %v, want %q", key, err, want)
	}
}

// fenceOf returns the fence of a key that a worker of q holds.
func fenceOf(q *Queue[string], key string) int64 {
	ctx, release := q.Lease(context.Background(), key)
	defer release()
	fence, _ := Fence(ctx)
	return fence
}

// refresh waits for a batch of each shard that is built after the call, and so brings news of the queue. The
// batch has a question whose answer is of no interest.
func (q *Queue[T]) refresh(ctx context.Context) {
	for err := error(errAnswerLost); errors.Is(err, errAnswerLost); {
		results := make(chan error, len(q.shards))
		q.mu.Lock()
		for _, s := range q.shards {
			if q.mu.ending.over {
				results <- nil
				continue
			}
			o := newOp(codeNumRequeues, "refresh")
			o.onResult = func(_ opResult, err error) { results <- err }
			s.allCounts = true
			s.putLocked(o)
		}
		q.mu.Unlock()
		err = nil
		for range q.shards {
			err = errors.Join(err, q.wait(ctx, results))
		}
	}
}

// freshStats is Stats with the server's answer to a call that begins now.
func freshStats[T comparable](t testing.TB, q *Queue[T]) workqueue.Stats {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	q.refresh(ctx)
	must(t, ctx.Err())
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.statsLocked(time.Now())
}

// shared returns what Stats has in Shared, and does not make the queue ask the server.
func shared[T comparable](q *Queue[T]) *leasing.Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return leasing.StatsOf(q.statsLocked(time.Now()))
}

// held returns how many keys the workers of q hold.
func held[T comparable](q *Queue[T]) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.held)
}

// loggedTo returns a logger that calls f with each error that a queue logs.
func loggedTo(f func(error)) *slog.Logger { return slog.New(errorHandler{slog.DiscardHandler, f}) }

type errorHandler struct {
	slog.Handler
	f func(error)
}

func (h errorHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h errorHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h errorHandler) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			h.f(err)
		}
		return true
	})
	return nil
}

// failuresOf is NumRequeues that waits for the server.
func failuresOf(t testing.TB, q *Queue[string], key string) (n int) {
	t.Helper()
	eventually(t, time.Minute, func() (err error) {
		n, _, err = q.askFailures(context.Background(), key)
		return err
	})
	return n
}

// noBackoff makes each failure count, but for several in one batch: its delays have passed at once.
var noBackoff = workqueue.BackoffConfig[string]{Base: 1, Max: 1}

func wantFailures(t testing.TB, q *Queue[string], key string, want int) {
	t.Helper()
	if n := failuresOf(t, q, key); n != want {
		t.Errorf("%d failures of %s are counted, want %d", n, key, want)
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

// fill makes the server's memory full.
func (s *server) fill() {
	s.t.Helper()
	must(s.t, s.client().Set(context.Background(), "ballast", strings.Repeat("x", 10<<20), 0).Err())
	s.limitMemory("3mb")
}

// limitMemory sets how much the server may have, without a bound if that is 0.
func (s *server) limitMemory(to string) {
	s.t.Helper()
	must(s.t, s.client().ConfigSet(context.Background(), "maxmemory", to).Err())
}

// askFailures asks the server, for up to a second, how many failures of item are counted, and what is left of
// the delay after the last one.
func (q *Queue[T]) askFailures(ctx context.Context, item T) (failures int, left time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	encoded, _ := q.locate(item)
	results, err := q.ask(ctx, codeNumRequeues, encoded)
	return results[0].n, results[0].left, err
}
