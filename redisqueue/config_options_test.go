package redisqueue

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A getter that waits does not make the client reconnect at each poll.
func TestPollsReuseTheirConnection(t *testing.T) {
	s := startServer(t)
	client := newClient(t, &redis.Options{Addr: s.addr, ReadTimeout: 300 * time.Millisecond})
	ctx := context.Background()
	q := newTestQueue(t, client, Config[string]{Lease: 2 * time.Second})
	getting, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { _, _ = q.GetContext(getting) })
	connections := func() (n int) {
		info := s.client().Info(ctx, "stats").Val()
		for line := range strings.Lines(info) {
			_, _ = fmt.Sscanf(line, "total_connections_received:%d", &n)
		}
		return n
	}
	waitForSleepers(t, s.client(), 1)
	polls := func() uint64 { return batches(q.client) }
	before, first := connections(), polls()
	waitUntil(t, func() bool { return polls() >= first+5 })
	if n := connections() - before - 1; n > 2 { // connections makes one itself.
		t.Errorf("%d connections for 5 polls", n)
	}
	cancel()
	all.Wait()
}

// The client that waits shares no state with the program's: newer versions of go-redis keep handlers and caches in the options, and
// log an error when a second client adds its own.
func TestClientsShareNoState(t *testing.T) {
	harmless := []string{ // functions and settings of the program, which clients only read
		"Dialer", "OnConnect", "CredentialsProvider", "CredentialsProviderContext", "StreamingCredentialsProvider", "DialerRetryBackoff",
		"TLSConfig", "Limiter", "NewClient", "ClusterSlots", "ShardPicker", "Addrs",
	}
	for _, options := range []any{redis.Options{}, redis.ClusterOptions{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(options)) {
			switch field.Type.Kind() {
			case reflect.Func, reflect.Interface, reflect.Map, reflect.Pointer, reflect.Slice, reflect.Chan, reflect.Struct:
				if !slices.Contains(append(harmless, unsharedOptions...), field.Name) {
					t.Errorf("go-redis has the option %s of type %v: may two clients share it?", field.Name, field.Type)
				}
			}
		}
	}
	client := newClient(t, &redis.Options{Addr: "127.0.0.1:1"})
	own := ownConnections(client, 1).(*redis.Client)
	defer own.Close()
	processor := func(c *redis.Client) reflect.Value {
		return reflect.ValueOf(c.Options()).Elem().FieldByName("PushNotificationProcessor")
	}
	if p := processor(client); p.IsValid() && p.Interface() == processor(own).Interface() {
		t.Error("two clients have the same handlers of notifications")
	}
}
