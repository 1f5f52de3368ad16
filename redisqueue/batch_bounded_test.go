package redisqueue

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// cpuMeter is a hook of a client that measures how long the server's main thread computes for each script.
// Unlike the wall time of SLOWLOG, that does not depend on what else the machine does. It runs one script at
// a time. A figure includes what the server does beside the script: reading its arguments, sending its reply,
// and its periodic work.
type cpuMeter struct {
	t   testing.TB
	pid int

	mu      sync.Mutex
	calls   int
	long    int // those above twice the bound
	longest time.Duration
	args    []any // of the longest
	sum     time.Duration
}

// meter returns a client of the server and its meter.
func (s *server) meter() (*redis.Client, *cpuMeter) {
	client := newClient(s.t, &redis.Options{Addr: s.addr, ReadTimeout: time.Minute})
	m := &cpuMeter{t: s.t, pid: s.cmd.Process.Pid}
	client.AddHook(hook(m.process))
	return client, m
}

// cpu returns how long the main thread has computed, when it sleeps. (While it runs, the kernel's figure is
// old.)
func (m *cpuMeter) cpu() (total time.Duration) {
	m.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Microsecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", m.pid, m.pid))
		if err != nil {
			m.t.Error(err)
			return 0
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		if strings.HasPrefix(state, "S") {
			break
		}
		if time.Now().After(deadline) {
			m.t.Error("the server does not come to rest")
			return 0
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", m.pid, m.pid))
	if err != nil {
		m.t.Error(err)
	}
	var nanos int64
	_, _ = fmt.Sscan(string(text), &nanos)
	return time.Duration(nanos)
}

func (m *cpuMeter) process(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		before := m.cpu()
		err := next(ctx, cmd)
		d := m.cpu() - before
		m.calls++
		if d > 2*bound { // A core that is shared computes half as fast.
			m.long++
		}
		m.sum += d
		if d > m.longest {
			m.longest, m.args = d, cmd.Args()
		}
		return err
	}
}

// bound is how long a call may keep the server busy.
const bound = 5 * time.Millisecond

// check reports what was measured since the last check. On a busy machine a call now and then takes longer
// than it computes: the caches are cold, and the kernel and the host count roughly. With a load of 11 on 2
// cores one call of 10,000 took 13 ms. Work without a bound shows nevertheless: a call that takes back all
// 20,000 keys of a dead replica at once needs about 150 ms.
func (m *cpuMeter) check(what string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.t.Logf("%s: %d calls, each %v of the server's CPU, the longest %v", what, m.calls,
		(m.sum / time.Duration(max(m.calls, 1))).Round(time.Microsecond), m.longest)
	if m.long > 1+m.calls/10 || m.longest > 20*bound {
		m.t.Errorf("%s: %d of %d calls take more than twice %v of the server's CPU, one takes %v: %.30q",
			what, m.long, m.calls, bound, m.longest, m.args)
	}
	m.calls, m.long, m.longest, m.args, m.sum = 0, 0, 0, nil, 0
}

// fill puts n keys into a sorted set or a list of the server, faster than a queue does.
func fill(t testing.TB, client *redis.Client, n int, command func(key string, number int) []any) {
	t.Helper()
	ctx := context.Background()
	for first := 0; first < n; first += 1000 {
		pipe := client.Pipeline()
		for i := first; i < min(first+1000, n); i++ {
			pipe.Do(ctx, command(fmt.Sprintf("order/%d", i), i)...)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A batch does a part of the work that has piled up: due keys, those of a dead replica, old failures. The next
// ones do the rest.
func TestWorkIsDoneInSteps(t *testing.T) {
	const many = 1000
	client := startServer(t).client()
	names := newKeyNames("test", 0).shard
	r := rawSession{t: t, client: client, s: batchScript, id: "aaaaaaaaaaa", lease: time.Hour}
	number := 0
	// step sends an empty batch, and returns the numbers of the queue behind it.
	step := func() Counts {
		number++
		reply, err := parseReply(r.send(number, 0))
		must(t, err)
		return reply.counts
	}
	step()
	// inSteps checks that batches of at most 192 keys bring n to 0.
	inSteps := func(what string, n func() int) {
		t.Helper()
		for before := n(); before > 0; {
			step()
			after := n()
			if after >= before || before-after > 192 {
				t.Fatalf("%s: %d of %d keys are left", what, after, before)
			}
			before = after
		}
	}
	card := func(set string) func() int {
		return func() int { return int(client.ZCard(t.Context(), set).Val()) - 1 } // without the filler
	}
	past := time.Now().UnixMicro()
	fill(t, client, many, func(key string, i int) []any { return []any{"ZADD", names[3], past - int64(i), key} })
	inSteps("due", card(names[3]))
	dead := r
	dead.id = "bbbbbbbbbbb"
	for i := range many / maxWant {
		dead.send(i+1, maxWant)
	}
	must(t, client.ZAdd(t.Context(), names[6], redis.Z{Member: dead.id}).Err()) // Its lease ends.
	inSteps("held by a dead replica", card(names[7]))
	fill(t, client, many, func(key string, i int) []any { return []any{"ZADD", names[5], i, key} })
	r.forget = time.Hour
	inSteps("failures", card(names[5]))
	if n := step().Queued; n != many {
		t.Errorf("%d keys are queued, want %d", n, many)
	}
}

// A whole batch is bounded: hundreds of Dones, adds and hand-outs at once, of short, long and very long
// keys, and so is the reply to it that the server keeps.
func TestBoundedBatch(t *testing.T) {
	for _, length := range []int{13, 1000, 100_000} {
		s := startServer(t)
		client, meter := s.meter()
		q := newTestQueue(t, client, Config[string]{})
		keys := 3 * maxWork
		if length > 10_000 {
			keys = 100
		}
		var all sync.WaitGroup
		ctx := within(t, 5*time.Minute)
		for i := range keys {
			q.Add(fmt.Sprintf("%0*d", length, i))
		}
		for range min(keys, maxWork) {
			all.Go(func() {
				for range 4 {
					key, err := q.GetContext(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					q.Add(key)
					q.Done(key)
				}
			})
		}
		all.Wait()
		must(t, q.Flush(ctx))
		meter.check(fmt.Sprintf("keys of %d bytes", length))
		replies, err := s.client().HVals(ctx, q.shards[0].names.shard[9]).Result()
		must(t, err)
		for _, reply := range replies {
			if len(reply) > 200_000 {
				t.Errorf("keys of %d bytes: the server keeps a reply of %d", length, len(reply))
			}
		}
	}
}
