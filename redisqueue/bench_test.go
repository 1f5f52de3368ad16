package redisqueue

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkCycle adds, gets and finishes distinct keys.
func BenchmarkCycle(b *testing.B) {
	s := startServer(b)
	for _, goroutines := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			q := newTestQueue(b, s.client(), Config[string]{Name: fmt.Sprint("bench", goroutines)})
			var next atomic.Int64
			var wg sync.WaitGroup
			calls := q.Info().Calls
			for range goroutines {
				wg.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						q.Add(fmt.Sprintf("order/%d", n))
						key, _ := q.Get()
						q.Done(key)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
			b.ReportMetric(float64(q.Info().Calls-calls)/float64(b.N), "calls/key")
		})
	}
}

// BenchmarkScript measures the server's CPU for a batch that finishes, adds and hands out that many keys. With notes, another key waits
// with a priority.
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
				r.send(number, 0, "P0000000000000001z5 3600000000")
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
