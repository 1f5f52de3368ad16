package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/keyedqueue/workqueue/redisqueue"
)

func (c *command) queues(ctx context.Context) error {
	names, err := redisqueue.Queues(ctx, c.client)
	if err != nil {
		return err // A part of the names would look like all of them.
	}
	if c.json {
		return printJSON(c.out, append([]string{}, names...))
	}
	for _, name := range names {
		fmt.Fprintln(c.out, quoted(name))
	}
	return nil
}

func (c *command) stats(ctx context.Context, _ []string) error {
	n, err := c.queue.Counts(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(c.out, n)
	}
	remarks := ""
	if n.OldestQueued > 0 {
		remarks = fmt.Sprintf(", the oldest for %s", round(n.OldestQueued))
	}
	if n.Limited {
		remarks += "; the start limit holds keys back"
	}
	fmt.Fprintf(c.out, "queue       %s (%s)\n", quoted(c.name), escaped(c.queue.Description()))
	fmt.Fprintf(c.out, "paused      %s\nqueued      %d%s\n", pauseOf(n), n.Queued, remarks)
	fmt.Fprintf(c.out, "processing  %d, %d of them added again\n", n.Processing, n.Again)
	fmt.Fprintf(c.out, "waiting     %d\nfailing     %d\n", n.Waiting, n.Failing)
	_, err = fmt.Fprintf(c.out, "given up    %d\nrepaired    %d\n", n.GivenUp, n.Repaired)
	return err
}

// pauseOf says whether the queue is paused, who has paused it and since when, and until when that is so.
func pauseOf(n redisqueue.Counts) string {
	if !n.Paused {
		return "no"
	}
	until := "until somebody resumes it"
	if !n.PausedUntil.IsZero() {
		until = "until " + n.PausedUntil.UTC().Format(time.RFC3339)
	}
	if n.PausedSince.IsZero() { // The server has lost it.
		return "yes, " + until
	}
	since := n.PausedSince.UTC().Format(time.RFC3339)
	return fmt.Sprintf("yes, %s, by %s since %s", until, escaped(n.PausedBy), since)
}

// states are what ls knows: the names of lists of the queue.
var states = []string{"processing", "queued", "waiting", "failing", "givenup"}

// list prints the keys. With -n 0 it prints page by page, so that a million keys need no memory.
func (c *command) list(ctx context.Context, wanted []string) error {
	if len(wanted) == 0 {
		wanted = states
	}
	printed := 0
	for _, state := range wanted {
		limit, n := c.limit, 0
		if limit > 0 && limit < math.MaxInt {
			limit++ // so that it is known whether there are more
		}
		for k, err := range c.queue.Keys(ctx, redisqueue.List(state), limit) {
			if err != nil {
				return err
			}
			c.answered()
			if n++; c.limit > 0 && n > c.limit {
				c.note("there are more %s keys than these %d; -n 0 prints all", state, c.limit)
				break
			}
			printed++
			if err := c.printRow(state, k, printed == 1); err != nil {
				return err
			}
		}
	}
	if printed == 0 && !c.json {
		c.note("there are no such keys")
	}
	return nil
}

const rowFormat = "%-17s  %-15s  %-15s  %8v  %-11s  %s\n"

// printRow prints a key that ls has from a list, in one line.
func (c *command) printRow(list string, k redisqueue.KeyInfo[string], isFirst bool) error {
	if c.json {
		return c.printKey(k)
	}
	if isFirst {
		fmt.Fprintf(c.out, rowFormat, "STATE", "SINCE", "DUE", "FAILURES", "HOLDER", "KEY")
	}
	state, failures, holder, since, reason := list, k.Requeues, "-", k.Since, ""
	if k.State != "" && string(k.State) != list {
		state += ", " + string(k.State)
	}
	if k.Again {
		state += ", again"
	}
	if k.Holder != "" {
		holder = quoted(k.Holder)
	}
	if g := k.GivenUp; g != nil && list == "givenup" {
		since, failures, reason = g.Time, g.Attempts, "  ("+escaped(g.Err)+")"
	}
	key := quoted(k.Key) + reason
	_, err := fmt.Fprintf(c.out, rowFormat, state, age(since), age(k.Due), failures, holder, key)
	return err
}

// printKey prints a key as JSON, where it stands as everywhere else if it is not UTF-8: JSON would change it.
func (c *command) printKey(k redisqueue.KeyInfo[string]) error {
	if !utf8.ValidString(k.Key) {
		k.Key = quoted(k.Key)
	}
	if k.GivenUp != nil {
		k.GivenUp.Key = k.Key
	}
	return printJSON(c.out, k)
}

func (c *command) show(ctx context.Context, args []string) error {
	k, err := c.queue.Key(ctx, args[0])
	switch {
	case err != nil:
		return err
	case k.State == "" && k.GivenUp == nil && k.Requeues == 0 && k.LostLeases == 0:
		return fmt.Errorf("%w: the server knows nothing of %s", errAbsent, quoted(args[0]))
	case c.json:
		return c.printKey(k)
	}
	field := func(name, format string, args ...any) {
		fmt.Fprintf(c.out, "%-12s"+format+"\n", append([]any{name}, args...)...)
	}
	at := func(t time.Time) string { return age(t) + ", " + t.UTC().Format(time.RFC3339Nano) }
	field("key", "%s", quoted(k.Key))
	state := string(k.State)
	if k.State == "" {
		state = "not in the queue"
	} else if k.Again {
		state += ", and added again"
	}
	field("state", "%s", state)
	if !k.Since.IsZero() {
		field("since", "%s", at(k.Since))
	}
	if k.Holder != "" {
		field("holder", "%s", quoted(k.Holder))
		field("fence", "%d", k.Fence)
	}
	if !k.Due.IsZero() {
		field("due", "%s", at(k.Due))
	}
	field("priority", "%d", k.Priority)
	field("failures", "%d", k.Requeues)
	field("lost leases", "%d in a row", k.LostLeases)
	if g := k.GivenUp; g != nil {
		field("given up", "%s, after %d attempts: %s", at(g.Time), g.Attempts, escaped(g.Err))
	}
	if k.Causes == nil {
		return nil
	}
	for _, cause := range slices.Backward(k.Causes.Last) {
		trace := ""
		if cause.TraceParent != "" {
			trace = " (trace " + escaped(cause.TraceParent) + ")"
		}
		field("cause", "%s: %s%s", age(cause.Time), escaped(cause.Reason), trace)
	}
	if k.Causes.Others > 0 {
		field("cause", "%d others before, the first %s", k.Causes.Others, age(k.Causes.First))
	}
	return nil
}
