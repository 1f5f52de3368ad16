package redisqueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/redis/go-redis/v9"
)

const maxPage = 256 // how many keys one call reads

// row is what read.lua returns for a key. Its info has no Key yet.
type row[T comparable] struct {
	encoded string
	info    KeyInfo[T]
}

// withKey returns the row's info about key, which is the row's string decoded.
func (r row[T]) withKey(key T) KeyInfo[T] {
	r.info.Key = key
	if r.info.GivenUp != nil {
		r.info.GivenUp.Key = key
	}
	return r.info
}

// readRows returns the rows that read.lua has for args, and where the next page begins, empty at the end of
// the list.
func (s *shard[T]) readRows(ctx context.Context, args ...any) (rows []row[T], next string, err error) {
	reply, err := s.runRead(ctx, args...)
	if err != nil {
		return nil, "", err
	}
	var p rowParser
	head := p.fields(reply[0])
	p.offset = int64(p.number(head["offset"]))
	for _, fields := range reply[1:] {
		f := p.fields(fields)
		encoded, ok := f["key"]
		if !ok {
			p.reject(fmt.Sprint(fields))
		}
		rows = append(rows, row[T]{encoded, infoOf[T](&p, f)})
	}
	return rows, head["next"], p.err
}

// readCounts returns the numbers of the shard.
func (s *shard[T]) readCounts(ctx context.Context) (c Counts, err error) {
	reply, err := s.runRead(ctx, "counts")
	if err != nil {
		return c, err
	}
	var p rowParser
	f := p.fields(reply[0])
	p.offset = int64(p.number(f["offset"]))
	for name, field := range map[string]*int{
		"queued": &c.Queued, "processing": &c.Processing, "again": &c.Again, "waiting": &c.Waiting,
		"failing": &c.Failing, "givenUp": &c.GivenUp, "repaired": &c.Repaired,
	} {
		*field = p.number(f[name])
	}
	now := p.number(f["now"])
	if oldest := p.number(f["oldest"]); oldest > 0 {
		c.OldestQueued = max(0, fromMicros(int64(now-oldest)))
	}
	c.Limited, c.Paused = f["limited"] != "", f["paused"] != ""
	if left := f["pauseLeft"]; c.Paused && left != "" {
		c.PausedUntil = time.Now().Add(fromMicros(int64(p.number(left))))
	}
	if c.Paused {
		c.PausedSince, c.PausedBy = parsePausedBy(f["pausedBy"], int64(now))
	}
	return c, p.err
}

func infoOf[T comparable](p *rowParser, f map[string]string) (k KeyInfo[T]) {
	k.Requeues, k.LostLeases = p.number(f["failures"]), p.number(f["losses"])
	k.Failures.Count = k.Requeues
	if since, text, ok := strings.Cut(f["failing"], " "); ok && k.Requeues > 0 {
		k.Failures.Since, k.Failures.Err = p.time(since), strings.ToValidUTF8(text, "") // The server has cut it.
	}
	k.Due, k.Holder = p.time(f["due"]), f["holder"]
	parseState(&k, f["state"], p)
	var err error
	if k.Priority, err = strconv.Atoi(cmp.Or(f["priority"], "0")); err != nil {
		p.reject(f["priority"])
	}
	if givenAt := p.time(f["givenAt"]); !givenAt.IsZero() {
		attempts, reason, _ := strings.Cut(f["reason"], " ")
		k.GivenUp = &operate.GivenUpKey[T]{Attempts: p.number(attempts), Err: reason, Time: givenAt}
	}
	if causes, ok := decodeCauses(f["causes"]); !ok {
		p.reject(f["causes"])
	} else if !causes.IsZero() {
		k.Causes = &causes
	}
	return k
}

// parseState parses a state (data.lua describes its forms) into k. k already has Due and the holder's name,
// if the server knows that.
func parseState[T comparable](k *KeyInfo[T], state string, p *rowParser) {
	text := parser{rest: state}
	switch len(state) {
	case 0:
		if !k.Due.IsZero() {
			k.State = workqueue.KeyWaiting
		}
	case 16:
		k.State, k.Since = workqueue.KeyQueued, p.at(text.digits(16))
	default:
		kind, session := strings.ToLower(text.take(1)), text.take(11)
		k.State, k.Again = workqueue.KeyProcessing, kind != "p"
		k.Holder, k.Fence = cmp.Or(k.Holder, session), text.digits(16)
		k.Since = p.at(k.Fence)
		if k.Again {
			text.digits(16) // when it was added again
		}
		text.bad = text.bad || text.rest != "" || !strings.Contains("pde", kind)
	}
	if text.bad {
		p.reject(state)
	}
}

// runRead runs read.lua. When ctx ends, it returns at once; the goroutine of the call ends at the latest with
// the client's ReadTimeout, because by default go-redis does not interrupt a call.
func (s *shard[T]) runRead(ctx context.Context, args ...any) (reply []any, err error) {
	result := make(chan *redis.Cmd, 1)
	go func() { result <- readScript.RunRO(ctx, s.q.client, s.names.shard, args...) }()
	select {
	case r := <-result:
		reply, err = r.Slice()
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("redisqueue: %w", err)
	case len(reply) == 0:
		return nil, errReply
	}
	return reply, nil
}

// rowParser parses what read.lua has returned. Another program may have written it, so that a number or state
// that makes no sense is an error. err is the first one.
type rowParser struct {
	offset int64 // by how many microseconds the queue's clock is ahead of the server's
	err    error
}

func (p *rowParser) reject(text string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %.100q", errReply, text)
	}
}

// fields returns a list of names and values as a map. It leaves out what the server does not have.
func (p *rowParser) fields(reply any) map[string]string {
	list, _ := reply.([]any)
	if len(list) == 0 || len(list)%2 != 0 {
		p.reject(fmt.Sprint(reply))
		return nil
	}
	fields := make(map[string]string, len(list)/2)
	for pair := range slices.Chunk(list, 2) {
		if pair[1] != nil {
			fields[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
		}
	}
	return fields
}

// float returns 0 for an empty text.
func (p *rowParser) float(text string) float64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) { // NaN is not.
		p.reject(text)
		return 0
	}
	return n
}

// number returns a whole number of at most 2^53.
func (p *rowParser) number(text string) int {
	n := p.float(text)
	if n > 1<<53 {
		p.reject(text)
		return 0
	}
	return int(n)
}

// at converts a time of the queue's clock into one of the server's.
func (p *rowParser) at(micros int64) time.Time { return time.UnixMicro(micros - p.offset) }

func (p *rowParser) time(text string) time.Time {
	if n := p.float(text); n > 0 {
		return p.at(int64(min(n, 1<<62)))
	}
	return time.Time{}
}
