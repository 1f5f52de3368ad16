package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// checkClient returns an error unless a queue can be on the client's servers.
func checkClient(client redis.UniversalClient) error {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("redisqueue: there is no client")
	}
	if _, ok := client.(*redis.Ring); ok {
		return errors.New("redisqueue: a redis.Ring loses keys when a node leaves it: use a cluster, or Shards")
	}
	return nil
}

// ownConnections returns a client of the same server with at most n connections, for the calls that wait: in
// the client's own pool they would hold the connections that others need. It returns a client that is not
// go-redis's own as it is: the pool of that must have n connections more than other calls need.
func ownConnections(client redis.UniversalClient, n int) redis.UniversalClient {
	switch c := client.(type) {
	case *redis.Client:
		o := *c.Options()
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = n, 0, 0, 0
		o.ReadTimeout, o.WriteTimeout = orNone(o.ReadTimeout), orNone(o.WriteTimeout)
		o.MaxRetries = orNone(o.MaxRetries)
		unshare(&o)
		return redis.NewClient(&o)
	case *redis.ClusterClient:
		o := *c.Options()
		o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = n, 0, 0, 0
		o.ReadTimeout, o.WriteTimeout = orNone(o.ReadTimeout), orNone(o.WriteTimeout)
		o.MaxRetries = orNone(o.MaxRetries)
		unshare(&o)
		return redis.NewClusterClient(&o)
	}
	return client
}

// orNone returns a bound for the options of a new client, where -1 means none. In those of a client that
// exists, that is zero.
func orNone[N int | time.Duration](bound N) N {
	if bound == 0 {
		return -1
	}
	return bound
}

// unsharedOptions are what a client keeps state in, or starts more for than a few reads need. The oldest
// go-redis that the module allows lacks these fields, so the compiler cannot check their names. A test fails
// with a go-redis that has an option which two clients could share, and which is neither here nor known to be
// harmless.
var unsharedOptions = []string{
	"MaintNotificationsConfig", "PushNotificationProcessor", "AutoPipelineOptions", "ClientSideCacheConfig",
	"ClientSideCache",
}

// unshare gives options the defaults for what a second client must not share.
func unshare(options any) {
	for _, name := range unsharedOptions {
		if field := reflect.ValueOf(options).Elem().FieldByName(name); field.IsValid() {
			field.SetZero()
		}
	}
}

// onEachNode calls f with each master of a cluster, concurrently, or with client.
func onEachNode(ctx context.Context, client redis.UniversalClient, f func(context.Context, redis.UniversalClient) error) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return f(ctx, node) })
	}
	return f(ctx, client)
}

// ErrEviction is returned by [New] if the server may evict keys when its memory is full, and so parts of a
// queue. A queue that runs does not ask again.
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
	if policy := serverSays(ctx, node, "memory", "maxmemory_policy"); policy != "" && policy != "noeviction" {
		return fmt.Errorf("%w: maxmemory-policy is %s", ErrEviction, policy)
	}
	return nil
}

// serverSays returns what a server says of itself, empty if it does not. Without the right to ask, the user's
// word counts.
func serverSays(ctx context.Context, node redis.UniversalClient, section, name string) string {
	info, _ := node.Info(ctx, section).Result()
	for line := range strings.Lines(info) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), ":"); key == name {
			return value
		}
	}
	return ""
}
