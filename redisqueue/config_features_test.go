package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/redis/go-redis/v9"
)

type name string

type place struct {
	Namespace, Name string
	Port            int
}

type (
	Left  struct{ Name string }
	Right struct{ Name string }
)

// Keys come back equal, and types whose keys would not are refused.
func TestCodecs(t *testing.T) {
	must(t, errors.Join(
		comeBack(t, "", "a", "ü\x00\xff", "1 2\n"),
		comeBack(t, name("n")),
		comeBack(t, -1, 0, 1<<62),
		comeBack(t, uint8(255)),
		comeBack(t, place{"a", "b\"", 3}, place{}),
		comeBack(t, [2]string{"a", ""}),
		comeBack(t, netip.MustParseAddr("::1")),
	))
	for i, err := range []error{
		comeBack(t, place{Namespace: "\xff"}),
		comeBack(t, struct { // JSON leaves out a name that two embedded fields have.
			Left
			Right
		}{Left: Left{"x"}}),
		comeBack(t, time.Now()),
		comeBack[any](t), comeBack[*place](t), comeBack[struct{ a int }](t), comeBack[struct{ A *int }](t),
		comeBack[chan int](t),
		comeBack[float64](t), comeBack[struct{ A [2]float32 }](t), // 0.0 and -0.0 are equal.
	} {
		if err == nil {
			t.Errorf("case %d is not refused", i)
		}
	}
}

// comeBack returns an error if a type of keys, or one of these keys, is refused.
func comeBack[T comparable](t *testing.T, keys ...T) error {
	t.Helper()
	c, _, err := defaultCodec[T]()
	for _, key := range keys {
		var encoded string
		if encoded, err = c.Encode(key); err != nil {
			break
		}
		if back, err := c.Decode(encoded); err != nil || back != key {
			t.Errorf("%v became %q and then %v, %v", key, encoded, back, err)
		}
	}
	return err
}

// codec is a Codec of two functions.
type codec[T comparable] struct {
	encode func(T) (string, error)
	decode func(string) (T, error)
}

func (c codec[T]) Encode(key T) (string, error)     { return c.encode(key) }
func (c codec[T]) Decode(encoded string) (T, error) { return c.decode(encoded) }

// What is no key makes methods panic, and the queue continues.
func TestNoKeys(t *testing.T) {
	config := Config[any]{Name: "test", Logger: discard, Codec: codec[any]{
		func(key any) (string, error) {
			if text, ok := key.(string); ok {
				return text, nil
			}
			return "", errors.New("not a string")
		},
		func(encoded string) (any, error) { return encoded, nil },
	}}
	q, err := New(context.Background(), startServer(t).client(), config)
	must(t, err)
	defer endQueue(t, q)
	for name, call := range map[string]func(key any){
		"Add": q.Add, "AddRateLimited": q.AddRateLimited, "Forget": q.Forget, "Done": q.Done,
		"AddAfter":    func(key any) { q.AddAfter(key, time.Hour) },
		"AddContext":  func(key any) { _ = q.AddContext(context.Background(), key) },
		"NumRequeues": func(key any) { q.NumRequeues(key) },
		"Lease":       func(key any) { q.Lease(context.Background(), key) },
	} {
		keys := []any{[]string{"not hashable"}}
		if name != "Done" && name != "Lease" { // These only look for a key.
			keys = append(keys, math.NaN(), 1, filler)
		}
		for _, key := range keys {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s(%#v) does not panic", name, key)
					}
				}()
				call(key)
			}()
		}
	}
	must(t, q.AddContext(within(t, 5*time.Second), "x"))
}

// decoding is a codec that decodes in that way.
func decoding(decode func(string) (string, error)) Codec[string] {
	return codec[string]{func(key string) (string, error) { return key, nil }, decode}
}

// A key that cannot be decoded is given up and stops nothing.
func TestCannotDecode(t *testing.T) {
	s := startServer(t)
	texts := newTestQueue(t, s.client(), Config[string]{})
	addAll(texts, "1", "two", "3")
	flush(t, texts)
	ctx := within(t, 10*time.Second)
	var reported error
	var cannot atomic.Bool
	cannot.Store(true)
	numbers := newTestQueue(t, s.client(), Config[string]{Logger: loggedTo(func(err error) { reported = err }),
		Codec: decoding(func(encoded string) (string, error) {
			if encoded == "two" && cannot.Load() {
				return "", errors.New("not a number")
			}
			return encoded, nil
		})})
	getEach(t, numbers, "1", "3")
	wantNoKeys(t, numbers)
	admin := &Admin{queue: texts}
	givenUp := func() (keys []string) {
		for k, err := range admin.Keys(ctx, ListGivenUp, 0) {
			must(t, err)
			keys = append(keys, k.Key+": "+k.GivenUp.Err)
		}
		return keys
	}
	counts, err := admin.Counts(ctx)
	if keys := givenUp(); !slices.Equal(keys, []string{"two: a replica could not decode the key"}) ||
		err != nil || counts.GivenUp != 1 || reported == nil {
		t.Errorf("given up: %q; %+v, %v, reported %v", keys, counts, err, reported)
	}
	cannot.Store(false)
	retried, err := admin.RetryGivenUp(ctx, "one", "two")
	if !slices.Equal(retried, []string{"two"}) || err != nil {
		t.Errorf("RetryGivenUp() = %q, %v", retried, err)
	}
	getEach(t, numbers, "two")
	cannot.Store(true)
	addAll(texts, "two")
	flush(t, texts)
	getNothing(t, numbers, 200*time.Millisecond)
	forgotten, err := admin.ForgetGivenUp(ctx, "one", "two")
	if !slices.Equal(forgotten, []string{"two"}) || err != nil || len(givenUp()) != 0 {
		t.Errorf("ForgetGivenUp() = %q, %v; left: %q", forgotten, err, givenUp())
	}
}

// oldServer says of itself that it is too old.
type oldServer struct{ redis.UniversalClient }

func (oldServer) Info(ctx context.Context, _ ...string) *redis.StringCmd {
	cmd := redis.NewStringCmd(ctx)
	cmd.SetVal("# Server\r\nredis_version:6.2.14\r\n")
	return cmd
}

func TestOldServerIsRefused(t *testing.T) {
	client := oldServer{startServer(t).client()}
	if _, err := New(context.Background(), client, Config[string]{Name: "q"}); err == nil ||
		!strings.Contains(err.Error(), "6.2.14") {
		t.Errorf("New() = %v, want an error with the server's version", err)
	}
}

// Every kind of jitter keeps within its bounds.
func TestJitter(t *testing.T) {
	s := startServer(t)
	for jitter, bounds := range map[workqueue.Jitter][2]time.Duration{
		workqueue.FullJitter: {0, time.Hour}, workqueue.EqualJitter: {time.Hour / 2, time.Hour},
	} {
		low, high := bounds[0], bounds[1]
		q := newTestQueue(t, s.client(), Config[string]{
			Name: fmt.Sprint(jitter), Backoff: workqueue.BackoffConfig[string]{Base: time.Hour, Max: 2 * time.Hour,
				Jitter: jitter},
		})
		for _, key := range keysNamed("k", 50) {
			q.AddRateLimited(key)
		}
		flush(t, q)
		var dues []time.Duration
		for _, k := range q.Snapshot(100).Waiting {
			dues = append(dues, time.Until(k.Due))
		}
		if len(dues) != 50 || slices.Min(dues) < low-time.Minute || slices.Max(dues) > high ||
			slices.Max(dues)-slices.Min(dues) < 10*time.Minute {
			t.Errorf("%v: %d delays from %v to %v", jitter, len(dues), slices.Min(dues), slices.Max(dues))
		}
	}
}

func TestSnapshotAndPurge(t *testing.T) {
	for _, shards := range []int{1, 4} {
		q := newTestQueue(t, startServer(t).client(), Config[string]{Shards: shards})
		addAndGet(t, q, "held")
		q.Add("held")
		addAll(q, keysNamed("k", 200)...)
		q.AddAfter("later", time.Hour)
		freshStats(t, q)
		snapshot := q.Snapshot(5)
		if len(snapshot.Queued) != 5 || len(snapshot.Processing) != 1 || len(snapshot.Waiting) != 1 ||
			snapshot.Stats.Queued != 200 {
			t.Errorf("%d shards: Snapshot() = %+v", shards, snapshot)
		} else if p := snapshot.Processing[0]; p.Key != "held" || !p.Again || time.Since(p.Since) > time.Minute {
			t.Errorf("%d shards: Processing = %+v", shards, p)
		}
		ctx, release := q.Lease(context.Background(), "held")
		must(t, (&Admin{queue: q}).Purge(within(t, 5*time.Second)))
		freshStats(t, q) // The replica learns it with its next call.
		<-ctx.Done()
		release()
		wantNoKeys(t, q)
		q.Done("held")
		q.Add("new")
		getEach(t, q, "new")
	}
}

// A user with the commands of docs/replicas.md, and no other, can do everything.
func TestACL(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "replicas.md"))
	must(t, err)
	rule := regexp.MustCompile(`(?s)ACL SETUSER orders on >secret (.*?)` + "```").FindSubmatch(page)
	if rule == nil {
		t.Fatal("docs/replicas.md has no ACL")
	}
	s := startServer(t)
	ctx := within(t, 20*time.Second)
	args := []any{"ACL", "SETUSER", "orders", "on", ">secret"}
	for _, word := range strings.Fields(string(rule[1])) {
		args = append(args, word)
	}
	must(t, s.client().Do(ctx, args...).Err())
	client := newClient(t, &redis.Options{Addr: s.addr, Username: "orders", Password: "secret"})
	var failures []error
	config := Config[string]{Name: "orders", Logger: loggedTo(func(err error) { failures = append(failures, err) }),
		StartLimit: StartLimit{Rate: 100, Burst: 5}}
	config.Backoff.Jitter = workqueue.FullJitter
	q := newTestQueue(t, client, config)
	q.AddRateLimited("a")
	q.AddAfter("b", time.Millisecond)
	getEach(t, q, "a", "b")
	q.Forget("a")
	q.Snapshot(10)
	_, err = (&Admin{queue: q}).ForgetGivenUp(ctx, "x")
	must(t, errors.Join(err, q.Flush(ctx), (&Admin{queue: q}).Purge(ctx), q.ShutDownContext(ctx)))
	if len(failures) > 0 {
		t.Error(failures)
	}
}

// Every command that the scripts call is in that list, and New finds out whether the user may call those of
// batch.lua.
func TestCommandsAreListed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "replicas.md"))
	must(t, err)
	_, checked, _ := strings.Cut(batchLua, "string.gmatch('")
	checked, _, _ = strings.Cut(checked, "'%u+'")
	calls := regexp.MustCompile(`\b(?:p?call|callAll)\('([A-Z]+)'|'(Z[A-Z]*SCAN|Z[A-Z]*RANGE|[SH]SCAN)'`)
	for _, script := range []string{batchLua, lua("data read")} {
		for _, call := range calls.FindAllStringSubmatch(script, -1) {
			command := call[1] + call[2]
			if !regexp.MustCompile(`\+` + strings.ToLower(command) + `\b`).Match(page) {
				t.Errorf("%s is not in the ACL of docs/replicas.md", command)
			}
			if script == batchLua && command != "TIME" && !regexp.MustCompile(`\b`+command+`\b`).MatchString(checked) {
				t.Errorf("batch.lua calls %s before it knows whether the user may", command)
			}
		}
	}
}

// What changes the strings of equal keys is part of the description. The names of types are not.
func TestDescription(t *testing.T) {
	type number int
	for want, key := range map[string]any{
		"int":     number(0),
		"{N int}": struct{ N number }{},
		"{n int}": struct {
			N int `json:"n"`
		}{},
		"{,omitempty int}": struct {
			N int `json:",omitempty"`
		}{},
		"{n,string int}": struct {
			N int `json:"n,string"`
		}{},
		"{A [2]string, B int8}": struct {
			A [2]string
			B int8
		}{},
	} {
		if got, err := describe(reflect.TypeOf(key)); got != want || err != nil {
			t.Errorf("%T: %q, %v, want %q", key, got, err, want)
		}
	}
}
