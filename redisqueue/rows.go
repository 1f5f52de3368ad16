package redisqueue

import (
	"cmp"
	"context"
	"fmt"
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

// row is what read.lua returns of a key. Its info has no Key yet.
type row[T comparable] struct {
	encoded string
	info    KeyInfo[T]
}

// of returns the info of the row's key.
func (r row[T]) of(key T) KeyInfo[T] {
	r.info.Key = key
	if r.info.GivenUp != nil {
		r.info.GivenUp.Key = key
	}
	return r.info
}

// readRows reads what read.lua returns for args: rows, and where to go on, empty at the end.
func (s *shard[T]) readRows(ctx context.Context, args ...any) (rows []row[T], next string, err error) {
	reply, err := s.runRead(ctx, args...)
	if err != nil {
		return nil, "", err
	}
	var check checker
	head := check.texts(reply, 2)
	check.offset = int64(check.number(head[1]))
	for _, fields := range reply[min(2, len(reply)):] {
		fields, _ := fields.([]any)
		if f := check.texts(fields, 10); f[0] != filler {
			rows = append(rows, row[T]{f[0], infoOf[T](&check, f)})
		}
	}
	return rows, head[0], check.err
}

func infoOf[T comparable](check *checker, f []string) (k KeyInfo[T]) {
	k.Requeues, k.Due = check.number(f[2]), check.time(f[3])
	k.LostLeases, k.SetAside = check.float(f[6]), f[8] == "1"
	k.Holder = f[7]
	setState(&k, f[1], check)
	if givenAt := check.time(f[4]); !givenAt.IsZero() {
		attempts, reason, _ := strings.Cut(f[5], " ")
		n, _ := strconv.Atoi(attempts)
		k.GivenUp = &workqueue.GivenUpKey[T]{Attempts: n, Err: reason, Time: givenAt}
	}
	causes, ok := decodeCauses(f[9])
	if !ok {
		check.bad(f[9])
	}
	if !causes.IsZero() {
		k.Causes = &causes
	}
	return k
}

// setState parses a state (see batch.lua) into k, which has Due and the name of the holder already.
func setState[T comparable](k *KeyInfo[T], state string, check *checker) {
	p := parser{rest: state}
	switch len(state) {
	case 0:
		if !k.Due.IsZero() {
			k.State = workqueue.KeyWaiting
		}
	case 16:
		k.State, k.Since = workqueue.KeyQueued, check.at(p.digits(16))
	default:
		kind := p.take(1)
		k.State, k.Again = workqueue.KeyProcessing, kind != "p"
		k.Holder, k.Fence = cmp.Or(k.Holder, p.take(11)), p.digits(16)
		k.Since = check.at(k.Fence)
		if k.Again {
			p.digits(16)
		}
		p.bad = p.bad || p.rest != "" || !strings.Contains("pde", kind)
	}
	if p.bad {
		check.bad(state)
	}
}

// runRead runs read.lua. It returns when ctx ends: by default go-redis does not interrupt a call then, and its goroutine stays until
// the client's ReadTimeout is over.
func (s *shard[T]) runRead(ctx context.Context, args ...any) (reply []any, err error) {
	result := make(chan *redis.Cmd, 1)
	go func() { result <- readScript.RunRO(ctx, s.q.client, s.names.shard, args...) }()
	select {
	case r := <-result:
		reply, err = r.Slice()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("redisqueue: %w", err)
	}
	return reply, nil
}

// checker reads what read.lua has returned. Others may have written it, so all is checked: err is about the first mistake.
type checker struct {
	offset int64 // how far the queue's clock is ahead of the server's, in microseconds
	err    error
}

func (c *checker) bad(text string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %.100q", errReply, text)
	}
}

// texts returns the first n fields as strings, empty for those that are not there.
func (c *checker) texts(fields []any, n int) []string {
	if len(fields) < n {
		c.bad(fmt.Sprint(fields))
	}
	texts := make([]string, n)
	for i, field := range fields[:min(n, len(fields))] {
		switch v := field.(type) {
		case string:
			texts[i] = v
		case int64:
			texts[i] = strconv.FormatInt(v, 10)
		}
	}
	return texts
}

func (c *checker) float(text string) float64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0) {
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

// at returns the server's time of one on the queue's clock.
func (c *checker) at(micros int64) time.Time { return time.UnixMicro(micros - c.offset) }

func (c *checker) time(text string) time.Time {
	if n := c.float(text); n > 0 {
		return c.at(int64(min(n, 1<<62)))
	}
	return time.Time{}
}
