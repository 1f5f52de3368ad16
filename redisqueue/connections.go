package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// isNil also reports whether client is a nil pointer.
func isNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// readTimeout returns how long a client waits for a reply, forever if it has no bound or does not say.
func readTimeout(client redis.UniversalClient) (timeout time.Duration) {
	switch c := client.(type) {
	case interface{ Options() *redis.Options }:
		timeout = c.Options().ReadTimeout
	case interface{ Options() *redis.ClusterOptions }:
		timeout = c.Options().ReadTimeout
	case interface{ Options() *redis.RingOptions }:
		timeout = c.Options().ReadTimeout
	}
	return positiveOr(timeout, math.MaxInt64)
}

// ownConnections returns a client of the same server with at most n connections, for the calls that wait: in
// the client's own pool they would hold the connections that others need. It returns a client that is not
// go-redis's own as it is.
func ownConnections(client redis.UniversalClient, n int) redis.UniversalClient {
	// In the options of a client that exists, zero means none. For a new client, that is -1.
	bounds := []string{"ReadTimeout", "WriteTimeout", "MaxRetries"}
	switch c := client.(type) {
	case *redis.Client:
		return redis.NewClient(unshared(*c.Options(), n, bounds...))
	case *redis.ClusterClient:
		return redis.NewClusterClient(unshared(*c.Options(), n, bounds...))
	case *redis.Ring:
		return redis.NewRing(unshared(*c.Options(), n, "MaxRetries"))
	}
	return client
}

// unshared returns the options of a second client: with n connections, and with defaults for what a client
// writes to while it connects. In the fields none, zero becomes -1. Only newer versions of go-redis have some
// fields, so the code finds them by name.
func unshared[O any](options O, n int, none ...string) *O {
	fields := reflect.ValueOf(&options).Elem()
	for _, name := range []string{
		"MinIdleConns", "MaxIdleConns", "MaxActiveConns", "MaintNotificationsConfig", "PushNotificationProcessor",
	} {
		if field := fields.FieldByName(name); field.IsValid() {
			field.SetZero()
		}
	}
	for _, name := range none {
		if field := fields.FieldByName(name); field.IsZero() {
			field.SetInt(-1)
		}
	}
	fields.FieldByName("PoolSize").SetInt(int64(n))
	return &options
}

// onEachNode calls f with each master of a cluster or node of a Ring, concurrently, or with client.
func onEachNode(ctx context.Context, client redis.UniversalClient, f func(context.Context, redis.UniversalClient) error) error {
	g := func(ctx context.Context, node *redis.Client) error { return f(ctx, node) }
	switch c := client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, g)
	case *redis.Ring:
		return c.ForEachShard(ctx, g)
	}
	return f(ctx, client)
}

// ErrEviction is returned by [New], and reported by a queue, if the server may evict keys when its memory is
// full, and so parts of a queue.
var ErrEviction = errors.New("redisqueue: the server must have maxmemory-policy noeviction")

// checkNode refuses a server on which keys could get lost. What it does not say of itself is not checked.
func checkNode(ctx context.Context, node redis.UniversalClient) error {
	if err := node.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redisqueue: %w", err)
	}
	version := serverSays(ctx, node, "server", "redis_version")
	if major, err := strconv.Atoi(strings.Split(version, ".")[0]); err == nil && major < 7 {
		return fmt.Errorf("redisqueue: the server is Redis %s; 7.0 or newer is needed", version)
	}
	return checkEviction(ctx, node)
}

// checkEviction returns ErrEviction if a server says that it evicts keys.
func checkEviction(ctx context.Context, node redis.UniversalClient) error {
	if policy := serverSays(ctx, node, "memory", "maxmemory_policy"); policy != "" && policy != "noeviction" {
		return fmt.Errorf("%w: maxmemory-policy is %s", ErrEviction, policy)
	}
	return nil
}

// serverSays returns what a server says of itself, empty if it does not. Without the right to ask, the user's word
// counts.
func serverSays(ctx context.Context, node redis.UniversalClient, section, name string) string {
	info, _ := node.Info(ctx, section).Result()
	for line := range strings.Lines(info) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), ":"); key == name {
			return value
		}
	}
	return ""
}
