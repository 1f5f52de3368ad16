package redisqueue

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startSentinel starts a sentinel that watches the master at that address, and returns its own.
func startSentinel(t *testing.T, master string) string {
	t.Helper()
	addr := freeAddr(t)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	config := fmt.Sprintf(`port %s
bind 127.0.0.1
dir %s
sentinel monitor m 127.0.0.1 %s 2
sentinel down-after-milliseconds m 3000
sentinel failover-timeout m 5000
`, portOf(addr), t.TempDir(), portOf(master))
	must(t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.Command(serverBinary(t), file, "--sentinel")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return addr
}

// After a failover, replicas find the new master by themselves. What it had received is handed out.
func TestSentinelFailover(t *testing.T) {
	master := startServer(t)
	replica := startServer(t, "--replicaof", "127.0.0.1", master.port())
	var sentinels []string
	for range 3 {
		sentinels = append(sentinels, startSentinel(t, master.addr))
	}
	ctx := context.Background()
	for _, addr := range sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: addr})
		defer c.Close()
		eventually(t, 30*time.Second, func() error {
			m, err := c.Master(ctx, "m").Result()
			if err == nil && (m["num-slaves"] != "1" || m["num-other-sentinels"] != "2") {
				err = fmt.Errorf("the sentinel knows %v", m)
			}
			return err
		})
	}
	newQueue := func() *Queue[string] {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: sentinels})
		t.Cleanup(func() { client.Close() })
		return newTestQueue(t, client, Config[string]{})
	}
	adder, worker := newQueue(), newQueue()
	want := keysNamed("key", 20)
	addAll(adder, want...)
	flush(t, adder)
	// WAIT waits for what its own connection has written, and all before.
	conn := master.client().Conn()
	defer conn.Close()
	must(t, conn.Set(ctx, "marker", 1, 0).Err())
	if n, err := conn.Wait(ctx, 1, 30*time.Second).Result(); n != 1 || err != nil {
		t.Fatalf("%d replicas have the keys: %v", n, err)
	}
	master.kill()
	began := time.Now()
	promoted := clientOf(t, replica.addr)
	eventually(t, 40*time.Second, func() error {
		info, err := promoted.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "role:master") {
			err = fmt.Errorf("no failover: %s", info)
		}
		return err
	})
	t.Logf("the failover took %v", time.Since(began).Round(time.Millisecond))
	must(t, adder.AddContext(within(t, 40*time.Second), "after"))
	for _, key := range append(want, "after") {
		got, err := worker.GetContext(within(t, 40*time.Second))
		if err != nil || got != key {
			t.Fatalf("GetContext() after the failover = %q, %v, want %q", got, err, key)
		}
		worker.Done(got)
	}
	flush(t, worker)
}

// cluster are three masters, each with a third of the slots.
type cluster struct {
	t     *testing.T
	nodes []*redis.Client
	ids   []string
	addrs []string
	buses []string // the ports of the cluster bus
}

func startCluster(t *testing.T) *cluster {
	c := &cluster{t: t}
	ctx := context.Background()
	for i := range 3 {
		bus := portOf(freeAddr(t))
		s := startServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--cluster-port", bus)
		node := s.client()
		first, last := i*16384/3, (i+1)*16384/3-1
		must(t, node.ClusterAddSlotsRange(ctx, first, last).Err())
		// Nodes that meet with the same epoch take new ones until they differ, and a node that does so after a slot
		// has moved claims it back.
		must(t, node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		id, _ := node.Do(ctx, "CLUSTER", "MYID").Text()
		for j, addr := range c.addrs {
			must(t, node.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", portOf(addr), c.buses[j]).Err())
		}
		c.nodes, c.ids, c.addrs, c.buses = append(c.nodes, node), append(c.ids, id), append(c.addrs, s.addr),
			append(c.buses, bus)
	}
	for _, node := range c.nodes {
		eventually(t, time.Minute, func() error {
			info, err := node.ClusterInfo(ctx).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") ||
				!strings.Contains(info, "cluster_known_nodes:3")) {
				err = fmt.Errorf("no cluster: %s", info)
			}
			return err
		})
	}
	return c
}

// move moves a slot from one node to another, a key at a time, while it is used.
func (c *cluster) move(slot, from, to int) {
	c.t.Helper()
	ctx := context.Background()
	must := func(node int, args ...any) any {
		c.t.Helper()
		result, err := c.nodes[node].Do(ctx, append([]any{"CLUSTER"}, args...)...).Result()
		if err != nil {
			c.t.Fatal(args, err)
		}
		return result
	}
	must(to, "SETSLOT", slot, "IMPORTING", c.ids[from])
	must(from, "SETSLOT", slot, "MIGRATING", c.ids[to])
	for {
		keys := must(from, "GETKEYSINSLOT", slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		err := c.nodes[from].Do(ctx, "MIGRATE", "127.0.0.1", portOf(c.addrs[to]), keys[0], 0, 5000).Err()
		if err != nil && err != redis.Nil {
			c.t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, node := range []int{to, from, 3 - to - from} {
		must(node, "SETSLOT", slot, "NODE", c.ids[to])
	}
}

// The slots of a queue move from node to node while replicas use it. Nothing is lost, and no key is with two
// workers.
func TestClusterSlotsMove(t *testing.T) {
	c := startCluster(t)
	h := newHistory(t, 6)
	var queues []*Queue[string]
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs})
	t.Cleanup(func() { client.Close() })
	want := keysNamed("queue", 100) // on all nodes
	for _, name := range want {
		_ = newTestQueue(t, client, Config[string]{Name: name})
	}
	names, err := Queues(context.Background(), client)
	if slices.Sort(want); err != nil || !slices.Equal(names, want) {
		t.Errorf("Queues() = %q, %v", names, err)
	}
	for range 2 {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs})
		t.Cleanup(func() { client.Close() })
		config := Config[string]{Shards: 3, Lease: 6 * time.Second}
		config.Backoff.Base = time.Millisecond
		queues = append(queues, newTestQueue(t, client, config))
	}
	h.run(queues, func() {
		for shard := range 3 {
			slot64, err := c.nodes[0].ClusterKeySlot(context.Background(),
				queues[0].shards[shard].names.shard[0]).Result()
			must(t, err)
			slot := int(slot64)
			at := slot * 3 / 16384
			for at > 0 && slot < at*16384/3 {
				at--
			}
			for range 3 {
				next := (at + 1) % 3
				c.move(slot, at, next)
				at = next
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
	for _, q := range queues {
		if info := shared(q); info.LostLeases > 0 {
			t.Errorf("leases were lost: %+v", info)
		}
	}
}
