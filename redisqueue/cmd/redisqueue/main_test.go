package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/redisqueue"
)

type order struct {
	Shop   string
	Number int
}

// The commands show and change a queue with keys of a type that they do not know.
func TestCommands(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	q := newQueue(t, server.client, redisqueue.Config[order]{Shards: 2})
	command := queueAt(t, server.addr)
	for i := range 3 {
		q.Add(order{"a", i})
	}
	q.AddAfter(order{"later", 1}, 90*time.Minute)
	giveUp(q, order{"bad", 1}, errors.New("the card was declined"))
	must(t, q.Flush(t.Context()))

	command("queues").prints(t, "orders\n")
	command("stats").prints(t, "queued      3, the oldest for", "waiting     1", "given up    1", "2 shards, keys: {Shop string, Number int}")
	command("ls").prints(t, `{"Shop":"a","Number":1}`, `{"Shop":"later","Number":1}`, "(the card was declined)", "in 1h")
	command("show", `{"Shop":"a","Number":1}`).prints(t, "state       queued")
	command("show", `{"Shop":"bad","Number":1}`).prints(t, "not in the queue", "declined", "after 1 attempts")
	command("rm", `{"Shop":"a","Number":1}`).prints(t, "removed: 1\n")
	command("retry", "-all").prints(t, "queued again: 1\n")
	command("stats", "-json").prints(t, `"queued":3`)
	command("pause").prints(t)
	command("stats").prints(t, "paused      yes, until somebody resumes it, by ")
	command("pause", "-for", "1h").prints(t)
	command("resume").prints(t)
	command("stats").prints(t, "paused      no")
	command("-h").prints(t, "retry KEY", "-timeout", "Exit codes")
	execute(t, nil).fails(t, 2, "which command")
	older := server.client.HSet(t.Context(), "workqueue:{older/0}:meta", "description", "format 1, 1 shards, keys: string")
	must(t, older.Err())
	for _, wrong := range []struct {
		code int
		want string
		args []string
	}{
		{1, `there is no such key: {"Shop":"a","Number":1}`, []string{"rm", `{"Shop":"a","Number":1}`}},
		{1, "there is no such key: -x, and 1 more", []string{"retry", "--", "-x", "y", "-x"}},
		{1, "knows nothing of nowhere", []string{"show", "nowhere"}},
		{1, "no such queue", []string{"-queue", "other", "stats"}},
		{2, "there is no command", []string{"frobnicate"}},
		{2, "there is no state", []string{"ls", "lost"}},
		{2, "add -yes", []string{"purge"}},
		{2, "add -yes", []string{"drop", "-all"}},
		{2, "has no arguments", []string{"stats", "orders"}},
		{2, "flag provided but", []string{"stats", "-frobnicate"}},
		{2, "Name it with -queue", []string{"-queue", "", "stats"}},
		{2, "retry needs keys, or -all", []string{"retry"}},
		{2, "drop has no arguments here", []string{"drop", "-all", "-yes", "x"}},
		{2, "-all is not for rm", []string{"rm", "-all", "x"}},
		{2, "-after is not for rm", []string{"rm", "-after", "1s", "x"}},
		{2, "-for is not for resume", []string{"resume", "-for", "1h"}},
		{2, "must not be negative", []string{"pause", "-for", "-1h"}},
		{2, "must not be negative", []string{"ls", "-n", "-1"}},
		{2, "-timeout must be", []string{"stats", "-timeout", "0"}},
		{2, "needs keys", []string{"add"}},
		{3, "go run github.com/keyedqueue/workqueue/redisqueue/cmd/redisqueue", []string{"-queue", "older", "stats"}},
	} {
		r := command(wrong.args...)
		if !strings.Contains(r.errors, wrong.want) || r.code != wrong.code {
			t.Errorf("%q: exit code %d, want %d and %q: %s", wrong.args, r.code, wrong.code, wrong.want, r.errors)
		}
	}
	admin, err := redisqueue.Attach(t.Context(), server.client, "orders")
	must(t, err)
	command("purge", "-yes").prints(t)
	if n, err := admin.Counts(t.Context()); err != nil || n.Queued+n.Waiting != 0 {
		t.Errorf("after purge: %+v, %v", n, err)
	}
}

// A replica of the server that is read-only shows everything, and changes nothing.
func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	master := startRedis(t, nil)
	q := newQueue(t, master.client, redisqueue.Config[string]{})
	must(t, q.AddContext(t.Context(), "a"))
	giveUp(q, "bad", errors.New("declined"))
	must(t, q.Flush(t.Context()))
	replica := startRedis(t, nil, "--replicaof", "127.0.0.1", freePort(t)) // There is no such master.
	command := queueAt(t, replica.addr)
	command("stats").fails(t, 1, "no such queue")
	must(t, replica.client.Do(t.Context(), "replicaof", "127.0.0.1", master.port).Err())
	eventually(t, func() error {
		role, err := replica.client.Do(t.Context(), "role").Slice()
		if err == nil && role[3] != "connected" {
			err = errors.New("not replicated")
		}
		return err
	})
	command("queues").prints(t, "orders")
	command("stats").prints(t, "queued      1", "given up    1")
	command("ls").prints(t, "  a\n", "bad  (declined)")
	command("show", "bad").prints(t, "declined")
	for _, args := range [][]string{{"add", "b"}, {"pause"}, {"resume"}, {"purge", "-yes"}} {
		if r := command(append(args, "-timeout", "1m")...); r.code != 3 || !strings.Contains(r.errors, "READONLY") || r.took > 20*time.Second {
			t.Errorf("%q: exit code %d after %v: %s%s", args, r.code, r.took, r.out, r.errors)
		}
	}
	for _, args := range [][]string{{"retry", "bad"}, {"retry", "-all"}, {"drop", "bad"}, {"rm", "a"}} {
		if r := command(append(args, "-timeout", "1m")...); r.code != 3 || !strings.Contains(r.errors, "READONLY") || !strings.Contains(r.out, ": 0") || r.took > 20*time.Second {
			t.Errorf("%q: exit code %d after %v: %s%s", args, r.code, r.took, r.out, r.errors)
		}
	}
}

// A server whose memory is full shows everything. What frees memory succeeds, and an add fails.
func TestFullServer(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	q := newQueue(t, server.client, redisqueue.Config[string]{})
	must(t, q.AddContext(t.Context(), "a"))
	giveUp(q, "bad", errors.New("declined"))
	must(t, q.Flush(t.Context()))
	must(t, server.client.Set(t.Context(), "ballast", strings.Repeat("x", 10<<20), 0).Err())
	must(t, server.client.ConfigSet(t.Context(), "maxmemory", "3mb").Err())
	command := queueAt(t, server.addr)
	command("stats").prints(t, "queued      1", "given up    1")
	command("ls").prints(t, "  a\n", "bad  (declined)")
	r := command("add", "b", "-timeout", "2s")
	if r.code != 3 || !strings.Contains(r.errors, "memory is full") || !strings.Contains(r.out, "added: 0") || r.took > 20*time.Second {
		t.Errorf("add: exit code %d after %v: %s%s", r.code, r.took, r.out, r.errors)
	}
	command("pause").prints(t)
	command("rm", "a").prints(t, "removed: 1")
	command("drop", "bad").prints(t, "dropped: 1")
	must(t, server.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	command("add", "b").prints(t, "added: 1")
}

// rm says that it has removed a key that was given up.
func TestRemoveWhereverItIs(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	q := newQueue(t, server.client, redisqueue.Config[string]{})
	for _, key := range []string{"bad", "worse", "worst", "both"} {
		giveUp(q, key, errors.New("declined"))
	}
	must(t, q.AddContext(t.Context(), "both"))
	command := queueAt(t, server.addr)
	command("rm", "bad", "both").prints(t, "removed: 2\n")
	command("drop", "worse").prints(t, "dropped: 1\n")
	command("ls", "givenup").prints(t, "worst")
	command("retry", "worst").prints(t, "queued again: 1\n")
	command("stats").prints(t, "queued      1", "given up    0")
	giveUp(q, "bad", errors.New("declined"))
	must(t, q.Flush(t.Context()))
	command("drop", "-all", "-yes").prints(t, "dropped: 1\n")
	r := command("drop", "worst")
	if r.code != 1 || !strings.Contains(r.errors, "worst") {
		t.Errorf("drop of what is gone: exit code %d: %s%s", r.code, r.out, r.errors)
	}
}

// retry -all of many keys on a server that is five milliseconds away makes a call for many keys, and says how many were retried
// also when it is interrupted.
func TestRetryAllFromAfar(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	q := newQueue(t, server.client, redisqueue.Config[string]{})
	giveUpAll := func() {
		t.Helper()
		workqueue.ParallelizeUntil(t.Context(), 64, 10_000, func(i int) {
			giveUp(q, fmt.Sprintf("order/%d", i), errors.New("declined"))
		})
		must(t, q.Flush(t.Context()))
	}
	giveUpAll()
	command := queueAt(t, startProxy(t, server.addr, 5*time.Millisecond))
	r := command("retry", "-all").prints(t, "queued again: 10000\n")
	t.Logf("10,000 keys, 5 ms away: %v", r.took)
	if calls := r.took / (5 * time.Millisecond); calls > 5000 {
		t.Errorf("%v is the time of %d calls", r.took, calls)
	}
	command("stats").prints(t, "queued      10000", "given up    0")

	giveUpAll()
	admin, err := redisqueue.Attach(t.Context(), server.client, "orders")
	must(t, err)
	go func() {
		for {
			n, err := admin.Counts(context.Background())
			if err != nil || n.GivenUp < 9000 {
				_ = server.process.Signal(syscall.SIGSTOP)
				return
			}
		}
	}()
	r = queueAt(t, startProxy(t, server.addr, 50*time.Millisecond))("retry", "-all", "-timeout", "2s")
	must(t, server.process.Signal(syscall.SIGCONT))
	var done int
	if _, err := fmt.Sscanf(r.out, "queued again: %d", &done); err != nil || r.code != 3 || !strings.Contains(r.errors, "has not answered for 2s") {
		t.Fatalf("interrupted: exit code %d: %v: %s%s", r.code, err, r.out, r.errors)
	}
	n, err := admin.Counts(t.Context())
	must(t, err)
	// What was under way when the server was stopped may be done.
	if left := 10_000 - done; done == 0 || left < n.GivenUp || left > n.GivenUp+512 {
		t.Errorf("%d keys were retried, it says, and %d are left", done, n.GivenUp)
	}
}

// What the server has cannot change the terminal, and is shown so that a shell reads the same.
func TestUnprintable(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	const name, key = "evil\x1b[2J", "a\x1b[31m\u202eb\xff'\\\n\u009b"
	config := redisqueue.Config[string]{Name: name, Logger: slog.New(slog.DiscardHandler)}
	q, err := redisqueue.New(t.Context(), server.client, config)
	must(t, err)
	defer q.ShutDown()
	giveUp(q, key, errors.New("red \x1b[31m and \u009b\nmore"))
	q.AddCause(key, workqueue.Cause{Reason: "cause \x1b]0;title\a"})
	must(t, q.Flush(t.Context()))
	must(t, server.client.HSet(t.Context(), "workqueue:{"+name+"/0}:names", "x", "y").Err())
	call := func(args ...string) result {
		return execute(t, nil, append([]string{"-url", "redis://" + server.addr, "-queue", name}, args...)...)
	}
	for _, args := range [][]string{{"queues"}, {"stats"}, {"ls"}, {"show", key}, {"show", "nothing\x1b[1m"}, {"rm", "nothing\x1b[1m"}, {"add", key}, {"stats", "-queue", "no\x1b[1m"}} {
		r := call(args...)
		for _, line := range strings.Split(r.out+r.errors, "\n") {
			if !isPlain(line) {
				t.Errorf("%q prints %q", args, line)
			}
		}
	}
	const inShell = `$'a\x1b[31m\u202eb\xff\'\\\n\u009b'`
	call("ls", "givenup").prints(t, inShell)
	out, err := shell(t, "export LC_ALL=C.UTF-8; printf %s "+inShell)
	if err != nil || out != key {
		t.Errorf("a shell reads %q, %v", out, err)
	}
	var row struct{ Key string }
	r := call("ls", "givenup", "-json").prints(t)
	if err := json.Unmarshal([]byte(r.out), &row); err != nil || row.Key != inShell {
		t.Errorf("%v: %s", err, r.out)
	}
}

// ls prints as many keys as it should, and says if there are more.
func TestListLimit(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	q := newQueue(t, server.client, redisqueue.Config[string]{Shards: 2})
	for i := range 1500 {
		q.Add(fmt.Sprintf("order/%d", i))
	}
	must(t, q.Flush(t.Context()))
	command := queueAt(t, server.addr)
	for limit, more := range map[string]bool{"20": true, "1000": true, "1499": true, "1500": false, "0": false} {
		for _, format := range []string{"-json=false", "-json"} {
			r := command("ls", "queued", "-n", limit, format)
			if r.code != 0 || (r.errors != "") != more || more && !strings.Contains(r.errors, "-n 0") {
				t.Errorf("ls -n %s: exit code %d: %s", limit, r.code, r.errors)
			}
			if n := strings.Count(r.out, "order/"); fmt.Sprint(n) != limit && (limit != "0" || n != 1500) {
				t.Errorf("ls -n %s prints %d keys", limit, n)
			}
			for line := range strings.Lines(r.out) {
				if format == "-json" && !json.Valid([]byte(line)) {
					t.Errorf("ls -n %s -json: %s", limit, line)
				}
			}
		}
	}
	all := command("ls", "queued", "-n", "1500", "-json")
	if r := command("ls", "queued", "-n", fmt.Sprint(math.MaxInt), "-json"); r.out != all.out {
		t.Error("ls with the largest limit prints something else, or in another order")
	}
	command("ls", "waiting").fails(t, 0, "no such keys")
	// The timeout is for each answer.
	r := queueAt(t, startProxy(t, server.addr, 400*time.Millisecond))("ls", "queued", "-n", "0", "-timeout", "3s").prints(t)
	if n := strings.Count(r.out, "order/"); n != 1500 || r.took < 3*time.Second {
		t.Errorf("ls -n 0 from afar prints %d keys in %v", n, r.took)
	}
}

// show has the holder of a key, its fence, priority, failures and causes.
func TestShow(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	q := newQueue(t, server.client, redisqueue.Config[string]{})
	command := queueAt(t, server.addr)
	q.AddCause("held", workqueue.Cause{Reason: "the order has changed", TraceParent: "00-1-2-03"})
	q.AddWithPriority("held", 3, 0)
	q.AddRateLimited("failing")
	must(t, q.Flush(t.Context()))
	key := ""
	for key != "held" {
		var err error
		key, err = q.GetContext(t.Context())
		must(t, err)
	}
	must(t, q.AddContext(t.Context(), "held"))
	ctx, release := q.Lease(t.Context(), "held")
	defer release()
	fence, _ := redisqueue.Fence(ctx)
	command("show", "held").prints(t, "processing, and added again", "holder", fmt.Sprintf("fence       %d\n", fence), "priority    3", "the order has changed (trace 00-1-2-03)")
	command("ls", "processing").prints(t, "processing, again", "HOLDER", "  held\n")
	r := command("show", "held", "-json").prints(t)
	var row map[string]any
	must(t, json.Unmarshal([]byte(r.out), &row))
	_, isDue := row["due"]
	if row["state"] != "processing" || row["again"] != true || isDue || row["given_up"] != nil || row["fence"] != float64(fence) ||
		row["holder"] == "" {
		t.Errorf("%s", r.out)
	}
	command("stats", "-json").prints(t, `"oldest_queued_ns"`)
	q.Done("held")
}

// add queues keys, now or later, as programs write them.
func TestAdd(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	q := newQueue(t, server.client, redisqueue.Config[order]{})
	command := queueAt(t, server.addr)
	command("add", `{"Shop":"a","Number":1}`, `{"Shop":"a","Number":2}`).prints(t, "added: 2")
	command("add", `{"Shop":"a","Number":3}`, "-after", "1h").prints(t, "added: 1")
	command("stats").prints(t, "queued      2", "waiting     1")
	if key, err := q.GetContext(t.Context()); err != nil || key != (order{"a", 1}) {
		t.Errorf("GetContext() = %v, %v", key, err)
	}
	q.Done(order{"a", 1})
}

// A key of a worker that hangs is taken from it.
func TestRelease(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	q := newQueue(t, server.client, redisqueue.Config[string]{})
	command := queueAt(t, server.addr)
	must(t, q.AddContext(t.Context(), "x"))
	key, err := q.GetContext(t.Context())
	must(t, err)
	command("release", "x").prints(t, "released: 1")
	command("stats").prints(t, "queued      1", "processing  0")
	if r := command("release", "x"); r.code != 1 || !strings.Contains(r.errors, "there is no such key: x") {
		t.Errorf("exit code %d: %s", r.code, r.errors)
	}
	q.Done(key)
}

// 40 calls print nothing but the answer: the client is not closed while the queue still uses it.
func TestNoNoise(t *testing.T) {
	t.Parallel()
	server := startRedis(t, nil)
	newQueue(t, server.client, redisqueue.Config[string]{})
	command := queueAt(t, server.addr)
	for range 20 {
		command("stats").prints(t)
		command("add", "a").prints(t, "added: 1")
	}
}
