package redisqueue

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
)

// Config configures [New]. All replicas of a queue should have the same, except for Logger, MetricsProvider
// and Replica. What may differ for a while, as in a rollout, is in docs/replicas.md.
type Config[T comparable] struct {
	// Name identifies the queue on the server, and in metrics. It is required, and must not contain braces.
	Name string
	// Lease is how long a key stays with a replica from which the server hears nothing. 30 s if zero, at
	// least 1 s. It should be longer than the server's failover and the replicas' pauses. If replicas differ
	// in it, as in a rollout, and the server's clock is set forward meanwhile, one with a shorter Lease may
	// notice up to a third of it too late that it has lost a key.
	Lease time.Duration
	// PollInterval is how often a replica with waiting getters looks for keys, should a wake-up be lost. 1 s
	// if zero, at most a third of Lease.
	PollInterval time.Duration
	// Shards spreads the queue over that many hash tags, and so over the nodes of a cluster. A key is always
	// in the same one; order holds within a shard. All replicas must have the same number; to change it, let
	// the queue run empty, stop all replicas and call Purge. 1 if zero, at most 1,024. A replica uses a
	// connection for each, and another while getters wait.
	Shards int
	// Codec translates keys. Nil means: strings and integers as they are, types with MarshalText and
	// UnmarshalText by these, others as JSON. New returns an error for types that would not come back equal
	// or have several strings (0.0 and -0.0 are equal), and a method panics that is given such a key: JSON
	// replaces invalid UTF-8, and a time.Time with a monotonic clock reading loses it.
	Codec Codec[T]
	// Backoff is how long a key waits after each failure (AddRateLimited). The server counts failures and
	// computes delays, for all replicas, in microseconds. Its Clock is not used, and its ForKey and Bucket,
	// which are of one process, must be nil: StartLimit bounds the rate of all replicas.
	Backoff workqueue.BackoffConfig[T]
	// StartLimit bounds how many keys are handed out, by all replicas together, no matter what has added the
	// keys. Keys beyond it stay queued. Each shard has its part of both numbers, the Burst rounded up: if all
	// keys are in one of ten shards, a tenth of the Rate is what they get. The page, Stats (Blocked) and the
	// command say when the limit holds keys back. Replicas with another StartLimit, as during a rollout, keep
	// to theirs and do not count the hand-outs of the others: a new limit begins with a full bucket.
	StartLimit StartLimit
	// PriorityStep is how much earlier a key seems to have been queued for each step of its priority; see
	// [Queue.AddWithPriority]. All replicas need the same. A minute if zero. A key is at most 160 years ahead
	// or behind: from 80 years on, a further step counts no more than 42 minutes, and the higher priority
	// still comes first.
	PriorityStep time.Duration
	// MaxLostLeases is after how many lost leases in a row, without a Done, a key is given up: its handler
	// may end its process. From the second one on the key waits, at first for half a lease to a lease, then
	// twice as long each time, at most for Backoff.Max, or a lease if that is longer. All keys that a process
	// held when it ended have lost a lease, whichever of them ended it: the waits, of random length, keep them
	// apart the next time. But a key whose handler always runs for long beside one that ends its processes may
	// be given up with it. What counts as no loss: a lease that a replica gives back itself, because it could
	// not reach the server for a while, and what a replica leaves behind after ShutDown. A HandBack ends no row.
	// 10 if zero, never if negative.
	MaxLostLeases int
	// The server keeps GivenUpLimit keys that were given up, for GivenUpAge. 10,000 and a week if zero.
	GivenUpLimit int
	GivenUpAge   time.Duration
	// Logger is called when the server stops answering, or refuses what it is asked for, and when that ends;
	// when leases are lost, or a key is released; when a key cannot be decoded; and once if the server's user
	// may not call BLPOP, so that keys come up to a PollInterval late. Its handler is called without a lock, by
	// a goroutine of the queue or a caller of Done, Fail, Forget, Succeed or Requeue, which waits for it. Nil
	// means slog's default.
	Logger *slog.Logger
	// MetricsProvider must be a [workqueue.StatsProvider], such as one of package prom. Nil means that of
	// [workqueue.SetProvider], if it is such a provider. One that inspects queues, such as package debug's,
	// shows this one.
	MetricsProvider workqueue.MetricsProvider
	// Replica names this process to people, who see it beside the keys that it holds. Host name and process
	// number if empty.
	Replica string

	description string // what all replicas must have in common
}

// StartLimit is a token bucket: at most Rate hand-outs a second, and Burst at once after a while without any.
// A Rate of zero means no limit, a Burst below 1 means 1. Of a bucket that is full while keys wait, tokens
// are lost: a replica calls a moment after a token has come. Take a Burst of at least a fiftieth of the Rate.
// With a Burst of 1 the queue reaches about 85 % of a Rate of 100 and 65 % of one of 500.
type StartLimit struct {
	Rate  float64
	Burst int
}

// complete fills in what is not set.
func (c *Config[T]) complete() error {
	switch {
	case c.Name == "" || strings.ContainsAny(c.Name, "{}"):
		return fmt.Errorf("redisqueue: Name %q is empty or has braces", c.Name)
	case c.Lease != 0 && c.Lease < time.Second:
		return fmt.Errorf("redisqueue: a Lease of %v is less than a second", c.Lease)
	case c.Backoff.ForKey != nil:
		return errors.New("redisqueue: Backoff.ForKey is a function of this process, and the server " +
			"computes delays")
	case c.Backoff.Bucket != nil:
		return errors.New("redisqueue: Backoff.Bucket is of this process, and the server computes delays: " +
			"use StartLimit")
	case !(c.StartLimit.Rate >= 0 && c.StartLimit.Rate <= 1e9):
		return fmt.Errorf("redisqueue: a StartLimit of %v a second makes no sense", c.StartLimit.Rate)
	case c.PriorityStep < 0:
		return fmt.Errorf("redisqueue: a PriorityStep of %v is negative", c.PriorityStep)
	case c.Shards < 0 || c.Shards > maxShards:
		return fmt.Errorf("redisqueue: %d Shards are not between 0 and %d", c.Shards, maxShards)
	}
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.PollInterval = max(min(positiveOr(c.PollInterval, time.Second), c.Lease/3), time.Millisecond)
	c.Shards = max(c.Shards, 1)
	c.PriorityStep = cmp.Or(c.PriorityStep, time.Minute)
	c.StartLimit.Burst = max(c.StartLimit.Burst, 1)
	c.MaxLostLeases = cmp.Or(c.MaxLostLeases, 10)
	c.GivenUpLimit = positiveOr(c.GivenUpLimit, 10_000)
	c.GivenUpAge = positiveOr(c.GivenUpAge, 7*24*time.Hour)
	if c.Replica == "" {
		host, _ := os.Hostname()
		c.Replica = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if _, ok := c.MetricsProvider.(workqueue.StatsProvider); c.MetricsProvider != nil && !ok {
		return fmt.Errorf("redisqueue: %T is not a workqueue.StatsProvider", c.MetricsProvider)
	}
	keys := reflect.TypeFor[T]().Kind().String()
	if c.Codec == nil {
		var err error
		if c.Codec, keys, err = defaultCodec[T](); err != nil {
			return err
		}
	}
	c.description = fmt.Sprintf("format %d, %d shards, keys: %s", format, c.Shards, keys)
	return nil
}

const maxShards = 1024

// format is the version of the data on the server and of batch.lua. Replicas of different formats refuse to
// work together.
const format = 5

// settings are what batch.lua must know of the configuration, with times in microseconds.
func (c *Config[T]) settings() string {
	b := c.Backoff
	longest := positiveOr(b.Max, 1000*time.Second)
	base := min(positiveOr(b.Base, 5*time.Millisecond), longest)
	factor := cmp.Or(b.Factor, 2)
	if math.IsNaN(factor) {
		factor = 2
	}
	twice := 2 * min(longest, math.MaxInt64/2) // without overflow
	forgetAfter := positiveOr(b.ForgetAfter, max(twice, 10*time.Minute))
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	part := func(n int) int { return (max(n, 1)-1)/c.Shards + 1 } // of each shard
	// Each batch reads the first two, and the script looks for a setting from the left.
	return fmt.Sprintf(" startrate=%g startburst=%d",
		c.StartLimit.Rate/float64(c.Shards), part(c.StartLimit.Burst)) +
		fmt.Sprintf(" base=%.3f max=%.3f factor=%g jitter=%d forget=%.3f",
			micros(base), micros(longest), min(max(factor, 1), 1e300), b.Jitter, micros(forgetAfter)) +
		fmt.Sprintf(" losses=%d step=%.0f", c.MaxLostLeases, micros(c.PriorityStep)) +
		fmt.Sprintf(" keep=%d keepfor=%.3f", part(c.GivenUpLimit), micros(c.GivenUpAge))
}

// margin is how long before the end of its lease a replica lets go of its keys.
func (c *Config[T]) margin() time.Duration { return max(c.Lease/20, 100*time.Millisecond) }

func positiveOr[N int | time.Duration](n, otherwise N) N {
	if n > 0 {
		return n
	}
	return otherwise
}
