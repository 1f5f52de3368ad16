package redisqueue

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

// BenchmarkCycle adds, gets and finishes distinct keys in many goroutines. In the backlog all keys are added
// before the first Get. With notes, a further key with a cause is held meanwhile.
//
// compare.sh runs it beside an older commit.
func BenchmarkCycle(b *testing.B) {
	for _, c := range []struct {
		how        string
		goroutines int
	}{{"Add", 1}, {"Add", 64}, {"Add", 512}, {"AddContext", 64}, {"backlog", 64}} {
		for _, notes := range []string{"none", "one"} {
			b.Run(fmt.Sprintf("how=%s/goroutines=%d/notes=%s", c.how, c.goroutines, notes), func(b *testing.B) {
				client := startServer(b).client()
				q := newTestQueue(b, client, Config[string]{Name: "bench"})
				if notes != "none" {
					q.AddCause("other", workqueue.Cause{Reason: "ConfigMap/default/other has changed"})
					_, _ = q.Get()
					defer q.Done("other")
				}
				// each calls f for all keys.
				each := func(f func(key string)) {
					var next atomic.Int64
					var wg sync.WaitGroup
					for range c.goroutines {
						wg.Go(func() {
							for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
								f(fmt.Sprintf("order/%07d", n))
							}
						})
					}
					wg.Wait()
				}
				add := q.Add
				if c.how == "AddContext" {
					add = func(key string) { _ = q.AddContext(context.Background(), key) }
				}
				finish := func(string) {
					key, _ := q.Get()
					q.Done(key)
				}

				calls, cpu := batches(q.client), serverCPU(b, client)
				if c.how == "backlog" {
					empty := serverInfo(b, client, "memory", "used_memory")
					each(add)
					must(b, q.Flush(context.Background()))
					full := serverInfo(b, client, "memory", "used_memory")
					b.ReportMetric((full-empty)/float64(b.N), "bytes/key")
					each(finish)
				} else {
					each(func(key string) {
						add(key)
						finish(key)
					})
				}
				must(b, q.Flush(context.Background()))
				b.ReportMetric((serverCPU(b, client)-cpu)*1e6/float64(b.N), "server-µs/key")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
				b.ReportMetric(float64(batches(q.client)-calls)/float64(b.N), "calls/key")
			})
		}
	}
}

// batches returns how many batches a server has got.
func batches(client redis.UniversalClient) (n uint64) {
	text := client.Info(context.Background(), "commandstats").Val()
	for line := range strings.Lines(text) {
		var calls uint64
		name, rest, _ := strings.Cut(line, ":")
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			_, _ = fmt.Sscanf(rest, "calls=%d", &calls)
		}
		n += calls
	}
	return n
}

// serverCPU returns how many seconds of CPU the server has used.
func serverCPU(b *testing.B, client redis.UniversalClient) float64 {
	return serverInfo(b, client, "cpu", "used_cpu_user") + serverInfo(b, client, "cpu", "used_cpu_sys")
}

// serverInfo returns a number of the server's INFO.
func serverInfo(b *testing.B, client redis.UniversalClient, section, name string) float64 {
	b.Helper()
	text, err := client.Info(context.Background(), section).Result()
	must(b, err)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			n, err := strconv.ParseFloat(value, 64)
			must(b, err)
			return n
		}
	}
	b.Fatalf("INFO %s has no %s", section, name)
	return 0
}

// BenchmarkScript measures the server's CPU for a batch that finishes, adds and hands out that many keys.
// With notes, another key has a cause.
func BenchmarkScript(b *testing.B) {
	for _, c := range []struct {
		keys  int
		notes string
	}{{1, "none"}, {40, "none"}, {40, "one"}} {
		b.Run(fmt.Sprintf("keys=%d/notes=%s", c.keys, c.notes), func(b *testing.B) {
			s, keys := startServer(b), c.keys
			client, meter := s.meter()
			r := rawSession{t: b, client: client, s: batchScript, id: "abcdefghijk", lease: time.Minute}
			number, next := 0, 0
			if c.notes != "none" {
				number++
				r.send(number, 0, "C0000000000000001zl0 1700000000000000 24 1700000000000000l00cause")
				number++
				r.send(number, 1)
			}
			var dones []string
			for b.Loop() {
				ops := dones
				for range keys {
					ops = append(ops, fmt.Sprintf("aorder/%07d", next))
					next++
				}
				number++
				reply, err := parseReply(r.send(number, keys, ops...))
				if err != nil || len(reply.keys) != keys {
					b.Fatalf("%+v, %v", reply, err)
				}
				dones = nil
				for _, key := range reply.keys {
					dones = append(dones, strings.Join([]string{"D", key.fence, key.encoded}, ""))
				}
			}
			b.ReportMetric(float64(meter.sum.Microseconds())/float64(number), "server-µs/batch")
		})
	}
}
