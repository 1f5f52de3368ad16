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

// A failover to a replica loses no add that WaitReplicas has waited for, and the queue continues by itself.
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
	newClient := func() *redis.Client {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: sentinels})
		t.Cleanup(func() { client.Close() })
		return client
	}
	config := Config[string]{WaitReplicas: 1}
	config.Backoff.Base = time.Millisecond
	h := newHistory(t, 6)
	// A hand-out that the new master has not received is a key for a second worker. The handlers end before
	// there is one.
	h.short = true
	h.run([]*Queue[string]{newTestQueue(t, newClient(), config), newTestQueue(t, newClient(), config)}, func() {
		h.waitForConfirmed(100)
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
	})
	// There is no replica any more.
	q := newTestQueue(t, newClient(), config)
	if err := q.AddContext(within(t, 20*time.Second), "after"); err == nil ||
		!strings.Contains(err.Error(), ErrNotReplicated.Error()) {
		t.Errorf("AddContext() without a replica = %v, want %v", err, ErrNotReplicated)
	}
	// Adds without confirmation, and failures, may have left keys of the history.
	for key := ""; key != "after"; {
		var err error
		if key, err = q.GetContext(within(t, 5*time.Second)); err != nil {
			t.Fatalf("the key that was added after the failover does not come: %v", err)
		}
		q.Done(key)
	}
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
		if info := q.Info(); info.LostLeases > 0 {
			t.Errorf("leases were lost: %+v", info)
		}
	}
}
