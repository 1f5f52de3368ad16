package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/redisqueue"
)

func (c *command) queues(ctx context.Context) error {
	names, err := redisqueue.Queues(ctx, c.client)
	if err != nil {
		return err // A part of the names would look like all of them.
	}
	list := make([]text, 0, len(names))
	for _, name := range names {
		list = append(list, text(name))
		if !c.json {
			fmt.Fprintln(c.out, quoted(name))
		}
	}
	if c.json {
		return printJSON(c.out, list)
	}
	return nil
}

func (c *command) stats(ctx context.Context, _ []string) error {
	n, err := c.queue.Counts(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(c.out, struct {
			Queue               text       `json:"queue"`
			Description         text       `json:"description"`
			Paused              bool       `json:"paused"`
			PausedUntil         *time.Time `json:"paused_until"` // null: not paused, or without an end
			PausedSince         *time.Time `json:"paused_since"`
			PausedBy            *text      `json:"paused_by"`
			Limited             bool       `json:"limited"` // the start limit holds keys back
			Queued              int        `json:"queued"`
			OldestQueuedSeconds *float64   `json:"oldest_queued_seconds"`
			Processing          int        `json:"processing"`
			Again               int        `json:"again"`
			Waiting             int        `json:"waiting"`
			Failing             int        `json:"failing"`
			GivenUp             int        `json:"given_up"`
			Repaired            int        `json:"repaired"`
		}{
			text(c.name), text(c.queue.Description()),
			n.Paused, known(n.PausedUntil), known(n.PausedSince), known(text(n.PausedBy)), n.Limited,
			n.Queued, known(n.OldestQueued.Seconds()), n.Processing, n.Again, n.Waiting,
			n.Failing, n.GivenUp, n.Repaired,
		})
	}
	if n.Limited {
		c.notes = append(c.notes, "the start limit holds keys back")
	}
	oldest := ""
	if n.OldestQueued > 0 {
		oldest = fmt.Sprintf(", the oldest for %s", round(n.OldestQueued))
	}
	fmt.Fprintf(c.out, "queue       %s (%s)\n", quoted(c.name), escaped(c.queue.Description(), false))
	fmt.Fprintf(c.out, "paused      %s\nqueued      %d%s\n", c.pauseOf(n), n.Queued, oldest)
	fmt.Fprintf(c.out, "processing  %d, %d of them added again\n", n.Processing, n.Again)
	fmt.Fprintf(c.out, "waiting     %d\nfailing     %d\n", n.Waiting, n.Failing)
	_, err = fmt.Fprintf(c.out, "given up    %d\nrepaired    %d\n", n.GivenUp, n.Repaired)
	return err
}

// pauseOf says whether the queue is paused, who has paused it and since when, and until when that is so. On a
// terminal a pause without an end is amber: somebody may have forgotten it.
func (c *command) pauseOf(n redisqueue.Counts) string {
	if !n.Paused {
		return "no"
	}
	by := fmt.Sprintf(", by %s since %s", escaped(n.PausedBy, false), n.PausedSince.UTC().Format(time.RFC3339))
	if !n.PausedUntil.IsZero() {
		return "yes, until " + n.PausedUntil.UTC().Format(time.RFC3339) + by
	}
	text := "yes, until somebody resumes it" + by
	if c.onTerminal {
		text = "\x1b[33m" + text + "\x1b[0m"
	}
	return text
}

// keyRow is a key as ls and show print it. In JSON all that is not known, or that the key does not have,
// is null.
type keyRow struct {
	Key        text        `json:"key"`
	State      *string     `json:"state"` // null: it is not in the queue
	Since      *time.Time  `json:"since"` // when it was queued, or a worker got it
	Again      *bool       `json:"again"`
	Due        *time.Time  `json:"due"`
	Holder     *text       `json:"holder"`
	Fence      *int64      `json:"fence"`
	Priority   *int        `json:"priority"`
	Failures   *int        `json:"failures"`
	LostLeases *int        `json:"lost_leases"`
	GivenUp    *givenUpRow `json:"given_up"`
	Causes     *causesRow  `json:"causes"`
	list       string      // that ls has it from
}

type givenUpRow struct {
	Attempts int        `json:"attempts"`
	Reason   text       `json:"reason"`
	At       *time.Time `json:"at"`
}

type causesRow struct {
	Last   []causeRow `json:"last"`
	Others int        `json:"others"`
	First  *time.Time `json:"first"`
}

type causeRow struct {
	Reason      text       `json:"reason"`
	TraceParent text       `json:"traceparent"`
	Time        *time.Time `json:"time"`
}

func rowOf(list string, k redisqueue.KeyInfo[string]) keyRow {
	r := keyRow{
		Key: text(k.Key), State: known(string(k.State)), Since: known(k.Since), Due: known(k.Due),
		Priority: &k.Priority, Failures: &k.Requeues, LostLeases: &k.LostLeases, list: list,
	}
	if k.State == workqueue.KeyProcessing {
		holder := text(k.Holder)
		r.Again, r.Holder, r.Fence = &k.Again, &holder, &k.Fence
	}
	if g := k.GivenUp; g != nil {
		r.GivenUp = &givenUpRow{g.Attempts, text(g.Err), known(g.Time)}
	}
	if k.Causes != nil {
		causes := &causesRow{Others: k.Causes.Others, First: known(k.Causes.First)}
		for _, cause := range k.Causes.Last {
			causes.Last = append(causes.Last, causeRow{text(cause.Reason), text(cause.TraceParent), known(cause.Time)})
		}
		r.Causes = causes
	}
	return r
}

// states are what ls knows: the names of lists of the queue.
var states = []string{"processing", "queued", "waiting", "failing", "givenup"}

// list prints the keys page by page, so that a million of them need no memory.
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
			if n++; c.limit > 0 && n > c.limit {
				note := fmt.Sprintf("there are more %s keys than these %d; -n 0 prints all", state, c.limit)
				c.notes = append(c.notes, note)
				break
			}
			printed++
			if err := c.printRow(rowOf(state, k), printed); err != nil {
				return err
			}
		}
	}
	switch {
	case c.json && printed == 0:
		return printJSON(c.out, []string{})
	case c.json:
		_, err := fmt.Fprintln(c.out, "\n]")
		return err
	case printed == 0:
		c.notes = append(c.notes, "there are no such keys")
	}
	return nil
}

func (c *command) printRow(r keyRow, number int) error {
	if c.json {
		before := "[\n"
		if number > 1 {
			before = ",\n"
		}
		key, err := object(r)
		fmt.Fprint(c.out, before, "  ", key)
		return err
	}
	if number == 1 {
		fmt.Fprintf(c.out, rowFormat, "STATE", "SINCE", "DUE", "FAILURES", "HOLDER", "KEY")
	}
	state, failures, holder, since, reason := r.list, "-", "-", r.Since, ""
	if r.State != nil && *r.State != state {
		state += ", " + *r.State
	}
	if r.Again != nil && *r.Again {
		state += ", again"
	}
	if r.Failures != nil {
		failures = fmt.Sprint(*r.Failures)
	}
	if r.Holder != nil {
		holder = quoted(string(*r.Holder))
	}
	if g := r.GivenUp; g != nil && r.list == "givenup" {
		since, failures, reason = g.At, fmt.Sprint(g.Attempts), "  ("+escaped(string(g.Reason), false)+")"
	}
	key := quoted(string(r.Key)) + reason
	_, err := fmt.Fprintf(c.out, rowFormat, state, age(since), age(r.Due), failures, holder, key)
	return err
}

const rowFormat = "%-17s  %-15s  %-15s  %8s  %-11s  %s\n"

func (c *command) show(ctx context.Context, args []string) error {
	key := args[0]
	k, err := c.queue.Key(ctx, key)
	if err != nil {
		return err
	}
	if k.State == "" && k.GivenUp == nil && k.Requeues == 0 && k.LostLeases == 0 {
		return fmt.Errorf("%w: the server knows nothing of %s", errAbsent, quoted(key))
	}
	r := rowOf("", k)
	if c.json {
		return printJSON(c.out, r)
	}
	field := func(name, format string, args ...any) {
		fmt.Fprintf(c.out, "%-12s"+format+"\n", append([]any{name}, args...)...)
	}
	field("key", "%s", quoted(key))
	switch {
	case r.State == nil:
		field("state", "not in the queue")
	case k.Again:
		field("state", "%s, and added again", *r.State)
	default:
		field("state", "%s", *r.State)
	}
	if r.Since != nil {
		field("since", "%s, %s", age(r.Since), utc(r.Since))
	}
	if r.Holder != nil {
		field("holder", "%s", quoted(string(*r.Holder)))
		field("fence", "%d", *r.Fence)
	}
	if r.Due != nil {
		field("due", "%s, %s", age(r.Due), utc(r.Due))
	}
	field("priority", "%d", k.Priority)
	field("failures", "%d", *r.Failures)
	field("lost leases", "%d in a row", *r.LostLeases)
	if g := r.GivenUp; g != nil {
		reason := escaped(string(g.Reason), false)
		field("given up", "%s, %s, after %d attempts: %s", age(g.At), utc(g.At), g.Attempts, reason)
	}
	if r.Causes == nil {
		return nil
	}
	for _, cause := range slices.Backward(r.Causes.Last) {
		trace := ""
		if cause.TraceParent != "" {
			trace = " (trace " + escaped(string(cause.TraceParent), false) + ")"
		}
		field("cause", "%s: %s%s", age(cause.Time), escaped(string(cause.Reason), false), trace)
	}
	if r.Causes.Others > 0 {
		field("cause", "%d others before, the first %s", r.Causes.Others, age(r.Causes.First))
	}
	return nil
}

// utc returns a time as logs have it.
func utc(t *time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
