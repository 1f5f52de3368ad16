package redisqueue

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/workqueuetest"
	"github.com/redis/go-redis/v9"
)

// bubbleClient makes a server live in the virtual time of a testing/synctest bubble: the scripts read the
// caller's clock instead of the server's, and a blocking read is a pause. A goroutine that waits for the
// server is not blocked in the sense of synctest, so the bubble's time stands still meanwhile.
type bubbleClient struct{ redis.UniversalClient }

func (c bubbleClient) EvalSha(ctx context.Context, hash string, keys []string, args ...any) *redis.Cmd {
	return c.UniversalClient.EvalSha(ctx, hash, keys, append(args[:len(args):len(args)],
		time.Now().UnixMicro())...)
}

func (c bubbleClient) Eval(ctx context.Context, source string, keys []string, args ...any) *redis.Cmd {
	return c.UniversalClient.Eval(ctx, source, keys, append(args[:len(args):len(args)],
		time.Now().UnixMicro())...)
}

func (c bubbleClient) BLPop(ctx context.Context, timeout time.Duration,
	keys ...string) *redis.StringSliceCmd {
	if time.Now().Year() > 2020 {
		return c.UniversalClient.BLPop(ctx, timeout, keys...) // not in a bubble
	}
	time.Sleep(timeout)
	cmd := redis.NewStringSliceCmd(ctx)
	cmd.SetErr(redis.Nil)
	return cmd
}

// bubbleScript takes the time from their last argument.
func bubbleScript() *redis.Script {
	return redis.NewScript(replacingTime("{ 0, table.remove(ARGV) }"))
}

// replacingTime returns batch.lua with another clock.
func replacingTime(clock string) string {
	replaced := strings.Replace(batchLua, "call('TIME')", clock, 1)
	if replaced == batchLua {
		panic("the script does not read the time")
	}
	return replaced
}

var queueNumber atomic.Int64

// nameless hides the name and the numbers of a shared queue, which a queue without metrics has not in the
// suite. It panics if the latter are not those of a queue without faults.
type nameless struct {
	*Queue[string]
	unnamed bool // The case wants a queue without a name, which knows no times.
	limiter workqueue.TypedRateLimiter[string]
}

// The server computes delays, and the suite has a limiter for them: where that must be asked, its delay is what
// the failure demands at least, and the queue's own is a microsecond.

func (q nameless) AddRateLimited(key string) { q.AddAfter(key, q.limiter.When(key)) }

func (q nameless) NumRequeues(key string) int { return q.limiter.NumRequeues(key) }

func (q nameless) Forget(key string) {
	q.limiter.Forget(key)
	q.Queue.Forget(key)
}

func (q nameless) Fail(ctx context.Context, key string, f workqueue.Failure) (workqueue.Retry, error) {
	if r := predict(q.failuresOfHeld(key), f); !r.Same && !r.GivenUp {
		f.AtLeast = max(f.AtLeast, q.limiter.When(key))
	}
	retry, err := q.Queue.Fail(ctx, key, f)
	if retry.GivenUp {
		q.limiter.Forget(key)
	}
	return retry, err
}

func (q nameless) AddedAt(key string) time.Time {
	if q.unnamed {
		return time.Time{}
	}
	return q.Queue.AddedAt(key)
}

func (q nameless) Next(ctx context.Context) (workqueue.HandOut[string], error) {
	h, err := q.Queue.Next(ctx)
	h.AddedAt = q.AddedAt(h.Key)
	return h, err
}

func (q nameless) Stats() workqueue.Stats {
	// The suite checks numbers right after what has changed them.
	q.refresh(context.Background())
	st := q.Queue.Stats()
	if s := *leasing.StatsOf(st); s.Outage || s.Errors+s.LostLeases+s.LostDones > 0 || s.Repaired > 0 ||
		s.CallDuration != nil && q.config.MetricsProvider == nil {
		panic(fmt.Sprintf("%+v", s))
	}
	st.Name, st.Shared = "", nil
	return st
}

func (q nameless) Len() int { return q.Stats().Queued }

func (q nameless) Snapshot(limit int) workqueue.Snapshot[string] {
	st := q.Stats()
	snapshot := q.Queue.Snapshot(limit)
	snapshot.Stats = st
	return snapshot
}

// clientForBubbles returns a client for bubbleClient, whose connections are open already.
func clientForBubbles(t *testing.T, addr string) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 200, ConnMaxIdleTime: -1, ReadTimeout: time.Minute,
		// Later versions of go-redis try a handshake with version 3, in goroutines that a case may find.
		Protocol: 2,
	})
	t.Cleanup(func() { _ = client.Close() })
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() { client.BLPop(context.Background(), time.Second, "nothing") })
	}
	all.Wait()
	return client
}

// conformance tries the queue on the server at that address.
func conformance(t *testing.T, addr string, skip map[string]string) {
	client := clientForBubbles(t, addr)
	s := bubbleScript()
	build := func(c workqueuetest.Config[string]) workqueue.TypedInterface[string] {
		config := Config[string]{
			Name:         fmt.Sprint("conformance", queueNumber.Add(1)),
			PollInterval: 10 * time.Second,
			Backoff:      noBackoff,
		}
		must(t, config.complete())
		_, reads := c.MetricsProvider.(workqueue.StatsProvider)
		if reads {
			config.MetricsProvider = c.MetricsProvider
		}
		q := newQueue(bubbleClient{client}, config, s)
		if reads {
			must(t, q.publish())
		}
		limiter := c.RateLimiter
		if limiter == nil {
			limiter = workqueue.NewTypedItemFastSlowRateLimiter[string](0, 0, 0)
		}
		return nameless{q, c.Name == "", limiter}
	}
	workqueuetest.Suite{
		New: build,
		Check: func(q workqueue.TypedInterface[string]) error {
			return checkInvariants(client, q.(nameless).Queue)
		},
		IgnoresClock: true,
		NoMetrics:    true,
		Shared:       true,
		Known:        map[string]string{"NeverEarly": "delays are rounded up to microseconds"},
		Skip:         skip,
		Lacks:        map[string]string{workqueuetest.AnyKeys: "keys have one type, and the codec of any is not defined"},
	}.Run(t)
}

func TestConformanceOnServer(t *testing.T) {
	setRapidChecks(t, "20") // After each call the server is asked for all that it has.
	conformance(t, startServer(t).addr, nil)
}

// setRapidChecks sets how many sequences of calls the random cases try.
func setRapidChecks(t *testing.T, n string) {
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	must(t, checks.Value.Set(n))
	t.Cleanup(func() { must(t, checks.Value.Set(before)) })
}

// checkInvariants returns an error if the data of a queue that is at rest contradict each other.
func checkInvariants[T comparable](client redis.UniversalClient, q *Queue[T]) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	q.refresh(ctx)
	for _, s := range q.shards {
		keys := s.names.shard
		states, err1 := client.HGetAll(ctx, keys[1]).Result()
		line, err2 := client.ZRange(ctx, keys[2], 0, -1).Result()
		held, err3 := client.ZRange(ctx, keys[7], 0, -1).Result()
		delays, err4 := client.ZRange(ctx, keys[3], 0, -1).Result()
		causes, err5 := client.HKeys(ctx, keys[13]).Result()
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			return err
		}
		again, _ := client.HGet(ctx, keys[0], "dirty").Int()
		delete(states, filler)
		queued := make(map[string]bool)
		for _, key := range line {
			if state := states[key]; len(state) != 16 {
				return fmt.Errorf("key %q is in the line, and its state is %q", key, state)
			}
			queued[key] = true
		}
		for _, field := range causes {
			key := field[1:]
			state := states[key]
			isHeld, waits := len(state) >= 28, slices.Contains(delays, key)
			comesAgain := len(state) == 16 || len(state) == 44 || waits && field[0] == 'n'
			if strings.ContainsAny(field[:1], "hq") && !isHeld || strings.ContainsAny(field[:1], "np") &&
				!comesAgain || field[0] == 'w' && !waits {
				return fmt.Errorf("notes are left in %q of a key with state %q", field, state)
			}
		}
		heldBy := make(map[string]string)
		for _, member := range held {
			if member != filler {
				heldBy[member[11:]] = member[:11]
			}
		}
		for key, state := range states {
			switch state = strings.ToLower(state[:1]) + state[1:]; {
			case state[0] == 'p' || state[0] == 'd' || state[0] == 'e':
				if state[0] != 'p' {
					again--
				}
				if heldBy[key] != state[1:12] {
					return fmt.Errorf("key %q has state %q and is held by %q", key, state, heldBy[key])
				}
				delete(heldBy, key)
			case !queued[key]:
				return fmt.Errorf("key %q has state %q and is not in the line", key, state)
			}
		}
		if len(heldBy) > 0 {
			return fmt.Errorf("held without a state: %q", heldBy)
		}
		if again != 0 {
			return fmt.Errorf("the number of dirty keys that are processed is off by %d", again)
		}
	}
	return nil
}
