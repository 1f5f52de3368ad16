package redisqueue

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed batch.lua
	batchPart string
	//go:embed operations.lua
	operationsPart string
	//go:embed handout.lua
	handOutPart string
	//go:embed snapshot.lua
	snapshotSource string
	//go:embed purge.lua
	purgeSource string
	//go:embed replicated.lua
	replicatedSource string
)

// batchSource is one script in three files.
var batchSource = batchPart + operationsPart + handOutPart

// scripts are what a queue runs on the server. Tests have another batch.lua.
type scripts struct{ batch, snapshot, purge, replicated script }

func newScripts(batch string) scripts {
	return scripts{
		batch:      newScript(batch),
		snapshot:   newScript(snapshotSource),
		purge:      newScript(purgeSource),
		replicated: newScript(replicatedSource),
	}
}

// script is a Lua script, which the server caches until it is restarted or gets SCRIPT FLUSH.
type script struct{ source, hash string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// scripter is a client, or a pipeline of one.
type scripter interface {
	EvalSha(ctx context.Context, hash string, keys []string, args ...any) *redis.Cmd
	Eval(ctx context.Context, source string, keys []string, args ...any) *redis.Cmd
}

func (s script) run(ctx context.Context, client scripter, keys []string, args []any) (any, error) {
	result, err := client.EvalSha(ctx, s.hash, keys, args...).Result()
	if isNoScript(err) {
		result, err = client.Eval(ctx, s.source, keys, args...).Result()
	}
	return result, err
}

// runAndWait is run and, on the same connection, WAIT, which is about what that connection has written. It returns how
// many replicas have it.
func (s script) runAndWait(ctx context.Context, client redis.UniversalClient, keys []string, args []any, replicas int, timeout time.Duration) (any, int, error) {
	node := client
	cluster, isCluster := client.(*redis.ClusterClient)
	if isCluster {
		master, err := cluster.MasterForKey(ctx, keys[0])
		if err != nil {
			return nil, 0, err
		}
		node = master
	}
	once := func(add func(redis.Pipeliner) *redis.Cmd) (any, int, error) {
		pipe := node.Pipeline()
		result := add(pipe)
		have := pipe.Do(ctx, "WAIT", replicas, timeout.Milliseconds())
		_, _ = pipe.Exec(ctx) // Both results have their errors.
		if err := result.Err(); err != nil {
			return nil, 0, err
		}
		n, err := have.Int()
		return result.Val(), n, err
	}
	result, n, err := once(func(p redis.Pipeliner) *redis.Cmd { return p.EvalSha(ctx, s.hash, keys, args...) })
	if isNoScript(err) {
		result, n, err = once(func(p redis.Pipeliner) *redis.Cmd { return p.Eval(ctx, s.source, keys, args...) })
	}
	if isCluster && err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		cluster.ReloadState(ctx)
	}
	return result, n, err
}

func isNoScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// keyNames are the KEYS of the scripts: those of a shard, and the one of a session.
type keyNames struct {
	prefix string
	shard  []string
}

func newKeyNames(queue string, shard int) keyNames {
	prefix := "workqueue:{" + queue + "/" + strconv.Itoa(shard) + "}:"
	n := keyNames{prefix: prefix}
	for _, name := range []string{
		"meta", "states", "line", "delays", "failures", "expiries", "lasts", "leases", "held", "sleepers", "aside",
		"batches", "gone", "losses", "givenup", "reasons", "causes",
	} {
		n.shard = append(n.shard, prefix+name)
	}
	return n
}

func (n keyNames) aside() string { return n.shard[10] }

func (n keyNames) wake(session string) string { return n.prefix + "wake:" + session }

func (n keyNames) of(session string) []string {
	return append(n.shard[:len(n.shard):len(n.shard)], n.wake(session))
}

// reply is what batch.lua returned.
type reply struct {
	lost bool // The session is over, and nothing was done.
	gone bool // The session is over, and all was done before it ended.
	full bool // The server's memory is full, and all but the adds was done.

	now                int64 // microseconds of the queue's clock
	counts             counts
	changed, unmatched int
	nextDue            time.Duration // negative if no key waits
	keys               []handedOut
	numbers            []int
}

// handedOut is a key from the server.
type handedOut struct {
	encoded string
	fence   string
	since   int64  // microseconds
	causes  string // see encodeCauses
}

var errReply = errors.New("redisqueue: the server's reply makes no sense")

func parseReply(text string) (*reply, error) {
	switch text {
	case "LOST":
		return &reply{lost: true}, nil
	case "GONE":
		return &reply{gone: true}, nil
	}
	if theirs, refused := strings.CutPrefix(text, "REFUSED "); refused {
		return nil, fmt.Errorf("%w: on the server it has %s", ErrIncompatible, theirs)
	}
	p := parser{rest: text}
	r := &reply{}
	switch p.word() {
	case "OK":
	case "FULL":
		r.full = true
	default:
		return nil, errReply
	}
	r.now = p.number()
	c := &r.counts
	for _, field := range []*int{&c.queued, &c.processing, &c.again, &c.waiting, &r.changed, &r.unmatched} {
		*field = int(p.number())
	}
	r.nextDue = time.Duration(p.number())
	if r.nextDue > 0 {
		r.nextDue = min(r.nextDue, time.Duration(1<<62)/time.Microsecond) * time.Microsecond
	}
	c.paused = p.number() == 1
	for _, field := range []*int{&c.failing, &c.aside, &c.givenUp, &c.repaired} {
		*field = int(p.number())
	}
	if oldest := p.number(); oldest > 0 {
		c.oldest = max(0, time.Duration(r.now-oldest)*time.Microsecond)
	}
	r.keys = make([]handedOut, 0, min(max(int(p.number()), 0), maxWant))
	for p.rest != "" && !p.bad {
		switch kind := p.take(1); kind {
		case "n":
			r.numbers = append(r.numbers, int(p.number()))
		case "k", "K":
			n := int(p.number())
			key := handedOut{fence: p.word(), since: p.number()}
			key.encoded = p.take(n)
			if kind == "K" {
				key.causes = p.take(int(p.number()))
			}
			r.keys = append(r.keys, key)
		default:
			p.bad = true
		}
	}
	if p.bad {
		return nil, errReply
	}
	return r, nil
}

type parser struct {
	rest string
	bad  bool
}

func (p *parser) word() string {
	word, rest, ok := strings.Cut(p.rest, " ")
	p.rest, p.bad = rest, p.bad || !ok
	return word
}

func (p *parser) number() int64 {
	n, err := strconv.ParseInt(p.word(), 10, 64)
	p.bad = p.bad || err != nil
	return n
}

// digits takes a number of that many digits.
func (p *parser) digits(n int) int64 {
	digits, err := strconv.ParseInt(p.take(n), 10, 64)
	p.bad = p.bad || err != nil
	return digits
}

func (p *parser) take(n int) string {
	if n < 0 || n > len(p.rest) {
		p.bad = true
		return ""
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}
