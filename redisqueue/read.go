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

// readKeys returns the keys that read.lua has for args, without those that cannot be decoded, and where the
// next page begins, empty at the end of the list.
func (s *shard[T]) readKeys(ctx context.Context, args ...any) (keys []KeyInfo[T], next string, err error) {
	reply, err := s.runRead(ctx, args...)
	if err != nil {
		return nil, "", err
	}
	lists, _ := reply.([]any)
	if len(lists) == 0 {
		return nil, "", errReply
	}
	ofShard := fieldsOf(lists[0])
	for _, list := range lists[1:] {
		f := fieldsOf(list)
		if key, err := s.q.decode(f["key"]); err == nil {
			keys = append(keys, infoOf(key, f, ofShard.number("offset")))
		}
	}
	return keys, ofShard["next"], nil
}

// readCounts returns the numbers of the shard.
func (s *shard[T]) readCounts(ctx context.Context) (c Counts, err error) {
	reply, err := s.runRead(ctx, "counts")
	if err != nil {
		return c, err
	}
	text, _ := reply.(string)
	p := parser{rest: text}
	if _, c = p.counts(); p.bad {
		return c, errReply
	}
	return c, nil
}

// infoOf returns what read.lua knows of a key. offset is by how many microseconds the queue's clock is ahead
// of the server's.
func infoOf[T comparable](key T, f fields, offset int64) (k KeyInfo[T]) {
	// at converts a time of the queue's clock into one of the server's.
	at := func(micros int64) (t time.Time) {
		if micros > 0 {
			t = time.UnixMicro(micros - offset)
		}
		return t
	}
	k.Key, k.Requeues, k.LostLeases = key, int(f.number("failures")), int(f.number("losses"))
	k.Failures.Count = k.Requeues
	if since, text, ok := strings.Cut(f["failing"], " "); ok && k.Requeues > 0 {
		k.Failures.Since = at(toNumber(since))
		k.Failures.Err = strings.ToValidUTF8(text, "") // The server has cut it.
	}
	k.Priority, k.Due = int(f.number("priority")), at(f.number("due"))
	if givenAt := at(f.number("givenAt")); !givenAt.IsZero() {
		attempts, reason, _ := strings.Cut(f["reason"], " ")
		k.GivenUp = &operate.GivenUpKey[T]{Key: key, Attempts: int(toNumber(attempts)), Err: reason, Time: givenAt}
	}
	if causes := decodeCauses(f["causes"]); !causes.IsZero() {
		k.Causes = &causes
	}
	// data.lua describes the forms of a state.
	state := parser{rest: f["state"]}
	switch len(state.rest) {
	case 0:
		if !k.Due.IsZero() {
			k.State = workqueue.KeyWaiting
		}
	case 16:
		k.State, k.Since = workqueue.KeyQueued, at(state.digits(16))
	default:
		k.State, k.Again = workqueue.KeyProcessing, strings.ToLower(state.take(1)) != "p"
		k.Holder = cmp.Or(f["holder"], state.take(11))
		k.Fence = state.digits(16)
		k.Since = at(k.Fence)
	}
	return k
}

// runRead runs read.lua. When ctx ends, it returns at once; the goroutine of the call ends at the latest with
// the client's ReadTimeout, because by default go-redis does not interrupt a call.
func (s *shard[T]) runRead(ctx context.Context, args ...any) (reply any, err error) {
	result := make(chan *redis.Cmd, 1)
	go func() { result <- readScript.RunRO(ctx, s.q.client, s.names.shard, args...) }()
	select {
	case r := <-result:
		reply, err = r.Result()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("redisqueue: %w", err)
	}
	return reply, nil
}

// fields are values by their names. What the server does not have is absent.
type fields map[string]string

func fieldsOf(list any) fields {
	f := make(fields)
	namesAndValues, _ := list.([]any)
	for pair := range slices.Chunk(namesAndValues, 2) {
		if len(pair) == 2 && pair[1] != nil {
			f[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
		}
	}
	return f
}

func (f fields) number(name string) int64 { return toNumber(f[name]) }

// toNumber returns 0 for an empty text.
func toNumber(text string) int64 {
	n, _ := strconv.ParseFloat(text, 64) // Redis may write scores with an exponent.
	return int64(n)
}
