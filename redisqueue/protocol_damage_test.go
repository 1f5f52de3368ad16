package redisqueue

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/redis/go-redis/v9"
)

// damages says what becomes of a shard that has lost one of its keys of Redis.
// docs/replicas.md says the same in words.
var damages = []struct {
	name     string
	lost     []string // these are not handed out by themselves
	repaired bool     // if it is deleted, Repaired counts what was mended
}{
	{name: "meta"},
	{name: "states", repaired: true},
	{name: "line", repaired: true},
	{name: "delays", lost: []string{"waiting", "failing"}, repaired: true},
	{name: "failures", repaired: true},
	{name: "retries", repaired: true},
	{name: "leases", repaired: true},
	{name: "held", repaired: true},
	{name: "sleepers"},
	{name: "batches"},
	{name: "gone"},
	{name: "givenup"},
	{name: "troubles"},
	{name: "notes"},
}

// A shard that has lost a part of its data loses no more keys than the table says, hands none out twice at a
// time, and blocks none.
func TestDamage(t *testing.T) {
	client := startServer(t).client()
	for i, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			must(t, client.FlushAll(t.Context()).Err())
			damage(t, client, i)
		})
	}
}

func damage(t *testing.T, client *redis.Client, i int) {
	d := damages[i]
	q := newShiftedQueue(t, client, Config[string]{
		Backoff:    workqueue.BackoffConfig[string]{Base: time.Hour, ForgetAfter: 1000 * time.Hour},
		GivenUpAge: 1000 * time.Hour,
	})
	names := q.shards[0].names.shard
	if names[i] != q.shards[0].names.prefix+d.name {
		t.Fatalf("%s is not the name of key %d", d.name, i)
	}
	dead := rawSession{t: t, client: client, s: shiftedScript(), id: "aaaaaaaaaaa", lease: 30 * time.Second}
	dead.send(1, 4, "adead/0", "adead/1", "adead/2", "adead/3")
	addAll(q, "held/0", "held/1", "given/0", "given/1", "failing/0", "failing/1")
	for range 6 {
		key, err := q.GetContext(within(t, 20*time.Second))
		must(t, err)
		if group, _, _ := strings.Cut(key, "/"); group != "held" {
			_, err = q.Fail(within(t, 20*time.Second), key, workqueue.Failure{Err: errors.New("broken"),
				Terminal: group == "given"})
			must(t, err)
			q.Done(key)
		}
	}
	addAll(q, keysNamed("queued", 4)...)
	q.AddCause("queued/0", workqueue.Cause{Reason: "why"})
	q.AddWithPriority("queued/1", 1, 0)
	for _, key := range keysNamed("waiting", 4) {
		q.AddAfter(key, time.Hour)
	}
	flush(t, q)
	must(t, client.Del(t.Context(), names[i]).Err())

	// Two minutes later what was queued and what the dead held has come, two hours later all else.
	var now time.Duration
	came := make(map[string]bool)
	pass := func(until time.Duration) {
		for ; now < until; now += 15 * time.Second {
			shiftClock(t, client, now)
			for st := freshStats(t, q); st.Queued > 0; st = freshStats(t, q) {
				for _, key := range []string{"held/0", "held/1"} {
					// Its worker stops, because the lease is lost. Before that it would not be handed out here.
					if !q.holdsForTest(key) {
						q.Done(key)
					}
				}
				key, err := q.GetContext(within(t, 20*time.Second))
				must(t, err)
				came[key] = true
				q.Done(key)
			}
		}
	}
	want := func(groups ...string) {
		t.Helper()
		for _, group := range groups {
			for _, key := range keysNamed(group, map[string]int{"failing": 2}[group]+
				map[bool]int{true: 0, false: 4}[group == "failing"]) {
				if !came[key] && !slices.Contains(d.lost, group) {
					t.Errorf("%s does not come until %v", key, now)
				}
			}
		}
	}
	pass(2 * time.Minute)
	want("queued", "dead")
	if came["held/0"] || came["held/1"] {
		if d.name != "batches" { // Without its last reply the server does not know the session.
			t.Errorf("keys that a worker holds have come: %v", came)
		}
	}
	q.Done("held/0")
	q.Done("held/1")
	pass(3 * time.Hour)
	want("waiting", "failing")
	if n := leasing.StatsOf(freshStats(t, q)).Repaired; d.repaired && n == 0 {
		t.Error("Repaired counts nothing")
	}
	// Every key comes when it is added.
	clear(came)
	all := slices.Concat(keysNamed("queued", 4), keysNamed("dead", 4), keysNamed("waiting", 4),
		keysNamed("held", 2), keysNamed("failing", 2), keysNamed("given", 2))
	addAll(q, all...)
	flush(t, q)
	pass(now + 2*time.Minute)
	for _, key := range all {
		if !came[key] {
			t.Errorf("%s is blocked", key)
		}
	}
	wantNoKeys(t, q)
	must(t, checkInvariants(client, q))
}

// The docs say what the test finds.
func TestDamageIsDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "replicas.md"))
	must(t, err)
	whole := []string{"leases", "held", "sleepers", "gone"} // Nothing is lost without these.
	for _, d := range damages {
		if !slices.Contains(whole, d.name) && !strings.Contains(string(page), "`"+d.name+"`") {
			t.Errorf("docs/replicas.md does not say what becomes of a shard without its %s", d.name)
		}
	}
}
