package redisqueue

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// interrupted runs batches that are interrupted by errors of Redis.
type interrupted struct {
	t      *testing.T
	admin  *redis.Client
	client *redis.Client // of a user who may lose rights
	script *redis.Script
	names  []string
	now    time.Duration
}

const interruptedUser = "u"

func newInterrupted(t *testing.T) *interrupted {
	s := startServer(t)
	admin := s.client()
	must(t, admin.Do(t.Context(), "ACL", "SETUSER", interruptedUser, "on", ">x", "~*", "&*", "+@all").Err())
	client := newClient(t, &redis.Options{Addr: s.addr, Username: interruptedUser, Password: "x"})
	script := redis.NewScript(replacingTime("call('GET', '{' .. string.match(KEYS[1], '{(.-)}') .. '}now'); time = { time, 0 }"))
	return &interrupted{t: t, admin: admin, client: client, script: script, names: newKeyNames("test", 0).shard}
}

// pass lets time pass. It stands still otherwise.
func (i *interrupted) pass(d time.Duration) {
	i.now += d
	must(i.t, i.admin.Set(context.Background(), "{test/0}now", 1_700_000_000+int(i.now.Seconds()), 0).Err())
}

func (i *interrupted) session(id string) rawSession {
	return rawSession{t: i.t, client: i.client, s: i.script, id: id, lease: 30 * time.Second, losses: 3}
}

// run runs the batches of a case. The last one is interrupted by what disturb does until its result is
// called. It returns the last reply and what is in Redis then.
func (i *interrupted) run(c interruptedCase, disturb func() func()) string {
	i.t.Helper()
	must(i.t, i.admin.FlushAll(context.Background()).Err())
	i.now = 0
	i.pass(0)
	dead, live := i.session("ddddddddddd"), i.session("lllllllllll")
	dead.send(1, len(c.dead), c.dead...)
	live.send(1, 0)
	number, last := 2, "0"
	fences := make(map[string]string)
	for _, ops := range c.before {
		r, err := parseReply(live.send(number, 4, withFences(ops, fences)...))
		must(i.t, err)
		for _, key := range r.keys {
			fences[key.encoded], last = key.fence, key.fence
		}
		number++
		i.pass(time.Second)
	}
	for range c.halfLeases {
		i.pass(15 * time.Second)
	}
	// The batch that is interrupted does chores, because of its seq.
	for ; number%8 != 1; number++ {
		live.send(number, 0)
	}
	ops := withFences(c.ops, fences)
	if disturb != nil {
		mend := disturb()
		for range 3 {
			if _, err := live.try(number, 2, ops...); err == nil {
				mend()
				return "" // This batch does not need what was taken away.
			}
			i.pass(time.Second)
			live.flags = "knownFence=" + last
		}
		mend()
		i.now -= 3 * time.Second
		i.pass(0)
	}
	reply, err := parseReply(live.send(number, 2, ops...))
	must(i.t, err)
	return i.dump(reply)
}

type interruptedCase struct {
	dead       []string   // adds of keys that a session gets that dies
	before     [][]string // batches that get up to four keys each
	halfLeases int        // that pass after them
	ops        []string   // of the batch that is interrupted; D<key> is a Done with the key's fence
}

// withFences writes the fence before the key of each operation that needs one, and for " by the holder of k"
// makes what stands before it an answer.
func withFences(ops []string, fences map[string]string) []string {
	ops = slices.Clone(ops)
	for i, o := range ops {
		if said, key, ok := strings.Cut(o, " by the holder of "); ok {
			ops[i] = string(codeByHolder) + fences[key] + said
		} else if strings.ContainsRune("DBUWO", rune(o[0])) {
			ops[i] = o[:1] + fences[o[1:]] + o[1:]
		}
	}
	return ops
}

var longNumber = regexp.MustCompile(`1[67]\d{14}`)

// dump returns what a reply says and Redis has, without fences and the like.
func (i *interrupted) dump(r *reply) (text string) {
	ctx := context.Background()
	for _, key := range r.keys {
		text += fmt.Sprintln("gets", key.encoded, key.failures, key.left, key.priority, key.causes)
	}
	r.counts.Repaired = 0
	text += fmt.Sprintf("%+v %+v\n", r.opResults, r.counts)
	for _, name := range i.names {
		text += "\n" + name
		switch i.admin.Type(ctx, name).Val() {
		case "set":
			members := i.admin.SMembers(ctx, name).Val()
			slices.Sort(members)
			text += fmt.Sprint(members)
		case "zset":
			for _, z := range i.admin.ZRangeWithScores(ctx, name, 0, -1).Val() {
				if z.Member == filler {
					continue
				}
				text += fmt.Sprintf(" %q", z.Member)
				if !strings.HasSuffix(name, ":line") && !strings.HasSuffix(name, ":leases") {
					text += fmt.Sprintf("=%.0f", z.Score)
				}
			}
		case "hash":
			fields := i.admin.HGetAll(ctx, name).Val()
			for _, field := range sortedKeys(fields) {
				if !strings.HasSuffix(name, ":batches") && (!strings.HasSuffix(name, ":meta") || field == "dirty") {
					text += fmt.Sprintf(" %q=%q", field, longNumber.ReplaceAllString(fields[field], "T"))
				}
			}
		}
	}
	return text
}

func sortedKeys(m map[string]string) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// A batch that an error interrupts at any point, and that is sent again, has the result of one whole run.
func TestInterruptedBatch(t *testing.T) {
	i := newInterrupted(t)
	script := regexp.MustCompile(`\b(?:call|callAll)\('([A-Z]+)'`).FindAllStringSubmatch(batchLua, -1)
	disturbances := make(map[string]func() func())
	for _, m := range script {
		rule := strings.ToLower(m[1])
		acl := func(sign string) {
			must(t, i.admin.Do(context.Background(), "ACL", "SETUSER", interruptedUser, sign+rule).Err())
		}
		if rule != "get" && rule != "time" {
			disturbances["without "+rule] = func() func() { acl("-"); return func() { acl("+") } }
		}
	}
	for _, name := range i.names {
		disturbances["foreign "+name] = func() func() {
			ctx := context.Background()
			had := i.admin.Rename(ctx, name, "{test/0}saved").Err() == nil
			must(t, i.admin.Set(ctx, name, "x", 0).Err())
			return func() {
				must(t, i.admin.Del(ctx, name).Err())
				if had {
					must(t, i.admin.Rename(ctx, "{test/0}saved", name).Err())
				}
			}
		}
	}
	fail := "F0000000000000001k0 5 0 false error"
	const ofHolder = " by the holder of k"
	for name, c := range map[string]interruptedCase{
		"add and hand out":      {before: [][]string{{"ak"}}, ops: []string{"Dk", "ax", "ay", "ak"}},
		"add with causes":       {ops: []string{"C0000000000000001xl0 1700000000000000 "}},
		"hand back":             {before: [][]string{{"ak"}}, ops: []string{"B0000000000000003k" + ofHolder}},
		"hand back a priority":  {before: [][]string{{"P0000000000000001k7 0"}}, ops: []string{"B0000000000000003k" + ofHolder}},
		"hand back a raised":    {before: [][]string{{"ak"}, {"P0000000000000001k-5 0"}}, ops: []string{"B0000000000000003k" + ofHolder}},
		"cannot decode":         {before: [][]string{{"ak"}}, ops: []string{"Uk"}},
		"added again":           {before: [][]string{{"ak"}, {"ak"}}, ops: []string{"Wk"}},
		"due":                   {ops: []string{"ay"}, before: [][]string{{"L0000000000500000x"}}},
		"due with a priority":   {ops: []string{"ay", "xz"}, before: [][]string{{"P0000000000000001x7 500000"}}},
		"add after":             {ops: []string{"L0000001000000000x"}},
		"add with a priority":   {ops: []string{"ax", "ay", "P0000000000000001z1 0"}},
		"fail":                  {before: [][]string{{"ak"}}, ops: []string{fail}},
		"fail and finish":       {before: [][]string{{"ak"}}, ops: []string{fail, "Dk"}},
		"fail for good":         {before: [][]string{{"ak"}}, ops: []string{"F0000000000000001k0 5 0 true error", "Dk"}},
		"fail with no retry":    {before: [][]string{{"ak", fail}}, ops: []string{"F0000000000000001k0 1 0 false error"}},
		"answer":                {before: [][]string{{"ak"}}, ops: []string{fail + ofHolder}},
		"answer and finish":     {before: [][]string{{"ak"}}, ops: []string{"gk" + ofHolder, "Dk"}},
		"ask for the key":       {before: [][]string{{"ak"}}, ops: []string{"P0000000000000001k3 0" + ofHolder, "Dk"}},
		"end":                   {before: [][]string{{"ak"}, {fail + ofHolder, "e"}}, ops: []string{"q"}},
		"forget":                {before: [][]string{{"ak"}, {fail}}, ops: []string{"fk", "nk"}},
		"discard":               {before: [][]string{{"L0000001000000000x"}}, ops: []string{"xx", "xy"}},
		"discard failures":      {before: [][]string{{fail}}, ops: []string{"xk"}},
		"retry given up":        {before: [][]string{{"F0000000000000001k0 5 0 true error"}}, ops: []string{"tk"}},
		"forget given up":       {before: [][]string{{"F0000000000000001k0 5 0 true error"}}, ops: []string{"yk"}},
		"lose":                  {dead: []string{"ak", "ay"}, halfLeases: 1, ops: []string{}},
		"quit":                  {before: [][]string{{"ak"}}, ops: []string{"q"}},
		"finish what comes due": {before: [][]string{{"ak", "L0000000000500000k"}}, ops: []string{"Dk"}},
	} {
		want := i.run(c, nil)
		for _, disturbance := range sortedNames(disturbances) {
			got := strings.Split(i.run(c, disturbances[disturbance]), "\n")
			for n, line := range strings.Split(want, "\n") {
				if len(got) > 1 && (n >= len(got) || got[n] != line) {
					t.Errorf("%s, %s:\n%s\nwant\n%s", name, disturbance, got[min(n, len(got)-1)], line)
				}
			}
		}
	}
}

func sortedNames(m map[string]func() func()) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A batch is never sent under a number that another one had: a batch that a full server has refused, and that
// arrives a second time when there is room again, changes nothing.
func TestDelayedCopyOfRefusedBatch(t *testing.T) {
	s := startServer(t)
	client := s.client()
	ctx := within(t, 20*time.Second)
	var q *Queue[string]
	var armed atomic.Bool
	client.AddHook(hook(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			err := next(ctx, cmd)
			if cmd.Name() == "evalsha" && armed.Swap(false) {
				s.limitMemory("0")
				q.Done("held")
				s.client().Do(ctx, cmd.Args()...) // The copy.
			}
			return err
		}
	}))
	q = newTestQueue(t, client, Config[string]{})
	addAndGet(t, q, "held")
	s.fill()
	armed.Store(true)
	must(t, q.AddContext(ctx, "x"))
	flush(t, q)
	if armed.Load() || shared(q).Errors != 1 {
		t.Errorf("%d batches were refused, want 1", shared(q).Errors)
	}
	if st := freshStats(t, q); st.Processing != 0 || st.Queued != 1 {
		t.Errorf("Stats() = %+v: want the Done executed and x queued", st)
	}
	getEach(t, q, "x")
}
