package redisqueue

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestHistoryChild is a replica of TestProcessesStoppedAndKilled, in a process of its own. It prints what its
// handlers did.
func TestHistoryChild(t *testing.T) {
	client := inChild(t)
	q := newTestQueue(t, client, Config[string]{Lease: time.Second})
	go func() { // The test closes the input to end the process.
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		q.ShutDown()
	}()
	h := newHistory(t, 0)
	h.version = func(key string) int {
		n, _ := client.Get(context.Background(), "version:"+key).Int()
		return n
	}
	// Each line in one call, so that lines stay whole.
	h.answers = func(key string, version int) {
		_, _ = os.Stdout.WriteString(fmt.Sprintln("answers", key, version))
	}
	h.handled = func(key string, did handling, version int) {
		_, _ = os.Stdout.WriteString(fmt.Sprintln("handled", key, did.fence, did.start.UnixNano(),
			did.done.UnixNano(), did.accepted, version))
	}
	var workers sync.WaitGroup
	for range 3 {
		random := rand.New(rand.NewPCG(rand.Uint64(), 0))
		workers.Go(func() { h.work(context.Background(), 0, q, random) })
	}
	workers.Wait()
	must(t, q.ShutDownContext(within(t, 10*time.Second)))
	fmt.Println("ended")
}

// Worker processes are stopped for longer than their leases and continued, and killed, at random. No key is
// with two of them at once while the first one's lease lives, fences grow, and the last version that was
// confirmed is handled.
func TestProcessesStoppedAndKilled(t *testing.T) {
	s := startServer(t)
	client := s.client()
	h := newHistory(t, 6)
	h.wrote = func(key string, version int) { client.Set(context.Background(), "version:"+key, version, 0) }
	producer := newTestQueue(t, client, Config[string]{Lease: time.Second})
	var reading sync.WaitGroup
	number := 0
	start := func() *child {
		number++
		n := number
		c := startChild(t, "TestHistoryChild", s)
		reading.Go(func() {
			for line := range c.lines {
				var key string
				var start, done int64
				var version int
				did := handling{replica: n}
				if _, err := fmt.Sscanf(line, "answers %s %d", &key, &version); err == nil {
					h.see(key, version)
				}
				if _, err := fmt.Sscanf(line, "handled %s %d %d %d %t %d", &key, &did.fence, &start, &done,
					&did.accepted, &version); err == nil {
					did.start, did.done = time.Unix(0, start), time.Unix(0, done)
					h.record(key, did, version)
				}
			}
		})
		return c
	}
	children := []*child{start(), start(), start()}
	var producing sync.WaitGroup
	producing.Go(func() { h.produce(context.Background(), producer, rand.New(rand.NewPCG(1, 2))) })
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	waitUntil(t, func() bool { return h.tally().handlings.Load() >= 50 })
	stopped, killed := 0, 0
	for range rounds {
		i := rand.IntN(len(children))
		if rand.IntN(3) == 0 {
			_ = children[i].cmd.Process.Kill()
			children[i] = start()
			killed++
		} else {
			_ = children[i].cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(500+rand.IntN(1500)) * time.Millisecond)
			_ = children[i].cmd.Process.Signal(syscall.SIGCONT)
			stopped++
		}
		time.Sleep(300 * time.Millisecond)
	}
	h.quiet.Store(true)
	producing.Wait()
	// All are killed at once: a later add would hide that one of the last versions is lost.
	for _, c := range children {
		_ = c.cmd.Process.Kill()
	}
	children = []*child{start()}
	h.waitUntilHandled()
	for _, c := range children {
		_ = c.in.Close()
	}
	reading.Wait()
	t.Logf("%d stops, %d kills", stopped, killed)
	h.report()
}

// The server's memory is full for a while, twice. Nothing that was confirmed is lost, and no key is with two
// workers.
func TestHistoryOnFullServer(t *testing.T) {
	s := startServer(t)
	config := Config[string]{Shards: 2, Lease: time.Second, PollInterval: 300 * time.Millisecond}
	config.Backoff.Base = time.Millisecond
	h := newHistory(t, 6)
	h.run([]*Queue[string]{newTestQueue(t, s.client(), config), newTestQueue(t, s.client(), config)}, func() {
		for i := range 2 {
			h.waitForConfirmed(int64(100 * (i + 1)))
			s.fill()
			time.Sleep(1500 * time.Millisecond)
			s.limitMemory("0")
		}
		h.waitForConfirmed(300)
	})
}

// The server's clock is set forward and back while replicas work. Leases outlive that, and fences grow.
func TestHistoryWithClockJumps(t *testing.T) {
	s := startServer(t)
	client := s.client()
	config := Config[string]{Lease: 2 * time.Second}
	config.Backoff.Base = time.Millisecond
	var queues []*Queue[string]
	for range 3 {
		queues = append(queues, newShiftedQueue(t, s.client(), config))
	}
	h := newHistory(t, 6)
	h.run(queues, func() {
		for _, shift := range []time.Duration{time.Hour, 0, -time.Hour, 400 * 24 * time.Hour, 2 * time.Second,
			-400 * 24 * time.Hour, 0} {
			time.Sleep(400 * time.Millisecond)
			shiftClock(t, client, shift)
		}
		time.Sleep(400 * time.Millisecond)
	})
	for _, q := range queues {
		if info := shared(q); info.LostLeases+info.LostDones > 0 {
			t.Errorf("leases were lost: %+v", info)
		}
	}
}
