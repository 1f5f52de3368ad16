package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyedqueue/workqueue/redisqueue"
)

// chunk is how many keys are changed before the server must have answered.
const chunk = 500

// method changes keys, and returns those that were where it looked for them, also beside an error.
type method func(a *redisqueue.Admin, ctx context.Context, keys ...string) ([]string, error)

// change returns a command that calls a method with its keys or, with -all, those that were given up.
func change(done string, call method) func(c *command, ctx context.Context, keys []string) error {
	return func(c *command, ctx context.Context, keys []string) error {
		found := make(map[string]bool)
		defer func() { fmt.Fprintf(c.out, "%s: %d\n", done, len(found)) }() // beside an error too
		if c.all {
			for k, err := range c.queue.Keys(ctx, redisqueue.ListGivenUp, 0) {
				if err != nil {
					return err
				}
				c.answered()
				keys = append(keys, k.Key)
			}
		}
		for some := range slices.Chunk(keys, chunk) {
			changed, err := call(c.queue, ctx, some...)
			for _, key := range changed {
				found[key] = true
			}
			if err != nil {
				c.note("the server may have done more than it has answered")
				return err
			}
			c.answered()
		}
		absent := slices.DeleteFunc(keys, func(key string) bool { return found[key] })
		if len(absent) == 0 || c.all {
			return nil
		}
		err := fmt.Errorf("%w: %s", errAbsent, quoted(absent[0]))
		slices.Sort(absent)
		if more := len(slices.Compact(absent)) - 1; more > 0 {
			err = fmt.Errorf("%w, and %d more", err, more)
		}
		return err
	}
}

func (c *command) add(ctx context.Context, keys []string) error {
	added := 0
	defer func() { fmt.Fprintf(c.out, "added: %d\n", added) }() // beside an error too
	for some := range slices.Chunk(keys, chunk) {
		n, err := c.queue.Add(ctx, c.after, some...)
		if added += n; err != nil {
			c.note("the server may have done more than it has answered")
			return err
		}
		c.answered()
	}
	return nil
}
