package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/redisqueue"
	"github.com/redis/go-redis/v9"
)

// Neither -h nor any error prints the password, wherever it stands in a URL that may be malformed.
func TestPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://user:hunter2@127.0.0.1:1",
		"redis://:hunter2@127.0.0.1:1/0?dial_timeout=1s&sentinel_password=hunter2",
		"redis://:hun/ter2hunter2@127.0.0.1:1",
		"redis://:%hunter2@127.0.0.1:1",
		"redis://u?hunter2@127.0.0.1:1",
		"redis://u#hunter2@127.0.0.1:1",
		"redis://127.0.0.1:hunter2",
		"redis://127.0.0.1:1/hunter2",
		"redis://127.0.0.1:1/?hunter2=1",
		"hunter2@127.0.0.1",
		"hunter2://127.0.0.1",
	} {
		for _, args := range [][]string{{"-h"}, {"queues"}, {"stats"}, {}, {"queues", "-sentinel", "m"},
			{"queues", "-cluster"}, {"queues", "-frob"}} {
			r := execute(t, []string{"REDIS_URL=" + url}, append(args, "-timeout", "300ms")...)
			if strings.Contains(r.out+r.errors, "hunter2") {
				t.Errorf("%s %q prints the password:\n%s%s", url, args, r.out, r.errors)
			}
			if wantUsage := len(args) > 0 && args[0] == "-h"; (r.code == 0) != wantUsage || r.code == 2 &&
				!strings.Contains(r.out+r.errors, "redisqueue -h") {
				t.Errorf("%s %q: exit code %d\n%s", url, args, r.code, r.errors)
			}
		}
		execute(t, nil, "-url", url, "-h").prints(t, "REDIS_URL", "127.0.0.1:6379")
	}
}

// A server that is down, or does not answer, is an error in time.
func TestTimeout(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	newQueue(t, server.client, redisqueue.Config[string]{}).Add("a")
	command := queueAt(t, server.addr)
	command("stats").prints(t)
	must(t, server.process.Signal(syscall.SIGSTOP))
	for _, args := range [][]string{
		{"queues"}, {"stats"}, {"ls"}, {"ls", "givenup"}, {"show", "a"}, {"add", "b"},
		{"retry", "a"}, {"retry", "-all"},
		{"drop", "a"}, {"drop", "-all", "-yes"}, {"rm", "a"}, {"pause"}, {"resume"}, {"purge", "-yes"},
	} {
		r := command(append(args, "-timeout", "300ms")...)
		if r.took > 20*time.Second || r.code != 3 || !strings.Contains(r.errors,
			"the server has not answered for 300ms") {
			t.Errorf("%q: exit code %d after %v: %s", args, r.code, r.took, r.errors)
		}
		if strings.ContainsAny(r.out, "123456789") {
			t.Errorf("%q prints numbers that it does not know: %s", args, r.out)
		}
	}
	must(t, server.process.Signal(syscall.SIGCONT))
	command("stats").prints(t)
	execute(t, nil, "-url", "redis://127.0.0.1:"+freePort(t), "queues").fails(t, 3, "connection refused")

	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	must(t, err)
	defer silent.Close()
	for _, args := range [][]string{{"-url", "redis://"}, {"-url", "rediss://"},
		{"-sentinel", "m", "-url", "redis://"}, {"-cluster", "-url", "redis://"}} {
		args[len(args)-1] += silent.Addr().String()
		r := execute(t, nil, append(args, "queues", "-timeout", "300ms")...).fails(t, 3,
			"has not answered for 300ms")
		if r.took > 20*time.Second {
			t.Errorf("%q gives up after %v", args, r.took)
		}
	}
}

// A server that answers at first, and then no more, is an error, and never an empty answer.
func TestNoAnswerHalfway(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	q := newQueue(t, server.client, redisqueue.Config[string]{})
	must(t, q.AddContext(t.Context(), "a"))
	giveUp(q, "a", nil)
	must(t, q.Flush(t.Context()))
	command := queueAt(t, startProxy(t, server.addr, 0, "eval", "scan", "unlink"))
	for _, args := range [][]string{
		{"queues"}, {"stats"}, {"ls"}, {"ls", "queued"}, {"ls", "givenup", "-n", "0"},
		{"show", "a"}, {"show", "b"},
		{"add", "b"}, {"retry", "a"}, {"retry", "-all"}, {"drop", "a"}, {"drop", "-all", "-yes"}, {"rm", "a"},
		{"rm", "b"}, {"pause"},
		{"resume"}, {"purge", "-yes"},
	} {
		r := command(append(args, "-timeout", "300ms")...)
		if r.code != 3 || !strings.Contains(r.errors, "has not answered for 300ms") || r.took > 20*time.Second {
			t.Errorf("%q: exit code %d after %v: %s", args, r.code, r.took, r.errors)
		}
		if r.out != "" && !strings.Contains(r.out, ": 0") {
			t.Errorf("%q prints what it does not know: %s", args, r.out)
		}
	}
}

// The command reaches a server that wants TLS with a client's certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	files, config := newCertificates(t)
	server := startRedis(t, config, "--tls-cert-file", files.cert, "--tls-key-file", files.key,
		"--tls-ca-cert-file", files.ca)
	newQueue(t, server.client, redisqueue.Config[string]{})
	call := func(args ...string) result {
		return execute(t, nil, append([]string{"queues", "-timeout", "30s", "-url"}, args...)...)
	}
	secure := "rediss://" + server.addr
	call(secure, "-cacert", files.ca, "-cert", files.cert, "-key", files.key).prints(t, "orders\n")
	other := strings.Replace(secure, "127.0.0.1", "localhost", 1)
	call(other, "-cacert", files.ca, "-cert", files.cert, "-key", files.key).fails(t, 3,
		"certificate is valid for queue.example")
	// "certificate required", or a reset connection if the server was quicker
	call(secure, "-cacert", files.ca).fails(t, 3, "")
	call(secure, "-cert", files.cert, "-key", files.key).fails(t, 3, "unknown authority")
	call(secure, "-cacert", files.key).fails(t, 2, "has no certificate")
	call(secure, "-cacert", "nowhere").fails(t, 2, "no such file")
	call(secure, "-key", files.key).fails(t, 2, "-cert")
	call("redis://"+server.addr, "-cacert", files.ca).fails(t, 2, "rediss://")
	must(t, server.process.Signal(syscall.SIGSTOP))
	if r := call(secure, "-cacert", files.ca, "-timeout", "500ms").fails(t, 3,
		"has not answered for 500ms"); r.took > 20*time.Second {
		t.Errorf("a stalled handshake takes %v", r.took)
	}
}

// The command asks Sentinels for the master, with a password of their own and over TLS, also when some
// Sentinels are down.
func TestSentinel(t *testing.T) {
	t.Parallel()
	files, config := newCertificates(t)
	secure := []string{"--tls-cert-file", files.cert, "--tls-key-file", files.key, "--tls-ca-cert-file",
		files.ca, "--tls-replication", "yes"}
	master := startRedis(t, config, secure...)
	newQueue(t, master.client, redisqueue.Config[string]{})
	must(t, master.client.ConfigSet(t.Context(), "requirepass", "for/master").Err())
	sentinel := startRedis(t, config, append([]string{"--sentinel"}, secure...)...)
	for _, args := range [][]any{
		{"monitor", "mymaster", "127.0.0.1", master.port, 1},
		{"set", "mymaster", "auth-pass", "for/master"},
		{"config", "set", "sentinel-pass", "for@sentinel"},
	} {
		must(t, sentinel.client.Do(t.Context(), append([]any{"sentinel"}, args...)...).Err())
	}
	must(t, sentinel.client.Do(t.Context(), "acl", "setuser", "default", "resetpass", ">for@sentinel").Err())

	url := "rediss://:for%2Fmaster@127.0.0.1:" + freePort(t) + "?addr=" + sentinel.addr +
		"&sentinel_password=for%40sentinel"
	call := func(url string, args ...string) result {
		return execute(t, []string{"REDIS_URL=" + url},
			append([]string{"-queue", "orders", "-cacert", files.ca, "-cert", files.cert, "-key", files.key},
				args...)...)
	}
	call(url, "stats", "-sentinel", "mymaster").prints(t, "queued      0")
	one := "rediss://:for%2Fmaster@" + sentinel.addr + "?sentinel_password=for%40sentinel"
	call(one, "stats", "-sentinel", "other").fails(t, 3) // It does not say that there is no such queue.
	call(url, "stats").fails(t, 2, "-cluster or -sentinel")
	call(url, "stats", "-cluster", "-sentinel", "mymaster").fails(t, 2, "exclude each other")
	call(strings.Replace(url, "for%40", "", 1), "stats", "-sentinel", "mymaster", "-timeout", "2s").fails(t, 3)
}

// The command finds the queues of all nodes of a Cluster, and the shards of one.
func TestCluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	nodes := make([]*redisServer, 3)
	for i := range nodes {
		nodes[i] = startRedis(t, nil, "--cluster-enabled", "yes", "--cluster-port", freePort(t))
		addrs = append(addrs, nodes[i].addr)
	}
	ctx := context.Background()
	for i, node := range nodes {
		must(t, node.client.ClusterAddSlotsRange(ctx, i*16384/3, (i+1)*16384/3-1).Err())
		for _, other := range nodes[:i] {
			bus, err := other.client.ConfigGet(ctx, "cluster-port").Result()
			must(t, err)
			must(t, node.client.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", other.port, bus["cluster-port"]).Err())
		}
	}
	for _, node := range nodes {
		eventually(t, func() error {
			info, err := node.client.ClusterInfo(ctx).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") ||
				!strings.Contains(info, "cluster_known_nodes:3")) {
				err = redis.ErrClosed
			}
			return err
		})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer client.Close()
	q := newQueue(t, client, redisqueue.Config[string]{Shards: 8})
	for i := range 100 {
		must(t, q.AddContext(ctx, strings.Repeat("k", i+1)))
	}
	call := func(args ...string) result {
		return execute(t, nil, append([]string{"-cluster", "-queue", "orders", "-url", "redis://" + addrs[0]},
			args...)...)
	}
	call("queues").prints(t, "orders\n")
	call("stats").prints(t, "100")
	queueAt(t, addrs[0])("stats").fails(t, 3, "MOVED")
}

// Two interrupts end the command, also while its output is not read.
func TestInterruptedTwice(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	q := newQueue(t, server.client, redisqueue.Config[string]{})
	for i := range 5000 {
		q.Add(fmt.Sprint("order/", i))
	}
	must(t, q.Flush(t.Context()))
	cmd := exec.Command(os.Args[0], "-url", "redis://"+server.addr, "-queue", "orders", "ls",
		"queued", "-n", "0")
	cmd.Env = append(os.Environ(), "WORKQUEUE_RUN_COMMAND=1")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Process.Kill()
	_, err = out.Read(make([]byte, 1))
	must(t, err)
	// The pipe is full when the command asks for no more keys.
	stable, before := 0, ""
	eventually(t, func() error {
		calls, err := server.client.Info(t.Context(), "commandstats").Result()
		must(t, err)
		_, calls, _ = strings.Cut(calls, "cmdstat_evalsha_ro:")
		if calls, _, _ = strings.Cut(calls, ","); calls != before {
			stable, before = 0, calls
		}
		if stable++; stable < 50 {
			return errors.New("it still asks for keys")
		}
		return nil
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = cmd.Process.Wait()
	}()
	eventually(t, func() error {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
			return nil
		default:
			return errors.New("it still runs")
		}
	})
}
