package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/redis/go-redis/v9"
)

// TestMain runs the command itself in the processes that redisqueueCommand starts.
func TestMain(m *testing.M) {
	if os.Getenv("WORKQUEUE_RUN_COMMAND") != "" {
		main()
		return
	}
	redis.SetLogger(silence{})
	os.Exit(m.Run())
}

// result is what a call of the command printed.
type result struct {
	out, errors string
	code        int
	took        time.Duration
}

// execute runs the command as a process, with those variables of the environment.
func execute(t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), "WORKQUEUE_RUN_COMMAND=1", "REDIS_URL="), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	if exited := new(exec.ExitError); err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode(), time.Since(began)}
}

// queueAt returns a function that runs the command for the queue "orders" of the server at that address.
func queueAt(t *testing.T, addr string) func(args ...string) result {
	return func(args ...string) result {
		t.Helper()
		return execute(t, nil, append([]string{"-url", "redis://" + addr, "-queue", "orders"}, args...)...)
	}
}

// prints checks that the command succeeds, prints each of the words, and nothing to stderr.
func (r result) prints(t *testing.T, words ...string) result {
	t.Helper()
	if r.code != 0 || r.errors != "" {
		t.Errorf("exit code %d after %v, and on stderr: %s", r.code, r.took, r.errors)
	}
	for _, word := range words {
		if !strings.Contains(r.out, word) {
			t.Errorf("it does not print %q:\n%s", word, r.out)
		}
	}
	return r
}

// fails checks that the command prints no answer, that error, and has that exit code.
func (r result) fails(t *testing.T, code int, words ...string) result {
	t.Helper()
	if r.code != code || r.out != "" {
		t.Errorf("exit code %d after %v, want %d; it prints: %s", r.code, r.took, code, r.out)
	}
	for _, word := range words {
		if !strings.Contains(r.errors, word) {
			t.Errorf("the error lacks %q: %s", word, r.errors)
		}
	}
	return r
}

// giveUp makes the server give key up.
func giveUp[T comparable](q *redisqueue.Queue[T], key T, err error) {
	_, _ = q.Fail(context.Background(), key, workqueue.Failure{Err: err, Terminal: true})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, f func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for err := f(); err != nil; err = f() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

var nextPort atomic.Int64

// freePort returns a port that no other test uses. Those that the system hands out by itself may go to a
// connection.
func freePort(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := fmt.Sprint(33000 + (int64(os.Getpid())*83+nextPort.Add(1))%9000)
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// redisServer is a server process of a test's own.
type redisServer struct {
	addr, port string
	process    *os.Process
	client     *redis.Client
}

// startRedis starts a server, or a sentinel, with those settings.
func startRedis(t testing.TB, config *tls.Config, settings ...string) *redisServer {
	t.Helper()
	binary, err := exec.LookPath(cmp.Or(os.Getenv("WORKQUEUE_REDIS_SERVER"), "redis-server"))
	if err != nil {
		t.Fatalf("%v: run tools/install-server.sh redis-server, which installs it", err)
	}
	port := freePort(t)
	listen := []string{"--port", port}
	if config != nil {
		listen = []string{"--port", "0", "--tls-port", port}
	}
	args := append(append(listen, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--loglevel", "warning"),
		settings...)
	if settings == nil || settings[0] != "--sentinel" {
		args = append(args, "--save", "")
	} else {
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		must(t, os.WriteFile(file, nil, 0o600))
		args = append([]string{file}, args...)
	}
	cmd := exec.Command(binary, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	s := &redisServer{addr: "127.0.0.1:" + port, port: port, process: cmd.Process}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s.client = redis.NewClient(&redis.Options{Addr: s.addr, TLSConfig: config, ContextTimeoutEnabled: true})
	t.Cleanup(func() { s.client.Close() })
	eventually(t, func() error {
		info, err := s.client.Info(t.Context(), "server").Result()
		if id := fmt.Sprintf("process_id:%d\r\n", cmd.Process.Pid); err == nil && !strings.Contains(info, id) {
			err = errors.New("another server answers")
		}
		return err
	})
	return s
}

// newQueue returns the queue "orders" of a program.
func newQueue[T comparable](t testing.TB, client redis.UniversalClient,
	config redisqueue.Config[T]) *redisqueue.Queue[T] {
	t.Helper()
	config.Name, config.Logger = "orders", slog.New(slog.DiscardHandler)
	q, err := redisqueue.New(t.Context(), client, config)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		q.ShutDown()
		_ = q.ShutDownContext(ctx)
	})
	return q
}

// startProxy forwards connections to a server, whose answers come that much later. Requests with one of the
// words vanish.
func startProxy(t testing.TB, target string, delay time.Duration, lost ...string) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", target)
			if err != nil {
				c.Close()
				continue
			}
			go func() {
				defer s.Close()
				for buffer := make([]byte, 1<<16); ; {
					n, err := c.Read(buffer)
					request := strings.ToLower(string(buffer[:n]))
					if slices.ContainsFunc(lost, func(word string) bool { return strings.Contains(request, word) }) {
						n = 0
					}
					if _, failed := s.Write(buffer[:n]); err != nil || failed != nil {
						return
					}
				}
			}()
			go func() {
				defer c.Close()
				for buffer := make([]byte, 1<<16); ; {
					n, err := s.Read(buffer)
					time.Sleep(delay)
					if _, failed := c.Write(buffer[:n]); err != nil || failed != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// certificates are PEM files of a CA and of a certificate for 127.0.0.1 and queue.example, for servers and
// clients.
type certificates struct{ ca, cert, key string }

func newCertificates(t testing.TB) (files certificates, config *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	issue := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		template.SerialNumber, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(time.Hour)
		if signer == nil {
			signer = key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		must(t, err)
		return der, key
	}
	name := pkix.Name{CommonName: "CA of the test"}
	ca := &x509.Certificate{Subject: name, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	caDER, caKey := issue(ca, ca, nil)
	ca, err := x509.ParseCertificate(caDER)
	must(t, err)
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, key := issue(&x509.Certificate{
		ExtKeyUsage: usages, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"queue.example"},
	}, ca, caKey)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	files = certificates{write("ca", "CERTIFICATE", caDER), write("cert", "CERTIFICATE", der),
		write("key", "PRIVATE KEY", keyDER)}
	config = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(ca)
	pair, err := tls.LoadX509KeyPair(files.cert, files.key)
	must(t, err)
	config.Certificates = []tls.Certificate{pair}
	return files, config
}

// shell returns what bash prints, which understands $'…'.
func shell(t testing.TB, script string) (string, error) {
	out, err := exec.Command("bash", "-c", script).Output()
	return string(out), err
}
