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
	"github.com/redis/go-redis/v9"
)

const (
	maxSnapshot = 512 // how many keys of each state a Snapshot has
	maxPage     = 256 // how many keys one call reads
)

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
	var check checker
	head := check.fields(reply[0])
	check.offset = int64(check.number(head["offset"]))
	for _, fields := range reply[1:] {
		f := check.fields(fields)
		encoded, ok := f["key"]
		if !ok {
			check.bad(fmt.Sprint(fields))
		}
		rows = append(rows, row[T]{encoded, infoOf[T](&check, f)})
	}
	return rows, head["next"], check.err
}

func infoOf[T comparable](check *checker, f map[string]string) (k KeyInfo[T]) {
	k.Requeues, k.LostLeases = check.number(f["failures"]), check.number(f["losses"])
	k.Due, k.Holder, k.SetAside = check.time(f["due"]), f["holder"], f["aside"] == "1"
	parseState(&k, f["state"], check)
	var err error
	if k.Priority, err = strconv.Atoi(cmp.Or(f["priority"], "0")); err != nil {
		check.bad(f["priority"])
	}
	if givenAt := check.time(f["givenAt"]); !givenAt.IsZero() {
		attempts, reason, _ := strings.Cut(f["reason"], " ")
		k.GivenUp = &workqueue.GivenUpKey[T]{Attempts: check.number(attempts), Err: reason, Time: givenAt}
	}
	if causes, ok := decodeCauses(f["causes"]); !ok {
		check.bad(f["causes"])
	} else if !causes.IsZero() {
		k.Causes = &causes
	}
	return k
}

// parseState parses a state (data.lua describes its forms) into k. k already has Due and the holder's name,
// if the server knows that.
func parseState[T comparable](k *KeyInfo[T], state string, check *checker) {
	p := parser{rest: state}
	switch len(state) {
	case 0:
		if !k.Due.IsZero() {
			k.State = workqueue.KeyWaiting
		}
	case 16:
		k.State, k.Since = workqueue.KeyQueued, check.at(p.digits(16))
	default:
		kind, session := p.take(1), p.take(11)
		k.State, k.Again = workqueue.KeyProcessing, kind != "p"
		k.Holder, k.Fence = cmp.Or(k.Holder, session), p.digits(16)
		k.Since = check.at(k.Fence)
		if k.Again {
			p.digits(16) // when it was added again
		}
		p.bad = p.bad || p.rest != "" || !strings.Contains("pde", kind)
	}
	if p.bad {
		check.bad(state)
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

// checker parses what read.lua has returned. Another program may have written it, so that a number or state
// that makes no sense is an error. err is the first one.
type checker struct {
	offset int64 // by how many microseconds the queue's clock is ahead of the server's
	err    error
}

func (c *checker) bad(text string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %.100q", errReply, text)
	}
}

// fields returns a list of names and values as a map. It leaves out what the server does not have.
func (c *checker) fields(reply any) map[string]string {
	list, _ := reply.([]any)
	if len(list) == 0 || len(list)%2 != 0 {
		c.bad(fmt.Sprint(reply))
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
func (c *checker) float(text string) float64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) { // NaN is not.
		c.bad(text)
		return 0
	}
	return n
}

// number returns a whole number of at most 2^53.
func (c *checker) number(text string) int {
	n := c.float(text)
	if n > 1<<53 {
		c.bad(text)
		return 0
	}
	return int(n)
}

// at converts a time of the queue's clock into one of the server's.
func (c *checker) at(micros int64) time.Time { return time.UnixMicro(micros - c.offset) }

func (c *checker) time(text string) time.Time {
	if n := c.float(text); n > 0 {
		return c.at(int64(min(n, 1<<62)))
	}
	return time.Time{}
}
