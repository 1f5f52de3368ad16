package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A bucket without a bound is one that is full: the server keeps a number that its replicas read again.
func TestHugeBurst(t *testing.T) {
	t.Parallel()
	q := newTestQueue(t, startServer(t).client(), Config[string]{Limit: 1, Burst: math.MaxInt})
	for i := range 3 {
		must(t, q.AddRateLimitedContext(within(t, 10*time.Second), fmt.Sprint(i)))
	}
}

// Times that Redis rounds to zero, which means forever, are a millisecond.
func TestTinyTimes(t *testing.T) {
	t.Parallel()
	client := newClient(t, &redis.Options{Addr: startServer(t).addr, ReadTimeout: -1})
	q := newTestQueue(t, client, Config[string]{PollInterval: 1, WaitReplicas: 1, WaitTimeout: 1})
	wantErr(t, q.AddContext(within(t, 10*time.Second), "a"), ErrNotReplicated)
	mustGet(t, q, "a")
	q.Done("a")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _, _ = q.GetContext(ctx) }()
	eventually(t, 10*time.Second, func() error {
		var calls int
		stats := client.InfoMap(ctx, "commandstats").Item("Commandstats", "cmdstat_blpop")
		if _, _ = fmt.Sscanf(stats, "calls=%d", &calls); calls < 3 {
			return errors.New("a blocking read without a bound")
		}
		return nil
	})
}

// PollInterval is what a replica does: a blocking read of a second or more takes whole seconds.
func TestPollInterval(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: time.Second, 900 * time.Millisecond: 900 * time.Millisecond, 1900 * time.Millisecond: time.Second,
		time.Hour: 10 * time.Second,
	} {
		config := Config[string]{Name: "test", PollInterval: d}
		must(t, config.complete(3*time.Second))
		if config.PollInterval != want {
			t.Errorf("a PollInterval of %v is %v, want %v", d, config.PollInterval, want)
		}
	}
}

// The client that waits shares nothing with the program's: newer versions of go-redis keep handlers in the
// options, and log an error when a second client adds its own.
func TestClientsShareNoHandlers(t *testing.T) {
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

// The bounds that follow from a client's ReadTimeout hold for a ring, too.
func TestReadTimeoutOfRing(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"},
		ReadTimeout: 100 * time.Millisecond})
	defer ring.Close()
	if d := readTimeout(ring); d != 100*time.Millisecond {
		t.Errorf("readTimeout() = %v", d)
	}
}

// When New refuses, it closes the ring that it has made for itself: that pings its nodes.
func TestNewLeavesNoRing(t *testing.T) {
	s := startServer(t)
	ctx := within(t, time.Minute)
	endQueue(t, newTestQueue(t, s.client(), Config[string]{}))
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": s.addr}})
	defer ring.Close()
	must(t, ring.Ping(ctx).Err())
	before := runtime.NumGoroutine()
	for range 20 {
		_, err := New(ctx, ring, Config[int]{Name: "test", Logger: discard})
		wantErr(t, err, ErrIncompatible)
	}
	eventually(t, 10*time.Second, func() error {
		if n := runtime.NumGoroutine(); n > before+5 {
			return fmt.Errorf("%d goroutines more", n-before)
		}
		return nil
	})
}
